"""Reads the committed offsets of consumer groups from the replicas of `__consumer_offsets`.

Written from the format's specification and independent of the broker under test. A key is a version (two bytes: 0 or 1
for an offset), the group, the topic (each two bytes of length and UTF-8) and the partition (four bytes). A value is a
version and, in all versions, the committed offset (eight bytes) first. A null value removes the offset. Keys of other
versions are groups, and are skipped.

The topic is compacted: a record may be missing if a later one has its key. `removed` are the offsets without a record.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from analysis.replicafiles import batches
from analysis.replicafiles.checkpoints import HIGH_WATERMARKS, read_high_watermarks
from analysis.replicafiles.keyed_records import KeyedRecord, keyed_records
from analysis.replicafiles.log import I64, ReplicaFileError
from history.kafka.record_batches import CONTROL, TRANSACTIONAL
from history.record.offset_record import NO_OFFSET
from history.regular_files import read_bytes

TOPIC: Final = "__consumer_offsets"
_DIRECTORY: Final = re.compile(rf"{TOPIC}-(0|[1-9][0-9]{{0,8}})")
_SEGMENT: Final = re.compile(r"[0-9]{20}")
_OFFSET_KEYS: Final = (0, 1)
_OFFSET_VALUES: Final = range(5)


class LoggedCommit(NamedTuple):
    """A record of a committed offset. `at`: its own offset in the offsets log; `offset`: the committed one, NO_OFFSET
    if the record removes it."""

    at: int
    group: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class OffsetsLog:
    """One replica of a partition of the offsets topic. `epoch`: of its last batch, -1 without one. `high_watermark`: as
    last written to disk, -1 without one. `removed`: ranges of offsets (first, after the last) without a record.
    `problem`: why it could not be read to its end, as the end of a sentence; empty if it was."""

    node: str
    number: int
    start: int = 0
    end: int = 0
    epoch: int = -1
    high_watermark: int = -1
    commits: tuple[LoggedCommit, ...] = ()
    removed: tuple[tuple[int, int], ...] = ()
    problem: str = ""


def read_offsets_logs(places: Mapping[str, Path]) -> list[OffsetsLog]:
    """All replicas of the offsets topic in the nodes' collected data directories, by node."""
    return [_read(node, data, int(name[1]), data / name[0]) for node, data in places.items() for name in _names(data)]


def _names(data: Path) -> list[re.Match[str]]:
    names = sorted(path.name for path in data.iterdir()) if data.is_dir() else []
    return [match for name in names if (match := _DIRECTORY.fullmatch(name))]


def _read(node: str, data: Path, number: int, directory: Path) -> OffsetsLog:
    try:
        marks = read_high_watermarks(data / HIGH_WATERMARKS) or {}
        return _log(node, number, directory, marks.get((TOPIC, number), -1))
    except ReplicaFileError as error:
        return OffsetsLog(node, number, problem=str(error))
    except OSError as error:
        return OffsetsLog(node, number, problem=f"it cannot be read: {error.strerror}")


def _log(node: str, number: int, directory: Path, high_watermark: int) -> OffsetsLog:
    """A replica from its segments. Raises ReplicaFileError and OSError."""
    paths = sorted(path for path in directory.iterdir() if path.suffix == ".log")
    if not paths or not all(_SEGMENT.fullmatch(path.stem) for path in paths):
        raise ReplicaFileError("it has no segments, or files that are not named as segments")
    start = end = int(paths[0].stem)
    epoch = -1
    commits: list[LoggedCommit] = []
    present: list[I64] = [np.empty(0, np.int64)]
    for path in paths:
        if int(path.stem) < end:
            raise ReplicaFileError(f"{path.name} starts before the end of the segment before it")
        content = read_bytes(path)
        scanned = batches.scan(content, 0, int(path.stem), compacted=True)
        if scanned.stop is not None or scanned.position < len(content):
            raise ReplicaFileError(f"{path.name}: {scanned.stop.why if scanned.stop else 'an older message format'}")
        records = list(keyed_records(content, scanned.table, transactional=False))
        commits += _commits(records)
        present += [np.array([record.offset for record in records], np.int64), _others(scanned.table)]
        end = scanned.expected
        epoch = int(scanned.table[-1, batches.EPOCH]) if len(scanned.table) else epoch
    removed = batches.missing(np.sort(np.concatenate(present)), start, end)
    deleted = [(0, start)] if start else []
    return OffsetsLog(node, number, start, end, epoch, high_watermark, tuple(commits), (*deleted, *removed))


def _others(table: I64) -> I64:
    """The offsets of batches whose records are not read: control records, and records of transactions."""
    unread = table[(table[:, batches.ATTRIBUTES] & (CONTROL | TRANSACTIONAL)) != 0]
    ranges = [np.arange(batch[batches.BASE], batch[batches.NEXT]) for batch in unread]
    return np.concatenate([np.empty(0, np.int64), *ranges])


def _commits(records: list[KeyedRecord]) -> Iterator[LoggedCommit]:
    """The commits among records. Raises ReplicaFileError for a malformed record with a commit's key."""
    for record in records:
        try:
            key = _key(record.key or b"")
            if key is not None:
                yield LoggedCommit(record.offset, *key, _value(record.value))
        except (struct.error, UnicodeDecodeError, ValueError) as error:
            raise ReplicaFileError(f"the record at {record.offset} is not a committed offset: {error}") from error


def _key(key: bytes) -> tuple[str, str, int] | None:
    """Group, topic and partition; None for the key of something else."""
    (version,) = struct.unpack_from(">h", key)
    if version not in _OFFSET_KEYS:
        return None
    group, at = _text(key, 2)
    topic, at = _text(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    if at + 4 != len(key) or partition < 0:
        raise ValueError("its key has another size")
    return group, topic, partition


def _value(value: bytes | None) -> int:
    if value is None:
        return NO_OFFSET
    version, offset = struct.unpack_from(">hq", value)
    if version not in _OFFSET_VALUES or offset < 0:
        raise ValueError(f"version {version}, offset {offset}")
    return int(offset)


def _text(data: bytes, at: int) -> tuple[str, int]:
    """A text and the position after it."""
    (size,) = struct.unpack_from(">h", data, at)
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise ValueError("its key ends within a text")
    return data[at + 2 : end].decode(), end
