"""Worlds whose nodes are machines reached by SSH and provisioned before the run: virtual machines, inventory hosts.

`machines` has what a lab provides; `world` the `World` of one run on them, which copies the services' trace and log
while they are written; `paths` the paths on each machine.

Power, suspension and login stay with the two labs, which have no such code in common. A virtual machine's power is its
QEMU process: it is killed, its state is the process's, and the cache of its disk is then discarded. A host's power and
suspension are commands of the inventory; its state is the one that was requested last, and after a boot it is locked
and gets its packet filter again. The login of a virtual machine is fixed; that of a host is up to ssh's configuration.
"""
