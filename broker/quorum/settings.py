"""The quorum's settings in the units the state machine computes with: seconds."""

from __future__ import annotations

import random
from dataclasses import dataclass

from broker.config import BrokerConfig
from broker.protocol.schema import NO_ID

# A follower's long poll must end well before its fetch timeout, or a quiet leader would look like a dead one.
FETCH_WAIT_SHARE = 4
# What a voter asks for at once. While an answer comes it can neither show the leader that it lives nor see that the
# leader does: at a megabit a second this much takes half of the default fetch timeout.
FETCH_BYTES = 1 << 16
# What one operation on the metadata may take, however small the batches of producers have to be. A broker's
# fencing takes all its partitions along, and is committed as a whole or not at all.
METADATA_BATCH_BYTES = 8 << 20
# The leader resigns when no majority fetched within this multiple of the fetch timeout (K595-43, H19).
CHECK_QUORUM_FACTOR = 1.5
# An exponent beyond this has long reached any maximum.
MAX_DOUBLINGS = 30


@dataclass(frozen=True)
class QuorumSettings:
    """Who this node is, who votes, and how long to wait for what. All times are seconds."""

    node_id: int
    cluster_id: str | None
    voters: tuple[int, ...]
    """The ids that may vote, as `quorum.voters` has them; which do, on which disks, the log says."""
    directory_id: bytes = NO_ID
    fetch_timeout_s: float = 1.0
    election_timeout_s: float = 0.7
    election_backoff_max_s: float = 0.3
    request_timeout_s: float = 1.0
    retry_backoff_s: float = 0.02
    retry_backoff_max_s: float = 0.5
    fetch_max_bytes: int = FETCH_BYTES
    append_max_bytes: int = METADATA_BATCH_BYTES

    @classmethod
    def from_config(cls, config: BrokerConfig, cluster_id: str | None, directory_id: bytes) -> QuorumSettings:
        """The quorum's part of a broker's configuration."""
        return cls(
            node_id=config.node_id,
            cluster_id=cluster_id,
            voters=tuple(sorted(voter.id for voter in config.voters)),
            directory_id=directory_id,
            fetch_timeout_s=config.quorum_fetch_timeout_ms / 1000,
            election_timeout_s=config.quorum_election_timeout_ms / 1000,
            election_backoff_max_s=config.quorum_election_backoff_max_ms / 1000,
            request_timeout_s=config.quorum_request_timeout_ms / 1000,
            retry_backoff_s=config.quorum_retry_backoff_ms / 1000,
            retry_backoff_max_s=config.quorum_retry_backoff_max_ms / 1000,
            fetch_max_bytes=min(FETCH_BYTES, config.replica_fetch_max_bytes),
            append_max_bytes=max(METADATA_BATCH_BYTES, config.message_max_bytes),
        )

    @property
    def other_voters(self) -> tuple[int, ...]:
        return tuple(voter for voter in self.voters if voter != self.node_id)

    @property
    def check_quorum_timeout_s(self) -> float:
        return self.fetch_timeout_s * CHECK_QUORUM_FACTOR

    @property
    def fetch_max_wait_s(self) -> float:
        return min(0.5, self.fetch_timeout_s / FETCH_WAIT_SHARE)

    def retry_delay(self, failures: int) -> float:
        """The pause after the n-th failure in a row, growing exponentially to its maximum (K595-3)."""
        return float(min(self.retry_backoff_max_s, self.retry_backoff_s * 2 ** min(failures - 1, MAX_DOUBLINGS)))

    def election_delay(self, rng: random.Random) -> float:
        """The random delay before an election, so that voters do not stand together for ever (K595-15)."""
        return rng.uniform(0, self.election_backoff_max_s)

    def successor_delay(self, position: int) -> float:
        """How long the successor at this place of the leader's list waits before it stands (K595-29)."""
        return 0.0 if position == 0 else self.retry_delay(position)
