"""The namespaces world: nodes are Linux namespaces of one machine, each with its own network, disk and power switch.

`world` has the `World`; a sandbox must be entered first; `requirements` lists what the machine lacks for it. This
package's `__init__` imports nothing: the processes that become a sandbox or a node load only what they need.
"""
