"""What systems that speak the Kafka protocol share: asking them, looking at them, reading their logs."""
