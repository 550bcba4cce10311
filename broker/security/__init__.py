"""Who a peer is, and what it may do: TLS, SASL, access control lists. Pure, but for the files it begins with."""
