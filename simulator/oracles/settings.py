"""The oracles' view of the settings: read from each broker's configuration file, and from what clients have set for
topics. No value is read from the broker's own state.

`DEFAULTS` are the documented ones (docs/by-hand.md, "Keys").
"""

from collections.abc import Iterable, Mapping
from typing import Final

MIN_INSYNC, FLUSH, CLEANUP = "min.insync.replicas", "log.flush.interval.messages", "log.cleanup.policy"
LEASE, FETCH_TIMEOUT, EXPIRATION = "broker.lease.ms", "quorum.fetch.timeout.ms", "producer.id.expiration.ms"
LAG, SESSION, ELECTION = "replica.lag.time.max.ms", "broker.session.timeout.ms", "quorum.election.timeout.ms"
VOTERS = ("quorum.voters", "controller.quorum.voters")
DEFAULTS: Final[Mapping[str, str]] = {
    MIN_INSYNC: "1",
    FLUSH: "0",
    CLEANUP: "delete",
    LEASE: "1200",
    FETCH_TIMEOUT: "1000",
    EXPIRATION: "86400000",
    LAG: "3000",
    SESSION: "1500",
    ELECTION: "700",
}
OF_TOPICS: Final[Mapping[str, str]] = {
    MIN_INSYNC: MIN_INSYNC,
    FLUSH: "flush.messages",
    CLEANUP: "cleanup.policy",
}
"""By the broker's key, the topic's key that overrides it."""


class OracleSettings:
    """The settings of one broker. `properties`: its configuration file, by key."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)

    def text(self, key: str, topic: Mapping[str, str] | None = None) -> str:
        """`topic`: what is set for the topic, by the topic's keys."""
        topic_text = None if topic is None else topic.get(OF_TOPICS.get(key, key))
        return topic_text if topic_text is not None else self._properties.get(key, DEFAULTS[key])

    def number(self, key: str, topic: Mapping[str, str] | None = None) -> int:
        return int(self.text(key, topic))

    def seconds(self, key: str) -> float:
        """The value in seconds of a key in milliseconds."""
        return self.number(key) / 1000

    @property
    def patience_s(self) -> float:
        """The longest time until a broker, a replica and a leader of the quorum are given up, in sequence, and a lease
        has ended."""
        return sum(map(self.seconds, (SESSION, LEASE, LAG, FETCH_TIMEOUT, ELECTION)))

    def flushes(self, topic: Mapping[str, str]) -> bool:
        """Whether each record is flushed before it counts."""
        return self.number(FLUSH, topic) == 1

    def compacts(self, topic: Mapping[str, str]) -> bool:
        return "compact" in self.text(CLEANUP, topic)

    @property
    def voters(self) -> tuple[int, ...]:
        """The ids of the configured voters of the quorum; empty if none are named."""
        named = next((self._properties[key] for key in VOTERS if key in self._properties), "")
        return tuple(sorted(int(part.split("@")[0]) for part in named.split(",") if part.strip()))


def least_in_sync(settings: Iterable[OracleSettings], topic: Mapping[str, str], replicas: int) -> int:
    """How many replicas an ISR must have for a leader to commit: the least value of all brokers' settings, at most the
    number of the partition's replicas (KIP-966; a topic with fewer replicas can be written)."""
    return min(replicas, min((broker.number(MIN_INSYNC, topic) for broker in settings), default=1))
