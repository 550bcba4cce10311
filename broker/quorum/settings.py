"""The quorum's settings, with all times in seconds."""

import random
from dataclasses import dataclass

from broker.config import BrokerConfig
from broker.protocol.schema import NO_ID

# A follower's long poll must end well before its fetch timeout; otherwise an idle leader would look dead.
FETCH_WAIT_SHARE = 4
# The bytes that a voter fetches at once. While a response arrives, the voter can neither show the leader that it is
# alive
# nor notice that the leader is. At one megabit a second this size takes half of the default fetch timeout.
FETCH_BYTES = 1 << 16
# The most that one operation on the metadata may write, independent of the limit for producers' batches. Fencing a
# broker
# changes all its partitions and is committed as a whole or not at all.
METADATA_BATCH_BYTES = 8 << 20
# The leader resigns when no majority fetched within this multiple of the fetch timeout (K595-43, H19).
CHECK_QUORUM_FACTOR = 1.5
# At this exponent every delay has reached its maximum.
MAX_DOUBLINGS = 30


@dataclass(frozen=True)
class QuorumSettings:
    """This node's identity, the ids of the voters, and timeouts. All times are in seconds."""

    node_id: int
    cluster_id: str | None
    voters: tuple[int, ...]
    """The ids in `quorum.voters`, which may vote. The log says which of them do, and with which disks."""
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
    def from_config(cls, config: BrokerConfig, cluster_id: str | None, directory_id: bytes) -> "QuorumSettings":
        """The settings from a broker's configuration."""
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
        """The pause after the n-th consecutive failure; grows exponentially to its maximum (K595-3)."""
        return float(min(self.retry_backoff_max_s, self.retry_backoff_s * 2 ** min(failures - 1, MAX_DOUBLINGS)))

    def election_delay(self, rng: random.Random) -> float:
        """The random delay before an election; it keeps voters from standing at the same time for ever (K595-15)."""
        return rng.uniform(0, self.election_backoff_max_s)

    def successor_delay(self, position: int) -> float:
        """The delay of the successor at this position of the leader's list, before it stands (K595-29)."""
        return 0.0 if position == 0 else self.retry_delay(position)
