"""Apache Kafka with KRaft as a system under test."""
