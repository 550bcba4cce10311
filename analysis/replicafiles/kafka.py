"""Kafka's replicas: log segments of message formats 0, 1 and 2, leader epochs, high watermarks.

Written from the formats' specification and independent of the broker under test, whose files it judges. A log ends
where its bytes stop being intact messages: a torn tail, a run of zeros (what a file system may leave after a power cut)
or a checksum that does not match. What lies behind is counted, never interpreted. A message format that is not known is
no damage: the log is then `unread` from there on. A segment may change its format in the middle.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analysis.replicafiles import batches, messages
from analysis.replicafiles.log import Columns, ReplicaFileError, ReplicaLog, joined

Key = tuple[str, int]

_FRAME = struct.Struct(">qi4sB")  # what all formats begin with: offset, size, four bytes, magic
_SMALLEST_SIZE = 5  # counts at least the four bytes and the magic


def partitions(data: Path) -> list[Key]:
    """The partitions of which a node's collected data directory holds a replica; internal topics are left out."""
    found = []
    for directory in data.iterdir() if data.is_dir() else ():
        name = re.fullmatch(r"(.+)-(\d+)", directory.name)
        if name is not None and not name[1].startswith("__") and directory.is_dir():
            found.append((name[1], int(name[2])))
    return sorted(found)


def read_node(node: str, data: Path | str) -> list[ReplicaLog]:
    """All replicas in a node's collected data directory, by topic and partition; internal topics are left out.

    Raises ReplicaFileError when a checkpoint in it is not one.
    """
    return [read_partition(node, key, Path(data)) for key in partitions(Path(data))]


def read_partition(node: str, key: Key, data: Path) -> ReplicaLog:
    """A node's replica of one partition. Raises ReplicaFileError when a checkpoint is not one."""
    topic, partition = key
    marks = read_high_watermarks(data / "replication-offset-checkpoint")
    return read_replica(node, topic, partition, data / f"{topic}-{partition}", high_watermark=marks.get(key, -1))


def read_replica(
    node: str, topic: str, partition: int, directory: Path | str, *, high_watermark: int = -1
) -> ReplicaLog:
    """One replica from its directory. Raises ReplicaFileError when its epoch file is damaged."""
    path = Path(directory)
    segments = sorted(path.glob("[0-9]*.log"))
    start = int(segments[0].stem) if segments else 0
    content, damage, unread = _Content(start), "", ""
    for number, segment in enumerate(segments):
        if int(segment.stem) != content.expected:
            damage = f"{segment.name} begins at its name's offset, but the log before it ends at {content.expected}"
            break
        damage, unread = content.read(segment.read_bytes())
        if damage or unread:
            behind = sum(each.stat().st_size for each in segments[number + 1 :])
            later = f"; {behind} bytes of later segments" if behind else ""
            damage = damage and f"{segment.name}: {damage}{later}"
            unread = unread and f"{segment.name}: {unread}{later}"
            break
    records = joined(content.pieces)
    return ReplicaLog(
        node,
        topic,
        partition,
        start,
        content.expected,
        *records,
        epochs=read_epochs(path / "leader-epoch-checkpoint"),
        high_watermark=high_watermark,
        damage=damage,
        unread=unread,
        opaque=tuple(content.opaque),
        formats=tuple(sorted(content.formats)),
    )


@dataclass
class _Content:
    """What a log's segments hold, read one after the other. `expected`: the offset that is due next."""

    expected: int
    pieces: list[Columns] = field(default_factory=list)
    opaque: list[tuple[int, int]] = field(default_factory=list)
    formats: set[int] = field(default_factory=set)

    def read(self, data: bytes) -> tuple[str, str]:
        """Read one segment to its end; else why its bytes stop being messages, and why they could not be read."""
        position, damage = 0, ""
        while position < len(data) and not damage:
            if len(data) - position < _FRAME.size:
                return f"{len(data) - position} bytes of a torn batch at {position}", ""
            offset, size, _, magic = _FRAME.unpack_from(data, position)
            if magic == batches.MAGIC:
                position, damage = self._batches(data, position)
            elif magic in messages.MAGICS:
                position, damage = self._messages(data, position)
            elif offset >= 0 and size >= _SMALLEST_SIZE:
                return "", f"message format {magic} at {position} is not known"
            else:
                return f"{len(data) - position} bytes of no batch at {position}", ""
        return damage, ""

    def _batches(self, data: bytes, position: int) -> tuple[int, str]:
        table, position, self.expected, damage = batches.scan(data, position, self.expected)
        if len(table):
            self.formats.add(batches.MAGIC)
            self.pieces.append(batches.records_of(data, table))
            self.opaque += batches.opaque_ranges(table)
        return position, damage

    def _messages(self, data: bytes, position: int) -> tuple[int, str]:
        found = messages.scan(data, position, self.expected)
        self.expected = found.expected
        self.formats |= found.formats
        self.pieces.append(found.records)
        self.opaque += found.opaque
        return found.position, found.damage


def read_epochs(path: Path) -> tuple[tuple[int, int], ...]:
    """Entries (epoch, start offset) of a `leader-epoch-checkpoint`; none when there is no such file."""
    return tuple((int(epoch), int(start)) for epoch, start in _checkpoint(path, 2))


def read_high_watermarks(path: Path) -> dict[tuple[str, int], int]:
    """The high watermarks of a `replication-offset-checkpoint` by partition; empty when there is no such file."""
    return {(topic, int(partition)): int(offset) for topic, partition, offset in _checkpoint(path, 3)}


def _checkpoint(path: Path, columns: int) -> Iterator[list[str]]:
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    try:
        if int(lines[0]) != 0 or int(lines[1]) != len(lines) - 2:
            raise ValueError(f"version {lines[0]}, {lines[1]} entries announced, {len(lines) - 2} found")
        for line in lines[2:]:
            words = line.split(" ")
            if len(words) != columns:
                raise ValueError(f"entry {line!r} has not {columns} columns")
            [int(word) for word in words[-2:]]
            yield words
    except (ValueError, IndexError) as error:
        raise ReplicaFileError(f"{path}: not a checkpoint file: {error}") from error
