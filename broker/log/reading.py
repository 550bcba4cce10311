"""Finds whole batches in the segments of a log, as ranges of files that are sent without being read."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from broker.errors import ErrorCode, ProtocolError
from broker.log.epochs import LeaderEpochCache
from broker.log.segment import Segment
from broker.ports import File
from broker.protocol.records import CorruptBatch


class Slice(NamedTuple):
    """Whole batches of one segment, ready for `File.send_to`."""

    file: File
    position: int
    length: int


def segment_of(segments: Sequence[Segment], offset: int) -> Segment:
    """The segment that contains an offset, or starts or ends there."""
    active = segments[-1]
    if offset >= active.base_offset:
        return active
    return segments[bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1]


class OffsetOutOfRangeError(ProtocolError):
    """An offset below the first one of a log's segments or past its end."""

    def __init__(self, directory: str, offset: int, start: int, end: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{directory}: offset {offset} is not in {start} to {end}")


class SegmentReader:
    """Reads for one call of `PartitionLog.locate`. `start`: the first offset that the log serves locally."""

    def __init__(self, segments: Sequence[Segment], epochs: LeaderEpochCache, start: int, *, compacted: bool) -> None:
        self._segments = segments
        self._epochs = epochs
        self._start = start
        self._compacted = compacted

    def slices(self, offset: int, bound: int, max_bytes: int, *, min_one: bool) -> list[Slice]:
        """As `PartitionLog.locate`; both offsets are in the log."""
        slices: list[Slice] = []
        while offset < bound:
            segment = segment_of(self._segments, offset)
            try:
                start, stop = segment.stretch(offset, bound, max_bytes)
                if stop <= start or (stop - start > max_bytes and (slices or not min_one)):
                    break
                self._verify(segment, start, stop)
            except CorruptBatch as error:
                raise segment.damaged(error) from error
            slices.append(Slice(segment.file, start, stop - start))
            max_bytes -= stop - start
            if stop < segment.size or max_bytes <= 0:
                break
            offset = segment.next_offset
        return slices

    def _verify(self, segment: Segment, start: int, stop: int) -> None:
        """Compare the leader epochs of batches, which no CRC covers, with the epoch file. Raises `CorruptBatch`."""
        for header in segment.verify(start, stop, compacted=self._compacted):
            known_epoch = self._epochs.epoch_at(header.last_offset)
            if header.last_offset >= self._start and header.leader_epoch != known_epoch:
                raise CorruptBatch(f"{segment.file.path}: offset {header.base_offset}: epoch {header.leader_epoch}")
