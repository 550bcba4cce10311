"""The metadata quorum after KIP-595.

`runner.QuorumRunner` is what the rest of the broker uses, and `raft_node.RaftNode` the pure state machine behind it.
"""
