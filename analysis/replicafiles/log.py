"""One replica's log as read from its files: the common result of all readers of replica files."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from history.record.schemas import INF

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

NO_VALUE: Final = -2
"""The value of a record without a client's value: shorter than 8 bytes, negative, or in a set not decompressed."""
CONTROL_RECORD: Final = -3
"""The value of a control record, which the system itself writes."""
NO_MARK: Final = "has no high watermark"
"""The start of the doubt that a log's node has not written its high watermark."""
NO_EPOCH: Final = -1
"""The leader epoch of a record whose format has none."""


class ReplicaFileError(Exception):
    """A replica's file is not what its name says; the message names it."""


class LogColumns(NamedTuple):
    """Records as parallel columns; see `ReplicaLog`."""

    offset: I64
    epoch: I64
    value: I64
    digest: U64
    size: I64
    exact: Bools
    key: U64

    def take(self, which: Any) -> "LogColumns":
        """Some of the records: a slice, a mask or indices."""
        return LogColumns(*(column[which] for column in self))


class EndOfLog(NamedTuple):
    """Why reading a log stopped; `kind` is the field of `ReplicaLog` that holds the reason."""

    kind: Literal["damage", "unread"]
    why: str


def no_records() -> LogColumns:
    empty = np.empty(0, np.int64)
    return LogColumns(
        empty, empty, empty, empty.astype(np.uint64), empty, empty.astype(np.bool_), empty.astype(np.uint64)
    )


def no_sequences() -> I64:
    return np.empty((0, 6), np.int64)


class SequenceBreaks(NamedTuple):
    """Batches that do not continue their producer's previous one: how many (`total`), and the first one by
    offset, after the batch `before` it. Both are rows of `ReplicaLog.sequences`."""

    total: int = 0
    before: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()

    def joined(self, other: "SequenceBreaks") -> "SequenceBreaks":
        """The breaks of both."""
        if not self.total or not other.total:
            return self if self.total else other
        first = min(self, other, key=lambda breaks: breaks.batch[0])
        return first._replace(total=self.total + other.total)


NO_BREAKS: Final = SequenceBreaks()


def joined(pieces: list[LogColumns]) -> LogColumns:
    """The records of all pieces, in their order."""
    pieces = pieces or [no_records()]
    return LogColumns(*(np.concatenate([piece[i] for piece in pieces]) for i in range(len(LogColumns._fields))))


@dataclass(frozen=True)
class ReplicaLog:
    """One replica of one partition, as read from its files.

    Parallel, one element per record, offsets ascending: `offset`; `epoch`; `value`, the int64 that the record carries;
    `digest` of timestamp, key, value, headers and producer; `size`, the bytes of its value, -1 without one; `exact`,
    whether all its bytes equal `history.record_bytes` of its value; `key`, a digest of its key, 0 without one and in
    logs that are not compacted.

    `epochs`: entries (epoch, start offset) of its epoch file, None without a readable one. `high_watermark`: as last
    written to disk, -1 without one. Ranges of offsets (first, after the last): `opaque`, in compressed sets that were
    not decompressed; `gaps`, that one batch and the next leave out; `absent`, without a file. `formats`: the message
    formats that it holds. `topic_id`: from the replica's directory, if it has one. `sequences`: a row for each batch of
    an idempotent producer outside of transactions in the replica's own files: its first offset, the producer's id and
    epoch, the sequence numbers of its first and last record, and its first offset again. Batches that continue may be
    one row: the first offset of the first one is then in front, that of the last one is last. `breaks`: those between
    the batches of such rows. `own_start`: the start of the replica's own files;
    below it, the records are those of remote segments. -1: the log has no remote segments.
    `prefix`: the records before the replica's own files are those of remote segments: their id, and the offsets (first,
    after the last) that are taken from each.

    If a log could not be read to its end, one of these says why, and its end proves nothing: `damage`, the bytes there
    are not records; `unread`, they may be. `zeros`: the damage is nothing but zeros up to the end of the last file.
    `doubts`: what else is missing from the files or wrong with them, as sentences without a subject.
    """

    node: str
    topic: str
    partition: int
    start: int
    end: int
    offset: I64
    epoch: I64
    value: I64
    digest: U64
    size: I64
    exact: Bools
    key: U64
    epochs: tuple[tuple[int, int], ...] | None
    high_watermark: int
    damage: str = ""
    unread: str = ""
    zeros: bool = False
    opaque: tuple[tuple[int, int], ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    absent: tuple[tuple[int, int], ...] = ()
    formats: tuple[int, ...] = ()
    topic_id: str = ""
    sequences: I64 = field(default_factory=no_sequences)
    doubts: tuple[str, ...] = ()
    own_start: int = -1
    breaks: SequenceBreaks = NO_BREAKS
    prefix: tuple[tuple[str, int, int], ...] = ()

    def holding(self, records: LogColumns) -> "ReplicaLog":
        """The same log with these of its records."""
        return replace(self, **records._asdict())

    @property
    def columns(self) -> LogColumns:
        """Its records."""
        return LogColumns(*(getattr(self, name) for name in LogColumns._fields))

    @property
    def is_whole(self) -> bool:
        """Whether the log was read to its end."""
        return not (self.damage or self.unread)

    @cached_property
    def has_epochs(self) -> bool:
        """Whether every record carries the leader epoch under which it was appended."""
        return bool(self.epoch.min(initial=0) > NO_EPOCH)

    def absent_remotely(self, deleted_to: int) -> list[tuple[int, int]]:
        """What of `absent` is below the replica's own files, and clients did not ask to delete. `deleted_to`: they
        asked for lower offsets; INF: the log deletes its oldest records by itself, and its start counts."""
        first_due = 0 if deleted_to == INF else deleted_to
        clipped = [(max(first, first_due), min(end, self.own_start)) for first, end in self.absent]
        return [(first, end) for first, end in clipped if first < end]

    def may_be_deleted(self, offset: I64, deleted_to: int) -> Bools:
        """Which of these offsets are absent, and not in `absent_remotely`."""
        below = [(first, min(end, self.own_start)) for first, end in self.absent]
        return _within(offset, below) & ~_within(offset, self.absent_remotely(deleted_to))

    def is_opaque(self, offset: I64) -> Bools:
        """Which of these offsets are in sets that were not decompressed."""
        return _within(offset, self.opaque)

    def is_unknown(self, offset: I64) -> Bools:
        """Which of these offsets have unknown content: the files do not show what the log holds there, if anything."""
        unread = np.zeros(len(offset), np.bool_) if self.is_whole else offset >= self.end
        return np.asarray(unread | self.is_opaque(offset) | _within(offset, self.absent))

    def at(self, offset: int) -> dict[str, Any] | None:
        """The record at an offset as a witness shows it, or None if the replica has none there."""
        index = int(np.searchsorted(self.offset, offset))
        if index == len(self.offset) or self.offset[index] != offset:
            return None
        digest = f"{int(self.digest[index]):016x}"
        fields = {"offset": offset, "epoch": int(self.epoch[index]), "value": int(self.value[index]), "digest": digest}
        return {"op": "record", "node": self.node, "topic": self.topic, "partition": self.partition, **fields}


def _within(offset: I64, ranges: Sequence[tuple[int, int]]) -> Bools:
    mask = np.zeros(len(offset), np.bool_)
    for first, end in ranges:
        mask |= (offset >= first) & (offset < end)
    return mask
