"""The group coordinator of a broker: runs the state machine of `broker.groups` on the partitions of
`__consumer_offsets` that this broker leads."""
