"""The simulated world: the very brokers, in this process, under virtual time, on a network and disks of a seed."""
