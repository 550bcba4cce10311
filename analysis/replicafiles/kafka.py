"""Kafka's replicas: log segments of message formats 0, 1 and 2, leader epochs, high watermarks.

Written from the formats' specification and independent of the broker under test, whose files it reads. A log is read up
to the first bytes that are not an intact message: a torn tail, a run of zeros (which a file system may leave after a
power cut) or a wrong checksum. The bytes after that are counted, never interpreted. An unknown message format is not
damage: the log is `unread` from there on. A segment may change its format in the middle.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from analysis.replicafiles import batches, messages
from analysis.replicafiles.checkpoints import (
    HIGH_WATERMARKS,
    read_epochs,
    read_high_watermarks,
    read_properties,
    read_remote_start,
)
from analysis.replicafiles.log import (
    I64,
    NO_BREAKS,
    NO_MARK,
    EndOfLog,
    LogColumns,
    ReplicaFileError,
    ReplicaLog,
    SequenceBreaks,
    joined,
    no_records,
    no_sequences,
)
from analysis.replicafiles.remote_metadata import KAFKA, read_metadata
from analysis.replicafiles.remote_segments import SegmentContent, StoredLog, cover, objects_in
from analysis.replicafiles.sequences import fold
from history.kafka.record_batches import MAGIC
from history.regular_files import read_bytes

Key = tuple[str, int]
T = TypeVar("T")

LOG_STARTS: Final = "log-start-offset-checkpoint"
EPOCHS: Final = "leader-epoch-checkpoint"
REMOTE_START: Final = "remote-log-start"

_FRAME = struct.Struct(">qi4sB")  # the start of all formats: offset, size, four bytes, magic
_SMALLEST_SIZE = 5  # counts at least the four bytes and the magic
_DIRECTORY = re.compile(r"(.+)-(0|[1-9][0-9]*)")
_SEGMENT = re.compile(r"[0-9]{20}")
_INTERNAL = "__"
_METADATA = "__cluster_metadata"
_RETENTION = re.compile(r"(log\.)?retention\.(ms|minutes|hours|bytes)")
_STORES = ("rsm.config.url", "rsm.config.dir")
_MARK_INTERVAL = "replica.high.watermark.checkpoint.interval.ms"
_DEFAULT_MARK_INTERVAL_S = 5.0


def partitions(data: Path) -> list[Key]:
    """The partitions that a node's collected data directory holds a replica of, without internal topics."""
    return [key for key in all_partitions(data) if not is_internal(key[0])]


def all_partitions(data: Path) -> list[Key]:
    """Like `partitions`, with internal topics, without the metadata log."""
    keys = []
    for directory in data.iterdir() if data.is_dir() else ():
        name = _DIRECTORY.fullmatch(directory.name)
        if name is not None and name[1] != _METADATA and directory.is_dir():
            keys.append((name[1], int(name[2])))
    return sorted(keys)


def is_internal(topic: str) -> bool:
    """Whether brokers created the topic for their own records."""
    return topic.startswith(_INTERNAL)


def may_delete(settings: Mapping[str, str]) -> bool:
    """Whether a broker with these settings may delete the oldest segments of a log during a run. Local retention
    deletes only files whose content is in remote storage: the log keeps its start, unless the store is elsewhere."""
    return stores_elsewhere(settings) or any(
        _RETENTION.fullmatch(key) and value.strip() != "-1" for key, value in settings.items()
    )


def stores_elsewhere(settings: Mapping[str, str]) -> bool:
    """Whether remote segments of a broker with these settings are in a store of the user's, such as a bucket. Without
    such a setting they are in the directory that the nodes of a run share, which is a part of the run."""
    return not settings.keys().isdisjoint(_STORES)


def forgets_producers(settings: Mapping[str, str]) -> bool:
    """Whether a broker with these settings may forget a producer during a run. Its default is a day."""
    return not settings.keys().isdisjoint(("producer.id.expiration.ms", "transactional.id.expiration.ms"))


