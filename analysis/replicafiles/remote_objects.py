"""Reads the objects of a remote segment: its records' batches and, beside them, indexes, leader epochs and producers.

Written from the formats' specification and independent of the broker under test. Which objects a segment has depends on
who wrote its metadata (`SegmentObjects`):

    Brownout (docs/tiered.md)          .log .index .epochs .snapshot
    Apache Kafka's LocalTieredStorage  .log .index .timeindex .leader_epoch_checkpoint .snapshot

`.txnindex` of Apache Kafka is optional and is not read. Each reader compares an object with the batches of `.log`, and
returns what is wrong with it as the end of a sentence.
"""

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
from crc32c import crc32c

from analysis.replicafiles import batches
from analysis.replicafiles.checkpoints import read_epochs
from analysis.replicafiles.log import I64, ReplicaFileError
from analysis.replicafiles.remote_metadata import BROWNOUT, BROWNOUT_OBJECTS, KAFKA, DeclaredSegment
from history.kafka.record_batches import CONTROL, HEADER
from history.regular_files import read_bytes

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
SNAPSHOT: Final = ".snapshot"
EPOCHS: Final[Mapping[str, str]] = {BROWNOUT: ".epochs", KAFKA: ".leader_epoch_checkpoint"}
"""The object with the leader epochs, by the encoding of the metadata."""
DEMANDED: Final[Mapping[str, tuple[str, ...]]] = {
    BROWNOUT: BROWNOUT_OBJECTS,
    KAFKA: (LOG, INDEX, TIME_INDEX, EPOCHS[KAFKA], SNAPSHOT),
}
"""The objects that a complete segment has, by the encoding of its metadata."""

T = TypeVar("T")

_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_CRC_FROM: Final = 6
_PRODUCER: Final = struct.Struct(">qhiqiqiq")
_CRC: Final = struct.Struct(">I")
_BLOCKS: Final = struct.Struct(">III")
_BROWNOUT_ENTRY: Final = ">i8"
_BROWNOUT_COLUMNS: Final = 3


class ProducerBatch(NamedTuple):
    """A batch in the state of producers: the producer's id and epoch, the batch's last sequence and last offset, its
    records minus one, and its largest timestamp."""

    producer: int
    epoch: int
    sequence: int
    offset: int
    delta: int
    timestamp: int


@dataclass(frozen=True)
class ProducerStates:
    """A producer snapshot. `batches`: Kafka has the last one of each producer, Brownout each that it remembers.
    `forgotten_to`: the largest id of a producer that may be missing, -1 if none may."""

    batches: tuple[ProducerBatch, ...]
    forgotten_to: int = -1

    def latest(self) -> dict[int, ProducerBatch]:
        """The last batch of each producer."""
        return {batch.producer: batch for batch in sorted(self.batches, key=lambda batch: batch.offset)}


@dataclass(frozen=True)
class SegmentObjects:
    """The objects of a complete segment. `batches`: those of `.log`, a table as of `batches.scan`. `epochs`: entries
    (epoch, start offset); `producers`: the state of producers at the segment's end; None if the object cannot be read.
    `missing`: the suffixes of absent objects; `damaged`, `contradicting`: sentences about objects that cannot be read,
    and that contradict the batches or the metadata."""

    segment: DeclaredSegment
    batches: I64
    epochs: tuple[tuple[int, int], ...] | None = None
    producers: ProducerStates | None = None
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    contradicting: tuple[str, ...] = ()

    def led(self) -> tuple[tuple[int, int], ...]:
        """The leader epochs of the batches, in the form of `epochs`."""
        first = np.flatnonzero(np.diff(self.batches[:, batches.EPOCH], prepend=-1))
        return tuple((int(row[batches.EPOCH]), int(row[batches.BASE])) for row in self.batches[first])

    def written(self) -> dict[int, ProducerBatch]:
        """The last batch of each idempotent producer in the segment, without control batches."""
        batch_of = {}
        for row in self.batches.tolist():
            if row[batches.PRODUCER] >= 0 and not row[batches.ATTRIBUTES] & CONTROL:
                batch_of[row[batches.PRODUCER]] = _of_batch(row)
        return batch_of


