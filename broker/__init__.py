"""The system under test: a broker that speaks the Kafka protocol. It imports no other room and could ship alone."""
