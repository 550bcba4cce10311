"""Nodes without a campaign: a process that holds them until they are taken down, and how commands find and ask it."""