def read_objects(segment: DeclaredSegment, objects: Mapping[str, Path]) -> SegmentObjects:
    """The objects of a segment. `objects`: the segment's files in the store, by suffix."""
    demanded = DEMANDED[segment.encoding]
    missing = tuple(suffix for suffix in demanded if suffix not in objects)
    if LOG in missing:
        return SegmentObjects(segment, np.empty((0, 13), np.int64), missing=missing)
    try:
        data = read_bytes(objects[LOG])
    except OSError as error:
        return SegmentObjects(
            segment, np.empty((0, 13), np.int64), missing=missing, damaged=(f"{LOG}: {error.strerror}",)
        )
    table = batches.scan(data, 0, segment.start).table
    reading = _Reading(segment, objects)
    reading.contradicting += _unlike_metadata(segment, len(data), table)
    for path in objects.values():
        if int(path.name.partition("-")[0]) != segment.start:
            reading.contradicting.append(f"{path.name} names another first offset than the metadata, {segment.start}")
    for suffix, (size, digest) in (segment.digests or {}).items():
        reading.compared(suffix, lambda content, size=size, digest=digest: _unlike_digest(content, size, digest))  # type: ignore[misc]
    index = _brownout_index if segment.encoding == BROWNOUT else _kafka_index
    reading.compared(INDEX, lambda content: index(content, table, data, segment))
    if TIME_INDEX in demanded:
        reading.compared(TIME_INDEX, lambda content: _kafka_time_index(content, table, segment))
    epochs = reading.read(EPOCHS[segment.encoding], _epochs)
    producers = reading.read(SNAPSHOT, lambda path: _producers(read_bytes(path)))
    return SegmentObjects(
        segment, table, epochs, producers, missing, tuple(reading.damaged), tuple(reading.contradicting)
    )


class _Reading:
    """Reads some objects of a segment, and collects what is wrong with them."""

    def __init__(self, segment: DeclaredSegment, objects: Mapping[str, Path]) -> None:
        self.segment = segment
        self.objects = objects
        self.damaged: list[str] = []
        self.contradicting: list[str] = []

    def read(self, suffix: str, read: Callable[[Path], T]) -> T | None:
        if suffix not in self.objects:
            return None
        try:
            return read(self.objects[suffix])
        except OSError as error:
            self.damaged.append(f"{suffix}: it cannot be read: {error.strerror}")
        except ReplicaFileError as error:
            self.damaged.append(f"{suffix}: {error}")
        return None

    def compared(self, suffix: str, compare: Callable[[bytes], str]) -> None:
        if difference := self.read(suffix, lambda path: compare(read_bytes(path))):
            self.contradicting.append(f"{suffix} {difference}")


def _unlike_digest(content: bytes, size: int, digest: str) -> str:
    if (len(content), hashlib.sha256(content).hexdigest()) == (size, digest):
        return ""
    return f"has {len(content):,} bytes and another digest than the metadata, which have {size:,} bytes"


def _unlike_metadata(segment: DeclaredSegment, size: int, table: I64) -> Iterator[str]:
    """What the batches of a segment have otherwise than its metadata. R1 compares the offsets, R11 the epochs."""
    if size != segment.size:
        yield f"{LOG} has {size:,} bytes, the metadata {segment.size:,}"
    if not len(table):
        return
    latest = int(table[:, batches.LATEST].max())
    if segment.latest != latest:
        yield f"{LOG} has the largest timestamp {latest}, the metadata {segment.latest}"


def _brownout_index(data: bytes, table: I64, log: bytes, segment: DeclaredSegment) -> str:
    """An index of Brownout: entries of an offset, a position, and the largest timestamp before it; the last entry is
    the end. Then the CRC-32C of each block of `.log`, and the numbers of entries, bytes of a block and blocks; then the
    CRC-32C of all that. Raises ReplicaFileError."""
    width = _BROWNOUT_COLUMNS * 8
    if len(data) < _BLOCKS.size + _CRC.size or crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise ReplicaFileError(f"{len(data)} bytes are not an index, or do not match their CRC-32C")
    count, block, number = _BLOCKS.unpack(data[-_BLOCKS.size - _CRC.size : -_CRC.size])
    if not count or not block or len(data) != width * count + _CRC.size * number + _BLOCKS.size + _CRC.size:
        raise ReplicaFileError(f"{len(data)} bytes are not an index of {count} entries and {number} blocks")
    body, blocks = data[: width * count], data[width * count : -_BLOCKS.size - _CRC.size]
    due = [crc32c(log[at : at + block]) for at in range(0, len(log), block)]
    if np.frombuffer(blocks, ">u4").tolist() != due:
        return f"has other checksums than the blocks of {LOG}"
    entries = np.frombuffer(body, _BROWNOUT_ENTRY).reshape(-1, _BROWNOUT_COLUMNS)
    latest_before = np.concatenate(([-1], np.maximum.accumulate(table[:, batches.LATEST])))
    offsets = np.concatenate((table[:, batches.BASE], [segment.end + 1]))
    positions = np.concatenate((_places(table), [len(log)]))
    if entries[0, :2].tolist() != [segment.start, 0]:
        return f"starts with {entries[0].tolist()}, not with the segment's start"
    if entries[-1].tolist() != [segment.end + 1, len(log), latest_before[-1]]:
        return f"ends with {entries[-1].tolist()}, not with the segment's end"
    entry_at = {row[0]: row for row in np.column_stack((offsets, positions, latest_before)).tolist()}
    return _first_unlike(entries.tolist(), lambda entry: entry_at.get(entry[0]) == entry)


