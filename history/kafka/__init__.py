"""Readers of Kafka's formats that are independent of the broker under test, for oracles, analysis and dumps."""
