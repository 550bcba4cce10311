"""etcd as a system under test: keys with values, replicated by Raft."""