def _kafka_index(data: bytes, table: I64, log: bytes, segment: DeclaredSegment) -> str:
    """An offset index of Apache Kafka: entries of 4 bytes each, an offset relative to the segment's start and the
    position of a batch that starts at or before it. Raises ReplicaFileError."""
    if len(data) % 8:
        raise ReplicaFileError(f"{len(data)} bytes are not an offset index")
    entries = np.frombuffer(data, ">i4").reshape(-1, 2).astype(np.int64)
    if len(table) and len(log) >= _WITH_ENTRIES and not len(entries):
        return "has no entry"
    first = dict(zip(_places(table).tolist(), table[:, batches.BASE].tolist(), strict=True))

    def fits(entry: Sequence[int]) -> bool:
        offset = segment.start + entry[0]
        return entry[1] in first and first[entry[1]] <= offset <= segment.end

    return _first_unlike(entries.tolist(), fits)


_WITH_ENTRIES: Final = 1 << 20
"""Bytes of a segment that is never without an entry: the interval of entries is 4 KiB by default."""


def _kafka_time_index(data: bytes, table: I64, segment: DeclaredSegment) -> str:
    """A time index of Apache Kafka: entries of a timestamp (8 bytes) and the relative offset (4 bytes) of the batch
    that has it; a closed segment's last entry is its largest timestamp. Raises ReplicaFileError."""
    if len(data) % 12:
        raise ReplicaFileError(f"{len(data)} bytes are not a time index")
    entries = np.frombuffer(data, np.dtype([("time", ">i8"), ("offset", ">i4")])).tolist()
    if len(table) and (not entries or entries[-1][0] != int(table[:, batches.LATEST].max())):
        return "does not end with the largest timestamp"

    def fits(entry: Sequence[int]) -> bool:
        at = int(np.searchsorted(table[:, batches.NEXT], segment.start + entry[1], side="right"))
        return at < len(table) and int(table[at, batches.LATEST]) == entry[0]

    return _first_unlike(entries, fits)


def _first_unlike(entries: Sequence[Sequence[int]], fits: Callable[[Sequence[int]], bool]) -> str:
    """The first entry of an index that the batches contradict, or that does not rise; empty without one."""
    previous: Sequence[int] = ()
    for number, entry in enumerate(entries):
        if not fits(entry):
            return f"has the entry {list(entry)}, which is of no batch of the segment"
        if number and not (previous[0] < entry[0] and previous[1] < entry[1]):
            return f"has the entry {list(entry)} after {list(previous)}"
        previous = entry
    return ""


def _places(table: I64) -> I64:
    return np.asarray(table[:, batches.RECORDS_AT] - HEADER.size)


def _epochs(path: Path) -> tuple[tuple[int, int], ...]:
    entries = read_epochs(path)
    if entries is None:
        raise ReplicaFileError("it is gone")
    return entries


def _producers(data: bytes) -> ProducerStates:
    """A producer snapshot in Kafka's format. Brownout's last entry has no batch and no epoch, and the id up to which
    producers may be forgotten. Raises ReplicaFileError."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise ReplicaFileError(f"{len(data)} bytes are not a producer snapshot")
    version, checksum, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION or len(data) != _SNAPSHOT_HEAD.size + count * _PRODUCER.size:
        raise ReplicaFileError(f"{len(data)} bytes are not a producer snapshot of {count} entries")
    if crc32c(data[_SNAPSHOT_CRC_FROM:]) != checksum:
        raise ReplicaFileError("the producer snapshot does not match its CRC-32C")
    entries = [ProducerBatch(*entry[:6]) for entry in _PRODUCER.iter_unpack(data[_SNAPSHOT_HEAD.size :])]
    forgotten = [entry.producer for entry in entries if entry.offset < 0 and entry.epoch < 0]
    return ProducerStates(tuple(entry for entry in entries if entry.offset >= 0), max(forgotten, default=-1))


def _of_batch(row: Sequence[int]) -> ProducerBatch:
    delta = row[batches.NEXT] - row[batches.BASE] - 1
    sequence = (row[batches.SEQUENCE] + delta) % (1 << 31)
    return ProducerBatch(
        row[batches.PRODUCER], row[batches.PRODUCER_EPOCH], sequence, row[batches.NEXT] - 1, delta, row[batches.LATEST]
    )
