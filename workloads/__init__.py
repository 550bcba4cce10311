"""Clients: pacing and outcomes (pure code), and client processes that use real Kafka libraries.

`python -m workloads producer|consumer|reader` is one client process; `workloads.process.ClientProcess` starts it and
sends it commands.
"""
