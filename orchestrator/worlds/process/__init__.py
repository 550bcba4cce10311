"""The process world: services as processes on loopback. Needs no privileges; supports kill and pause only."""
