"""The namespace world: nodes as Linux namespaces of one machine, each with its own network, disk and power switch.

`world` offers the `World`; `sandbox` is what must be entered first; `requirements` says what the machine lacks for it.
This package's `__init__` imports nothing: the processes that become a sandbox or a node load only what they need.
"""
