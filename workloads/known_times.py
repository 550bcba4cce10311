"""The timestamps that a consumer of the workload `tiered` knows, and the timestamps that it asks for."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from history.record.offset_record import OffsetWriter

START_SHARE: Final = 0.4
"""The share of jumps to a partition's start; the others are to a timestamp."""
AHEAD_MS: Final = 200
"""A lookup may ask for a timestamp this much later than the last known one: there may be no such record yet."""


@dataclass
class KnownTimes:
    """The timestamps of the records that one client has read, in ms, and which offsets it has not recorded yet."""

    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    _recorded_to: dict[int, int] = field(default_factory=dict)

    def add(self, partition: int, offset: int, timestamp: int) -> bool:
        """A record was read; returns whether this client has read none at this offset or later before."""
        self.first[partition] = min(timestamp, self.first.get(partition, timestamp))
        self.last[partition] = max(timestamp, self.last.get(partition, timestamp))
        is_new = offset >= self._recorded_to.get(partition, 0)
        if is_new:
            self._recorded_to[partition] = offset + 1
        return is_new

    def record(self, writer: OffsetWriter, partition: int, stamped: Iterable[tuple[int, int]]) -> None:
        """Record the timestamps of consecutive records that were read, each once. `stamped`: offsets and timestamps."""
        new = [(offset, timestamp) for offset, timestamp in stamped if self.add(partition, offset, timestamp)]
        if new:
            writer.add("sight", partition, first=new[0][0], timestamps=[timestamp for _, timestamp in new])

    def draw(self, partition: int, rng: Random) -> int | None:
        """A timestamp to ask for; None for a jump to the start."""
        if partition not in self.first or rng.random() < START_SHARE:
            return None
        return rng.randint(max(0, self.first[partition]), self.last[partition] + AHEAD_MS)
