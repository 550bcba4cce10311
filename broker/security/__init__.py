"""Authentication and authorization of peers: TLS, SASL, access control lists. Without I/O except for reading files."""
