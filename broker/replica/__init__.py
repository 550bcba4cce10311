"""The replicas of partitions: leader and follower, high watermark, in-sync set, truncation after a change of leader."""
