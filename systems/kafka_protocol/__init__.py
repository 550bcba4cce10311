"""Shared by systems that speak the Kafka protocol: a client, an observer, and a reader of log files."""
