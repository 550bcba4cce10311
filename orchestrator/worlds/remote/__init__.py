"""Worlds whose nodes are machines reached by SSH, provisioned before the run: virtual machines, hosts of an inventory.

`world` offers the `World` of one run over the machines that a lab owns; `paths` says where things lie on each of them;
`mirror` brings home what the services say while they say it.
"""