def mark_interval_s(settings: Mapping[str, str]) -> float:
    """How often a broker with these settings writes its high watermarks, in seconds; Kafka's default if the settings
    have no valid number."""
    interval = settings.get(_MARK_INTERVAL, "").strip()
    return int(interval) / 1000 if interval.isascii() and interval.isdigit() else _DEFAULT_MARK_INTERVAL_S


def compacts(settings: Mapping[str, str]) -> bool:
    """Whether a broker with these settings may remove records that later ones with the same key replace."""
    return any("compact" in settings.get(key, "") for key in ("log.cleanup.policy", "cleanup.policy"))


def preallocates(settings: Mapping[str, str]) -> bool:
    """Whether a broker with these settings extends files with zeros beyond their content."""
    return any(settings.get(key, "").strip().lower() == "true" for key in ("log.preallocate", "preallocate"))


def read_partition(
    node: str, key: Key, data: Path, *, compacted: bool = False, remote: StoredLog | None = None
) -> ReplicaLog:
    """A node's replica of one partition; `compacted`: later records may have replaced earlier ones. `remote`: the
    partition's remote segments, None without any."""
    topic, partition = key
    directory, marks = data / f"{topic}-{partition}", data / HIGH_WATERMARKS
    return read_replica(node, topic, partition, directory, marks=marks, compacted=compacted, remote=remote)


def read_remote(nodes: Mapping[str, Path], store: Path, key: Key) -> StoredLog | None:
    """The remote segments of a partition, by the metadata on these nodes (their collected data directories) and the
    objects below `store`; None if it has none."""
    segments = read_metadata(nodes).of(*key)
    return StoredLog(segments, objects_in(store), read_object) if segments else None


def read_object(path: Path, start: int) -> SegmentContent:
    """The records of a remote segment's object."""
    content = SegmentContents(start=start, expected=start)
    content.read_file(path, start)
    stop = content.stop
    return SegmentContent(
        joined(content.pieces),
        start,
        content.expected,
        tuple(content.opaque),
        tuple(content.gaps),
        frozenset(content.formats),
        "" if stop is None else stop.why,
    )


def read_replica(
    node: str,
    topic: str,
    partition: int,
    directory: Path,
    *,
    marks: Path | None = None,
    compacted: bool = False,
    remote: StoredLog | None = None,
) -> ReplicaLog:
    """One replica from its directory; `marks`: the file of its node's high watermarks."""
    content = SegmentContents(compacted=compacted)
    segments = segments_in(directory)
    if segments:
        content = read_segments(segments, 0, len(segments), compacted=compacted)
    log, _ = _assembled(node, topic, partition, directory, [content], marks=marks, remote=remote)
    remote_pieces = [] if remote is None else [remote.records(*stretch) for stretch in log.prefix]
    records = joined([*remote_pieces, *content.pieces])
    return log.holding(records.take(records.offset >= log.start))


def segments_in(directory: Path) -> list[Path]:
    """The segment files of a replica's directory, in the order of their offsets."""
    files = directory.glob("*.log")
    return sorted(path for path in files if _SEGMENT.fullmatch(path.stem) and int(path.stem) < batches.LAST_OFFSET)


def read_segments(segments: Sequence[Path], first: int, end: int, *, compacted: bool = False) -> SegmentContents:
    """The content of consecutive segments of a log, up to where they cannot be read further. `segments`: those of the
    whole log; `first`, `end`: the numbers of the first one that is read, and of the one after the last."""
    content = SegmentContents(compacted=compacted, segment=segments[first].name)
    content.base = content.expected = int(segments[first].stem)
    for number in range(first, end):
        content.read(segments[number], later=segments[number + 1 :])
        if content.stop is not None:
            break
    return content


def assemble(
    node: str, key: Key, data: Path, parts: Sequence[SegmentContents], *, remote: StoredLog | None = None
) -> tuple[ReplicaLog, int]:
    """One replica of a node's data directory without its records, from the contents of its consecutive segments, and
    how many of these parts it consists of. `ReplicaLog.prefix` says which remote segments hold the records before its
    own files."""
    topic, partition = key
    directory, marks = data / f"{topic}-{partition}", data / HIGH_WATERMARKS
    return _assembled(node, topic, partition, directory, parts, marks=marks, remote=remote)


