"""Worlds: where a cluster runs. `base` has the `World`, `selection.select_lab` chooses one, each has its package.

This `__init__` imports nothing: processes that become a sandbox or a node load only what they need, to start fast.
"""
