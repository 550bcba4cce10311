"""Apache Kafka with ZooKeeper as a system under test: 0.10 to 3.9."""