def segments_of(key: Key, data: Path) -> list[Path]:
    """The segment files of a partition in a node's data directory, in the order of their offsets."""
    return segments_in(data / f"{key[0]}-{key[1]}")


def log_start(key: Key, data: Path, first: int, remote: StoredLog | None) -> int:
    """Where the log of a replica starts; its first segment, with the offset `first`, may have records below. `remote`:
    the partition's remote segments. Raises ReplicaFileError.

        log                             start
        not in remote storage           its first segment, or the offset in `log-start-offset-checkpoint` if that is
                                        higher
        in remote storage, Kafka        the offset in `log-start-offset-checkpoint`: Apache Kafka stores the start of
                                        each such log there, and a broker starts the log there
        in remote storage, Brownout     as one that is not, unless the log's directory has the file `remote-log-start`
                                        with an offset below the first segment: then there, or at the higher offset in
                                        `log-start-offset-checkpoint`

    Also raises it if what may be a start below the first segment is missing: an entry of Kafka (earlier versions store
    none), or the file of Brownout if the epoch file starts below (a log forgets the epochs below its start).
    """
    starts = read_high_watermarks(data / LOG_STARTS) or {}
    if remote is None:
        return max(first, starts.get(key, 0))
    if any(segment.encoding == KAFKA for segment in remote.segments):
        if first and key not in starts:
            raise ReplicaFileError(f"{LOG_STARTS}: it has no entry for a log whose first segment starts at {first}")
        return starts.get(key, 0)
    if _remote_start(key, data, first) is not None:
        return stated_start(key, data, first)
    epochs = read_epochs(data / f"{key[0]}-{key[1]}" / EPOCHS)
    if epochs and epochs[0][1] < first:
        raise ReplicaFileError(f"{REMOTE_START}: it is missing, and {EPOCHS} starts at {epochs[0][1]}, below {first}")
    return max(first, starts.get(key, 0))


def stated_start(key: Key, data: Path, first: int) -> int:
    """The lowest offset at which a log in remote storage may start by its node's files, 0 if they state none. `first`:
    the offset of its first segment. Raises ReplicaFileError.

    Runs of earlier versions lack the file `remote-log-start`. So what is below the first segment is due from there on,
    and what neither a file nor a remote segment has is `ReplicaLog.absent`.
    """
    stored = (read_high_watermarks(data / LOG_STARTS) or {}).get(key, 0)
    return max(stored, _remote_start(key, data, first) or 0)


def _remote_start(key: Key, data: Path, first: int) -> int | None:
    """The offset in `remote-log-start`. One that is not below the first segment has no meaning."""
    offset = read_remote_start(data / f"{key[0]}-{key[1]}" / REMOTE_START)
    return offset if offset is not None and offset < first else None


def _assembled(
    node: str,
    topic: str,
    partition: int,
    directory: Path,
    parts: Sequence[SegmentContents],
    *,
    marks: Path | None,
    remote: StoredLog | None,
) -> tuple[ReplicaLog, int]:
    content = SegmentContents()
    used_parts = sum([content.add(part, segments_in(directory)) for part in parts])
    if content.stop is None:
        content.stop = _unreadable(directory)
    epochs = content.noting("has a damaged", lambda: read_epochs(directory / EPOCHS))
    own_start, key = -1 if remote is None else content.start, (topic, partition)
    start = content.noting("has a damaged", lambda: stated_start(key, directory.parent, content.start)) or 0
    if remote is not None:
        content.prepend(remote, epochs or (), start)
    content.begin_at(start)
    if MAGIC in content.formats and not (directory / EPOCHS).exists():
        content.doubts.append(f"has no {EPOCHS}")
    marks_read = content.noting("has a damaged", lambda: None if marks is None else read_high_watermarks(marks))
    high_watermark = (marks_read or {}).get((topic, partition), -1)
    if marks is not None and high_watermark < 0:
        content.doubts.append(f"{NO_MARK} in {HIGH_WATERMARKS}")
    metadata = content.noting("has a damaged", lambda: read_properties(directory / "partition.metadata", ":"))
    stop = content.stop
    log = ReplicaLog(
        node,
        topic,
        partition,
        content.start,
        content.expected,
        *no_records(),
        epochs=epochs,
        high_watermark=high_watermark,
        damage=stop.why if stop and stop.kind == "damage" else "",
        unread=stop.why if stop and stop.kind == "unread" else "",
        zeros=content.zeros,
        opaque=tuple(content.opaque),
        gaps=tuple(content.gaps),
        absent=tuple(content.absent),
        formats=tuple(sorted(content.formats)),
        topic_id=(metadata or {}).get("topic_id", ""),
        sequences=np.concatenate(content.sequences),
        breaks=content.breaks,
        doubts=tuple(content.doubts),
        own_start=own_start,
        prefix=tuple(content.prefix),
    )
    return log, used_parts


