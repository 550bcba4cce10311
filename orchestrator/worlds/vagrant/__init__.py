"""The vagrant world: nodes are virtual machines, each with its own kernel, clock and disk.

Everything - libvirt, its networks, QEMU - runs in the run's sandbox. Start reading at `lab`; `machine` is one virtual
machine, `hypervisor` libvirt, `write_log` what a power cut leaves on a disk.
"""
