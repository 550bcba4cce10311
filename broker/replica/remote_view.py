"""The part of a log's remote storage that its replica uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.errors import ErrorCode
from broker.log.retention import RetainedSegment
from broker.log.timestamps import TimedOffset
from broker.ports import Buffer
from broker.tiered.manifest import TieredOffset


class RemoteView(Protocol):
    """What remote storage has of one replica's log."""

    @property
    def ready(self) -> bool:
        """Whether all events were read that were committed before the replica took its current role."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether the events of the log were read to their end since this process started."""
        ...

    def highest_tiered(self) -> TieredOffset | None:
        """The last record of the log in remote storage; None without one."""
        ...

    def covered_to(self, offset: int) -> int:
        """Remote storage has all committed records from `offset` to before the result."""
        ...

    def read(self, offset: int, max_bytes: int, *, min_one: bool) -> Sequence[Buffer] | ErrorCode | None:
        """Whole batches from the one that contains `offset`, which is only remote, as parts to be concatenated; None:
        they are being loaded, and `consumer_fetches` will be woken."""
        ...

    def first_not_before(self, timestamp: int) -> TimedOffset | ErrorCode | None:
        """The first record that is only remote and not earlier than `timestamp` (ms); None without one. An error: ask
        again later."""
        ...

    def retained(self, start: int, end: int) -> Sequence[RetainedSegment]:
        """The remote segments with the records from `start` to before `end`, for retention."""
        ...
