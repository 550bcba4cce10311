"""The system under test: a broker that speaks the Kafka protocol. It knows of no other room, and could ship alone."""
