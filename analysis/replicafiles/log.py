"""One replica's log, as its files have it: what every reader of replica files gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

NO_VALUE: Final = -2
"""The value of a record that carries none: shorter than 8 bytes, negative, or inside a set not opened."""
CONTROL_RECORD: Final = -3
"""The value of a control record, which the system itself writes."""
NO_MARK: Final = "has no high watermark"
"""How the doubt begins that a log's node has not written its high watermark down."""
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

    def take(self, which: Any) -> LogColumns:
        """Some of the records: a slice, a mask or indices."""
        return LogColumns(*(column[which] for column in self))


class EndOfLog(NamedTuple):
    """Why a log is not read on: `kind` is the field of `ReplicaLog` that says it."""

    kind: Literal["damage", "unread"]
    why: str


def no_records() -> LogColumns:
    empty = np.empty(0, np.int64)
    return LogColumns(
        empty, empty, empty, empty.astype(np.uint64), empty, empty.astype(np.bool_), empty.astype(np.uint64)
    )


def joined(pieces: list[LogColumns]) -> LogColumns:
    """The records of all pieces, in their order."""
    pieces = pieces or [no_records()]
    return LogColumns(*(np.concatenate([piece[i] for piece in pieces]) for i in range(len(LogColumns._fields))))


@dataclass(frozen=True)
class ReplicaLog:
    """One replica of one partition, as its files have it.

    Parallel, one element per record, offsets ascending: `offset`; `epoch`; `value`, the int64 that the record carries;
    `digest` of timestamp, key, value, headers and producer; `size`, the bytes of its value, -1 without one; `exact`,
    whether all its bytes are those that `history.record_bytes` makes of its value; `key`, a digest of its key, 0
    without one, or where that is not asked for: in a log that is not compacted.

    `epochs`: entries (epoch, start offset) of its epoch file, None without a readable one. `high_watermark`: as last
    written to disk, -1 without one. Ranges of offsets (first, behind the last): `opaque`, in compressed sets that were
    not opened; `gaps`, that one batch and the next leave out; `absent`, of which there is no file. `formats`: the
    message formats that it holds. `topic_id`: as the replica's directory has it, if it has.

    Where a log could not be read to its end, one of these says why, and nothing may be concluded from where it ends:
    `damage`, the bytes there are no records; `unread`, they may well be. `zeros`: the damage is nothing but zeros up to
    the end of the last file.
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
    doubts: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the log was read to its end."""
        return not (self.damage or self.unread)

    @cached_property
    def has_epochs(self) -> bool:
        """Whether every record carries the leader epoch under which it was appended."""
        return bool(self.epoch.min(initial=0) > NO_EPOCH)

    def is_opaque(self, offset: I64) -> Bools:
        """Which of these offsets lie in sets that were not opened."""
        return _within(offset, self.opaque)

    def is_unknown(self, offset: I64) -> Bools:
        """Of which of these offsets the files do not say what the log holds there, or whether it holds anything."""
        unread = np.zeros(len(offset), np.bool_) if self.is_whole else offset >= self.end
        return np.asarray(unread | self.is_opaque(offset) | _within(offset, self.absent))

    def at(self, offset: int) -> dict[str, Any] | None:
        """The record at an offset as a witness shows it, or None when the replica has none there."""
        index = int(np.searchsorted(self.offset, offset))
        if index == len(self.offset) or self.offset[index] != offset:
            return None
        digest = f"{int(self.digest[index]):016x}"
        fields = {"offset": offset, "epoch": int(self.epoch[index]), "value": int(self.value[index]), "digest": digest}
        return {"op": "record", "node": self.node, "topic": self.topic, "partition": self.partition, **fields}


def _within(offset: I64, ranges: tuple[tuple[int, int], ...]) -> Bools:
    mask = np.zeros(len(offset), np.bool_)
    for first, behind in ranges:
        mask |= (offset >= first) & (offset < behind)
    return mask
