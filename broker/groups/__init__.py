"""Consumer groups, classic protocol: membership, assignment of partitions, and committed offsets.

Without I/O, clock or randomness of its own: requests and the passing of time go in, effects come out.
`broker.coordinator` executes the effects.
"""
