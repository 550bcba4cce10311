"""Worlds whose nodes are machines reached by SSH and provisioned before the run: virtual machines, inventory hosts.

`world` has the `World` of one run on a lab's machines; `paths` the paths on each machine; `log_stream` copies the
services' trace and log while they are written.
"""
