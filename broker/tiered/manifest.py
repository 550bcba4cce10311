"""The remote segments of one partition, and which of its offsets they hold. Pure.

Theory of operation. A manifest is the result of the partition's events in `__remote_log_metadata`, in their order. It
answers questions about one log, whose leader epochs are the `Lineage`. After an unclean election the store may hold
segments of a history that the log does not share. So a record is identified by its leader epoch and its offset, never
by the offset alone (H28, KAFKA-15241): a segment holds a record of the log only if it has that epoch at that offset,
and what it holds of an epoch ends where the epoch ends in the log.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from broker.log.epochs import EpochEntry
from broker.protocol.records import BatchHeader
from broker.tiered.segments import EDGES, SegmentEvent, SegmentState, TieredSegment


class TieredOffset(NamedTuple):
    """An offset and the leader epoch of its record."""

    offset: int
    epoch: int


class Lineage:
    """The leader epochs of a log: `entries` in rising order, and the offset at which the last one ends."""

    def __init__(self, entries: Sequence[EpochEntry], end_offset: int) -> None:
        self.entries = tuple(entries)
        self.end_offset = end_offset

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at `offset`; None outside the log."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        return self.entries[index].epoch if index >= 0 and offset < self.end_offset else None

    def has(self, header: BatchHeader) -> bool:
        """Whether the log has a batch. The log's start, where its epochs begin, may be inside the batch, which has one
        epoch."""
        start = self.entries[0].start_offset if self.entries else header.base_offset
        served = max(header.base_offset, start)
        return served < header.next_offset and self.epoch_at(served) == header.leader_epoch

    def stretch_of(self, epoch: int) -> tuple[int, int] | None:
        """The first offset of an epoch and the offset after its last; None for an epoch that the log does not have."""
        index = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch) - 1
        if index < 0 or self.entries[index].epoch != epoch:
            return None
        following = self.entries[index + 1 : index + 2]
        end = following[0].start_offset if following else self.end_offset
        return self.entries[index].start_offset, min(end, self.end_offset)


class _Stretch(NamedTuple):
    """The records of one epoch in one readable segment: from `start` to before `end`."""

    start: int
    end: int
    id: str


GIVEN_UP_REMEMBERED: Final = 1_000
"""Copies of a partition that were given up and are remembered. A late object of an older one is unknown, and stays."""


class Manifest:
    """The segments of one partition by id, in the order of their COPY_STARTED. `given_up`: the ids of deleted segments
    whose copy was never finished. A deposed leader may still put their objects; those of a finished copy are complete
    before COPY_FINISHED."""

    def __init__(self, segments: Iterable[TieredSegment] = (), given_up: Iterable[str] = ()) -> None:
        self.given_up: dict[str, None] = dict.fromkeys(given_up)
        self._segments: dict[str, TieredSegment] = {}
        self._by_epoch: dict[int, list[_Stretch]] = {}
        self._ends: dict[int, int] = {}
        for segment in segments:
            self._put(segment)

    def __iter__(self) -> Iterator[TieredSegment]:
        """All segments, in any state."""
        return iter(tuple(self._segments.values()))

    def __len__(self) -> int:
        return len(self._segments)

    def get(self, segment_id: str) -> TieredSegment | None:
        return self._segments.get(segment_id)

    # -- events -------------------------------------------------------------------------------------------------

    def apply(self, event: SegmentEvent) -> bool:
        """Apply an event; false if it is not an edge of the segment's state, or expects another one: then it has no
        effect."""
        segment = self._segments.get(event.id)
        state = None if segment is None else segment.state
        if event.state not in EDGES[state] or event.expected not in (None, state):
            return False
        changed = event.segment
        if segment is not None:
            changed = replace(segment, state=event.state, objects=event.objects or segment.objects)
        if changed is None:
            return False
        self._drop(event.id)
        if changed.state is not SegmentState.DELETE_FINISHED:
            self._put(changed)
        elif not changed.objects:
            self.given_up[event.id] = None
            for oldest in list(self.given_up)[:-GIVEN_UP_REMEMBERED]:
                del self.given_up[oldest]
        return True

    def _put(self, segment: TieredSegment) -> None:
        self._segments[segment.id] = segment
        if segment.is_readable:
            for epoch, _ in segment.epochs:
                start, end = segment.stretch_of(epoch) or (0, 0)
                insort(self._by_epoch.setdefault(epoch, []), _Stretch(start, end, segment.id))
                self._ends[epoch] = max(end, self._ends.get(epoch, 0))

    def _drop(self, segment_id: str) -> None:
        segment = self._segments.pop(segment_id, None)
        if segment is None or not segment.is_readable:
            return
        for epoch, _ in segment.epochs:
            remaining = [stretch for stretch in self._by_epoch[epoch] if stretch.id != segment_id]
            if remaining:
                self._by_epoch[epoch], self._ends[epoch] = remaining, max(stretch.end for stretch in remaining)
            else:
                del self._by_epoch[epoch], self._ends[epoch]

    # -- questions ----------------------------------------------------------------------------------------------

    def find(self, epoch: int, offset: int) -> TieredSegment | None:
        """The readable segment that holds the record of `epoch` at `offset`."""
        if offset >= self._ends.get(epoch, 0):
            return None
        stretches = self._by_epoch[epoch]
        for stretch in reversed(stretches[: bisect_right(stretches, offset, key=lambda candidate: candidate.start)]):
            if stretch.end > offset:
                return self._segments[stretch.id]
        return None

    def find_in(self, lineage: Lineage, offset: int) -> TieredSegment | None:
        """The readable segment that holds the log's record at `offset`."""
        epoch = lineage.epoch_at(offset)
        return None if epoch is None else self.find(epoch, offset)

    def highest_tiered(self, lineage: Lineage) -> TieredOffset | None:
        """The last record of the log that is in the store: its offset is at most the end of its epoch in the log
        (H28). None if the store has no record of the log."""
        for epoch, start in reversed(lineage.entries):
            _, end = lineage.stretch_of(epoch) or (0, 0)
            highest = min(self._ends.get(epoch, 0), end)
            if highest > start:
                return TieredOffset(highest - 1, epoch)
        return None

    def earliest(self, lineage: Lineage) -> int | None:
        """The first offset of the log that is in the store: the log's start if records were removed locally. None if
        the store has no record of the log."""
        for epoch, start in lineage.entries:
            _, end = lineage.stretch_of(epoch) or (0, 0)
            for stretch in self._by_epoch.get(epoch, ()):
                if stretch.end > start and stretch.start < end:
                    return max(stretch.start, start)
        return None

    def covered_to(self, lineage: Lineage, offset: int) -> int:
        """The store has all records of the log from `offset` to before the result, without a gap."""
        return max((reached for _, reached in self._steps(lineage, offset)), default=offset)

    def path(self, lineage: Lineage, start: int, end: int) -> list[TieredSegment]:
        """The readable segments that hold the log's records from `start` to before `end`, oldest first, up to the first
        gap."""
        segments: list[TieredSegment] = []
        for segment, reached in self._steps(lineage, start) if start < end else ():
            if not segments or segments[-1] is not segment:
                segments.append(segment)
            if reached >= end:
                break
        return segments

    def _steps(self, lineage: Lineage, offset: int) -> Iterator[tuple[TieredSegment, int]]:
        """Follow the log's records through the store, from `offset` to the first gap: a segment, and the offset up to
        which it holds the records of one epoch."""
        while (epoch := lineage.epoch_at(offset)) is not None and (segment := self.find(epoch, offset)) is not None:
            _, in_segment = segment.stretch_of(epoch) or (0, 0)
            _, in_log = lineage.stretch_of(epoch) or (0, 0)
            offset = min(in_segment, in_log)
            yield segment, offset
