"""The simulated world: an event loop with virtual time, a seeded network and disks, and brokers that run on them.

The unchanged broker runs here: it uses time, connections and disks only through the running loop and the Disk port.
The same seed gives the same run, event for event, in every process.
"""
