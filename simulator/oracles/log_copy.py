"""A cheap copy of a replica's log, batch by batch, which also exists for a machine without power."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.log.log import PartitionLog
from history.kafka.record_batches import DamagedBatchError, Header, batches_in, flaw_of, voters_in
from simulator.disk import SimulatedDisk

SUFFIX = ".log"
MAX_SEQUENCE: Final = (1 << 31) - 1
"""0 follows it (KIP-98)."""


class BatchSequence(NamedTuple):
    """A batch's fields about its idempotent producer. `delta`: of its last record, relative to its first."""

    producer_id: int
    epoch: int
    sequence: int
    delta: int

    @classmethod
    def of(cls, header: Header) -> "BatchSequence | None":
        """None for a batch without an idempotent producer."""
        if header.producer_id < 0 or header.is_control:
            return None
        return cls(header.producer_id, header.producer_epoch, header.sequence, header.last_delta)

    @property
    def last_sequence(self) -> int:
        return (self.sequence + self.delta) & MAX_SEQUENCE

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.delta + 1) & MAX_SEQUENCE


class CopiedBatch(NamedTuple):
    """A batch, identical on all replicas. `crc` covers its content but not offset and epoch."""

    base: int
    next: int
    epoch: int
    crc: int

    def to_json(self) -> dict[str, int]:
        return {"offset": self.base, "last_offset": self.next - 1, "epoch": self.epoch, "crc": self.crc}


class BatchEnd(NamedTuple):
    """The end of a batch: the base offset of its segment, and the position in that segment's file."""

    segment: int
    end: int


