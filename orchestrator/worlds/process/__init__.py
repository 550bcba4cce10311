"""The process world: services as processes on loopback. Needs no privileges; can be killed and paused, no more."""
