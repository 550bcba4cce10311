"""Tiered storage (KIP-405): closed segments of a partition's log are copied to an object store, and local copies may be
removed."""
