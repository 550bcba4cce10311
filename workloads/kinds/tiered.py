"""The log workload for topics in remote storage (KIP-405): its consumers read old records again and again.

Of a consumer's polls some come after a jump: to the start of a partition, or to the record that a lookup by timestamp
(ListOffsets) returns for the time of a record that the consumer has read. From there it reads on to the end, across the
boundary between remote and local records. The reads are checked as those of the log; the lookups by the checker
`timestamp lookups`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from workloads.control import Control
from workloads.kind import ClientRole, WorkloadParameter
from workloads.kinds import log
from workloads.settings import ClientSettings

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

    def draw(self, partition: int, rng: Random) -> int | None:
        """A timestamp to ask for; None for a jump to the start."""
        if partition not in self.first or rng.random() < START_SHARE:
            return None
        return rng.randint(max(0, self.first[partition]), self.last[partition] + AHEAD_MS)


def _consumer(settings: ClientSettings, control: Control) -> None:
    from workloads.tiered_consumer import main

    main(settings, control)


KIND: Final = replace(
    log.KIND,
    name="tiered",
    description="As log, but consumers also read from the start and by timestamp, across remote storage's boundary.",
    parameters=(
        *log.KIND.parameters,
        WorkloadParameter(
            "jumps_share",
            0.1,
            "share of a consumer's polls before which it goes to the start of a partition or to a timestamp",
            minimum=0.001,
            maximum=1.0,
        ),
    ),
    roles={**log.KIND.roles, "consumer": ClientRole(_consumer, changes=False)},
)