class CopiedLog:
    """The batches of a log, oldest first. `path`: of its directory on its machine's disk. `flaws`: contradictions in
    the last added batches, in words; `voters`: by control batch the voters that it names."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.batches: list[CopiedBatch] = []
        self.flaws: list[tuple[CopiedBatch, str]] = []
        self.voters: dict[CopiedBatch, tuple[int, ...]] = {}
        self._places: list[BatchEnd] = []
        self._sequenced: list[
            BatchSequence | None
        ] = []  # each batch's fields about its idempotent producer, if it has one
        self._whole = 0  # this many batches, in closed segments, are durable: no later sync changes that

    def copied(self) -> "CopiedLog":
        """The batches as they are now."""
        copy = CopiedLog(self.path)
        copy.batches = list(self.batches)
        return copy

    @property
    def end(self) -> int:
        """The offset after the last batch; 0 without one."""
        return self.batches[-1].next if self.batches else 0

    @property
    def start(self) -> int:
        """The offset of the first batch; 0 without one."""
        return self.batches[0].base if self.batches else 0

    def follow(self, log: PartitionLog) -> tuple[list[CopiedBatch], list[CopiedBatch]]:
        """Update the copy; returns the batches cut off at the end, and those added there. Batches removed at the start,
        or with the whole log when it restarts beyond its end, are in neither list."""
        batches, end = self.batches, log.log_end_offset
        self.flaws.clear()
        removed: list[CopiedBatch] = []
        while batches and batches[-1].next > end:
            removed.append(batches.pop())
            self._places.pop()
            self._sequenced.pop()
        self._whole = min(self._whole, len(batches))
        segments = log.segments
        start = segments[0].base_offset
        if batches and batches[0].base < start:
            removed_count = bisect_left(batches, (start,))
            del batches[:removed_count], self._places[:removed_count], self._sequenced[:removed_count]
            self._whole = max(0, self._whole - removed_count)
        old_count = len(batches)
        if (batches[-1].next if batches else start) < end:
            at = len(segments) - 1
            while at and segments[at].base_offset > (batches[-1].next if batches else start):
                at -= 1
            position = 0
            if self._places and self._places[-1].segment == segments[at].base_offset:
                position = self._places[-1].end
            for segment in segments[at:]:
                content = segment.file.read(position, segment.size - position)
                self._read(content, segment.base_offset, position, check=True)
                position = 0
        return removed, batches[old_count:]

    def holds(self, batch: CopiedBatch) -> bool:
        """Whether a batch is in this log, or was before its start moved past it."""
        at = bisect_left(self.batches, batch)
        if at < len(self.batches) and self.batches[at] == batch:
            return True
        return bool(self.batches) and batch.next <= self.start

    def end_before(self, epoch: int) -> int:
        """The offset at which the batches of older epochs end."""
        return next((batch.next for batch in reversed(self.batches) if batch.epoch < epoch), self.start)

    def between(self, start: int, end: int) -> list[CopiedBatch]:
        """The batches between the offsets `start` and `end`."""
        index = bisect_left(self.batches, (start,))
        return self.batches[index : bisect_left(self.batches, (end,))]

    def sequenced(self) -> Iterator[tuple[CopiedBatch, BatchSequence]]:
        """The batches of idempotent producers, oldest first, with their producer fields."""
        for batch, sequence in zip(self.batches, self._sequenced, strict=True):
            if sequence is not None:
                yield batch, sequence

    def sequenced_since(self, start: int) -> Iterator[tuple[CopiedBatch, BatchSequence, BatchSequence | None]]:
        """The batches of idempotent producers from the one at index `start` on, with their producer fields and those of
        the producer's previous batch, None without one."""
        for at in range(start, len(self.batches)):
            sequence = self._sequenced[at]
            if sequence is not None:
                earlier = (self._sequenced[place] for place in range(at - 1, -1, -1))
                of_producer = (entry for entry in earlier if entry and entry.producer_id == sequence.producer_id)
                yield self.batches[at], sequence, next(of_producer, None)

    def durable_end(self, disk: SimulatedDisk) -> int:
        """The offset up to which the log certainly survives a power cut: everything before it is durable. Segments that
        were removed at its start do not count, even if the copy still has them."""
        places, start = self._places, 0
        while start < len(places) and not disk.exists(self._file_of(places[start].segment)):
            start = self._behind(start)
        at = max(start, self._whole)
        while at < len(places):
            segment, segment_end = places[at].segment, self._behind(at)
            whole_end = bisect_right(places, (segment, disk.durable_size(self._file_of(segment))), at, segment_end)
            if whole_end < segment_end:
                return self.batches[whole_end - 1].next if whole_end > start else self.start
            if segment_end < len(places):
                self._whole = segment_end
            at = segment_end
        return self.end if at > start else self.start

    def _behind(self, at: int) -> int:
        """The index of the first batch after the segment of batch `at`."""
        return bisect_left(self._places, (self._places[at].segment + 1,), at)

    def _file_of(self, segment: int) -> str:
        return f"{self.path}/{segment:020d}{SUFFIX}"

    def read_from(self, disk: SimulatedDisk) -> None:
        """Load the disk's content: intact, consecutive batches from the first segment on."""
        self.batches.clear()
        self._places.clear()
        self._sequenced.clear()
        self._whole = 0
        names = sorted(name for name in (disk.list(self.path) if disk.exists(self.path) else []) if _is_segment(name))
        end = -1
        for name in names:
            base, file = int(name.removesuffix(SUFFIX)), disk.open(f"{self.path}/{name}")
            if end not in (-1, base):
                return
            if not self._read(file.read(0, file.size()), base, 0, check=False):
                return
            end = max(base, self.end)

    def _read(self, content: bytes, segment: int, position: int, *, check: bool) -> bool:
        """Add the batches of the part of a segment from `position` on; returns whether all of them are whole. With
        `check` a flawed batch with a readable frame is added and noted; else it ends the log."""
        try:
            for header, batch in batches_in(content):
                flaw = flaw_of(header, batch)
                if flaw is not None and not check:
                    return False
                position += header.size
                self._add(header, segment, position)
                if flaw is not None:
                    self.flaws.append((self.batches[-1], flaw))
                elif (voters := voters_in(header, batch)) is not None:
                    self.voters[self.batches[-1]] = voters
        except DamagedBatchError as error:
            if check and self.batches:
                self.flaws.append((self.batches[-1], f"what follows it is not a batch: {error}"))
            return False
        return True

    def _add(self, header: Header, segment: int, end: int) -> None:
        self.batches.append(CopiedBatch(header.base, header.next, header.epoch, header.crc))
        self._places.append(BatchEnd(segment, end))
        self._sequenced.append(BatchSequence.of(header))


def _is_segment(name: str) -> bool:
    return name.endswith(SUFFIX) and name.removesuffix(SUFFIX).isdecimal()
