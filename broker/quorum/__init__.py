"""The metadata quorum after KIP-595: `driver.Quorum` is its face, `node.RaftNode` the pure state machine behind it."""
