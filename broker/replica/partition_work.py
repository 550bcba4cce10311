"""Periodic work on single partitions: retention, compaction, remote segments.

An unexpected error, a defect, ends neither the broker nor the work on other partitions. The error is reported to the
event loop's exception handler, which prints it with its traceback, once as long as its reason does not change. It is
traced and counted, and the partition's work of this kind pauses, twice as long after each error in a row. A disk error
is passed on: it concerns the whole directory. Errors of work on a replica that was deleted meanwhile are ignored: its
files are missing.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from broker.replica.partition import Partition

T = TypeVar("T")
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0


class _Failure(NamedTuple):
    """The last error of a partition's work: `row` errors in a row, the next try at `until` in loop time."""

    reason: str
    row: int
    until: float


class PartitionWork:
    """The attempts of one broker. `failures`: the number of errors by the kind of work."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self._failed: dict[tuple[str, Partition], _Failure] = {}

    async def attempt(self, kind: str, partition: Partition, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of the work; None if it failed, or the partition pauses. Raises `OSError`."""
        if self.pauses(kind, partition):
            return None
        before = self._failed.get((kind, partition))
        try:
            result = await work()
        except Exception as error:
            if partition.log.is_deleted:  # its files were closed and removed meanwhile: not a disk failure
                return None
            if isinstance(error, OSError):
                raise
            self._failed[kind, partition] = self._noted(kind, partition, error, before)
            return None
        self._failed.pop((kind, partition), None)
        return result

    def pauses(self, kind: str, partition: Partition) -> bool:
        """Whether the last attempt failed, and the next one is not due yet."""
        before = self._failed.get((kind, partition))
        return before is not None and asyncio.get_running_loop().time() < before.until

    def forget(self, partition: Partition) -> None:
        """The partition is removed."""
        for place in [place for place in self._failed if place[1] is partition]:
            del self._failed[place]

    def _noted(self, kind: str, partition: Partition, error: Exception, before: _Failure | None) -> _Failure:
        loop = asyncio.get_running_loop()
        reason = f"{type(error).__name__}: {error}"
        row = 1 if before is None else before.row + 1
        pause_s = min(FIRST_PAUSE_S * 2 ** min(row - 1, 16), LONGEST_PAUSE_S)
        self.failures[kind] += 1
        if before is None or before.reason != reason:
            topic, index = partition.key
            message = f"{kind} of {topic}-{index} failed and is tried again: {reason}"
            partition.trace("partition_work_failed", work=kind, reason=reason)
            loop.call_exception_handler({"message": message, "exception": error})
        return _Failure(reason, row, loop.time() + pause_s)
