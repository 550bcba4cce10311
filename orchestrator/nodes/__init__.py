"""Nodes without a campaign: a daemon that keeps them until they are taken down, and how commands talk to it."""
