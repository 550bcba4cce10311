"""Worlds: the environments in which clusters run. `base` defines `World`, `selection.select_lab` chooses one, and each
world has its package.

This `__init__` imports nothing: processes that become a sandbox or a node load only what they need, to start fast.
"""
