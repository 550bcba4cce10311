"""Clients in virtual time: the clients of the log workloads as coroutines of the simulation.

They accept the same commands, issue at the same pace, classify outcomes by the same rule and record the same history.
Only the library differs, because librdkafka uses real time.
"""
