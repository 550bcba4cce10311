"""The metadata quorum: a Raft variant after KIP-595.

The rest of the broker uses `runner.QuorumRunner`, which drives the pure state machine `raft_node.RaftNode`.
"""
