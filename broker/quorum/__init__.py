"""The metadata quorum after KIP-595.

`membership.Quorum` is what the rest of the broker uses, `runner` runs it, and `raft_node.RaftNode` is the pure state
machine behind both.
"""