def _unreadable(directory: Path) -> EndOfLog | None:
    """Why a directory whose segments were read to their ends is not a whole log."""
    segments = segments_in(directory)
    stop = None if segments else EndOfLog("unread", "the log has no segments")
    for path in sorted(directory.glob("*.log")):
        if path not in segments:
            stop = EndOfLog("unread", f"{path.name} is not named as a segment")
    return stop


@dataclass
class SegmentContents:
    """The content of consecutive segments of a log, read in sequence. `base`: the offset in the name of the first one,
    `segment`; `expected`: the next offset. `confirmed`: the content of the first one starts at that offset. `prefix`,
    `breaks`: as of `ReplicaLog`."""

    start: int = 0
    expected: int = 0
    pieces: list[LogColumns] = field(default_factory=list)
    sequences: list[I64] = field(default_factory=lambda: [no_sequences()])
    opaque: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    absent: list[tuple[int, int]] = field(default_factory=list)
    formats: set[int] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)
    stop: EndOfLog | None = None
    zeros: bool = False
    compacted: bool = False
    segment: str = ""
    base: int = 0
    confirmed: bool = False
    prefix: list[tuple[str, int, int]] = field(default_factory=list)
    breaks: SequenceBreaks = NO_BREAKS

    def add(self, part: SegmentContents, segments: Sequence[Path]) -> bool:
        """Add the content of the segments that follow, unless reading has stopped; returns whether it was added.
        `segments`: those of the log."""
        if self.stop is not None:
            return False
        due = self.expected
        if self.confirmed and part.base < due:
            unread_bytes = sum(path.stat().st_size for path in segments if int(path.stem) > part.base)
            self.stop = EndOfLog("damage", f"{part.segment}: {_starts_early(part.base, due)}{_unread(unread_bytes)}")
            return False
        if part.confirmed:
            if not self.confirmed:
                self.start = part.start
            elif part.base > due:
                self.absent.append((due, part.base))
            self.expected, self.confirmed = part.expected, True
        for name in ("pieces", "sequences", "opaque", "gaps", "absent", "doubts"):
            getattr(self, name).extend(getattr(part, name))
        self.formats |= part.formats
        self.stop, self.zeros = part.stop, part.zeros
        self.breaks = self.breaks.joined(part.breaks)
        return True

    def folded(self) -> SegmentContents:
        """The same without records, and with the batches of each producer joined where they continue."""
        batches_of_producers = np.concatenate(self.sequences)
        runs, breaks = fold(batches_of_producers, (*self.gaps, *self.absent))
        return replace(self, pieces=[], sequences=[runs], breaks=breaks)

    def noting(self, doubt: str, read: Callable[[], T]) -> T | None:
        """The result of `read`; None, and a doubt, if the file is not what its name says."""
        try:
            return read()
        except ReplicaFileError as error:
            self.doubts.append(f"{doubt} {error}")
            return None

    def prepend(self, remote: StoredLog, epochs: Sequence[tuple[int, int]], start: int) -> None:
        """Add what remote segments hold from `start`, the start of the whole log, up to the replica's own files."""
        if start >= self.start:
            return
        covered = cover(remote, epochs, start, self.start)
        self.prefix, self.start = covered.spans, start
        self.opaque, self.gaps = [*covered.opaque, *self.opaque], [*covered.gaps, *self.gaps]
        self.absent = [*covered.absent, *self.absent]
        self.formats |= covered.formats

    def begin_at(self, start: int) -> None:
        """Leave out what is below the start that the replica has stored: these records are deleted."""
        if self.stop is None and start > self.expected:
            self.doubts.append(f"starts at {start} by {LOG_STARTS}, and ends at {self.expected}")
        elif self.start < start <= self.expected:
            self.start = start
            for name in ("opaque", "gaps", "absent"):
                setattr(self, name, [(max(first, start), end) for first, end in getattr(self, name) if end > start])

    def read_file(self, path: Path, base: int) -> None:
        """Read one file whose first offset is `base`; `stop` says why it was not read to its end."""
        self.expected = base
        try:
            self._read(read_bytes(path), is_last=True)
        except OSError as error:
            self.stop = EndOfLog("unread", f"it cannot be read: {error.strerror}")

    def read(self, segment: Path, later: Sequence[Path]) -> None:
        """Read one segment to its end. `later`: the segments after it, which stay unread after a stop."""
        base, due = int(segment.stem), self.expected
        try:
            if base < due:
                self.stop = EndOfLog("damage", _starts_early(base, due))
            else:
                self.expected = base
                self._read(read_bytes(segment), is_last=not later)
        except OSError as error:
            self.stop = EndOfLog("unread", f"it cannot be read: {error.strerror}")
        if self.stop is not None:
            unread_bytes = sum(path.stat().st_size for path in later)
            self.stop = EndOfLog(self.stop.kind, f"{segment.name}: {self.stop.why}{_unread(unread_bytes)}")
        if self.stop is not None and self.expected == base:
            self.expected = due  # the segment's name is not confirmed by any content
        elif not self.confirmed:
            self.start, self.confirmed = base, True
        elif base > due:
            self.absent.append((due, base))

    def _read(self, data: bytes, *, is_last: bool) -> None:
        position = 0
        while position < len(data) and self.stop is None:
            if len(data) - position < _FRAME.size:
                self.stop = EndOfLog("damage", f"{len(data) - position} bytes of a torn batch at {position}")
                break
            offset, size, _, magic = _FRAME.unpack_from(data, position)
            if magic == MAGIC:
                position = self._batches(data, position)
            elif magic in messages.MAGICS:
                position = self._messages(data, position)
            elif offset >= 0 and size >= _SMALLEST_SIZE:
                self.stop = EndOfLog("unread", f"message format {magic} at {position} is not known")
            else:
                self.stop = EndOfLog("damage", f"{len(data) - position} bytes of no batch at {position}")
        self.zeros = self.stop is not None and is_last and not any(data[position:])

    def _batches(self, data: bytes, position: int) -> int:
        scanned = batches.scan(data, position, self.expected, compacted=self.compacted)
        table, self.stop = scanned.table, scanned.stop
        records, intact, defect, odd, opaque = batches.records_of(data, table, compacted=self.compacted)
        self.doubts += [odd] if odd else []
        position, end = scanned.position, scanned.expected
        if defect:
            self.stop = EndOfLog("damage", defect)
            position, end = batches.place_of(table[intact]), int(table[intact, batches.BASE])
            table = table[:intact]
        if len(table):
            self.formats.add(MAGIC)
        self.pieces.append(records)
        self.sequences.append(batches.sequences(table))
        self.opaque += opaque
        if self.compacted:
            self.gaps += batches.missing(records.offset, self.expected, end)
        else:
            self.gaps += batches.skipped(table, self.expected)
        self.expected = end
        return position

    def _messages(self, data: bytes, position: int) -> int:
        scanned = messages.scan(data, position, self.expected)
        self.expected = scanned.expected
        self.formats |= scanned.formats
        self.pieces.append(scanned.records)
        self.opaque += scanned.opaque
        self.stop = EndOfLog("damage", scanned.damage) if scanned.damage else None
        return scanned.position


def _starts_early(base: int, due: int) -> str:
    return f"it starts at its name's offset {base}, but the log before it ends at {due}"


def _unread(unread_bytes: int) -> str:
    return f"; {unread_bytes} bytes of later segments" if unread_bytes else ""
