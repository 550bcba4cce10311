"""The process world: brokers as plain processes on loopback. Needs no privileges; can be killed and paused, no more."""
