"""Which replicas started after the last tiered offset, and so are the last choice as leaders (KIP-1023).

Such a replica has few local records, and would read the others from remote storage. Brokers report these replicas with
every heartbeat. The controller keeps the reports in memory; a new controller has them after one heartbeat of each
broker. They only order replicas that have everything that is committed, in elections from the ISR or the ELR and at the
end of a reassignment: which replicas may lead does not depend on them. An election of the preferred leader is refused
while that replica is the last choice. An unclean election does not use the reports: only what a replica has counts
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.protocol.messages.broker_heartbeat import TieredStarts


class TieredStartsOfBrokers:
    """The latest report of each broker, for its current registration."""

    def __init__(self) -> None:
        self._reports: dict[int, tuple[int, frozenset[tuple[bytes, int]]]] = {}

    def reported(self, broker: int, broker_epoch: int, starts: Iterable[TieredStarts]) -> None:
        """Replace a broker's report."""
        partitions = frozenset((topic.topic_id, index) for topic in starts for index in topic.partitions)
        self._reports[broker] = (broker_epoch, partitions)

    def last(self, partition: tuple[bytes, int], replicas: Sequence[int]) -> list[int]:
        """The replicas, those that started after the last tiered offset behind the others."""
        return sorted(replicas, key=lambda broker: partition in self._reports.get(broker, (0, frozenset()))[1])
