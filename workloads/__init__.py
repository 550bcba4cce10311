"""What clients do: pacing and outcomes (pure), and client processes on real Kafka libraries.

`python -m workloads producer|consumer|reader` is one client process; `workloads.process.ClientProcess` starts and
commands it.
"""
