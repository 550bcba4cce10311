"""Clients in virtual time: what clients of the log workloads are as processes, and what asks brokers about themselves.

They take the same commands, issue at the same pace, call an outcome by the same rule and record the same history; only
the library differs, for librdkafka has a time of its own.
"""
