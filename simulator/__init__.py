"""The simulated world: an event loop with virtual time, a network and disks that a seed controls, and brokers in them.

The broker runs here unchanged: it reaches time, connections and disks through the running loop and the Disk port only.
The same seed gives the same run, event for event, in every process.
"""
