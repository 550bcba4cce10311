"""Nodes without a campaign: a daemon that keeps them until they are taken down, and how commands talk to it.

Why a daemon with a socket: the process that made the nodes holds what no other process can take over. It has the only
descriptors of the disks' nameless files, the pipe to the supervisor of the process world (services end with it), the
libvirt that it started, the locks on hosts (SSH connections that stay open), and the threads that copy logs. So it must
live as long as the nodes, and answers for them. A command that entered the sandbox instead would need each world to
write down its state and to attach to it: more code than the socket, and the process world could not do it.
"""
