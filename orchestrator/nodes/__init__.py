"""Nodes without a campaign: a kept lab with one world, in a process of its own until the nodes are taken down."""
