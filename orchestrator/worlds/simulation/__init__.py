"""The simulation: the real brokers in this process, in virtual time, on a network and disks driven by a seed."""
