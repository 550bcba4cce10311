"""One replica's log, as its files have it: what every reader of replica files gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

NO_VALUE: Final = -2
"""The value of a record that carries none: shorter than 8 bytes, a control record, or inside a set not opened."""
NO_EPOCH: Final = -1
"""The leader epoch of a record whose format has none."""


class ReplicaFileError(Exception):
    """A replica's file is not what its name says; the message names it."""


class Columns(NamedTuple):
    """Records as parallel columns; see `ReplicaLog`."""

    offset: I64
    epoch: I64
    value: I64
    digest: U64


def no_records() -> Columns:
    empty = np.empty(0, np.int64)
    return Columns(empty, empty, empty, empty.astype(np.uint64))


def joined(pieces: list[Columns]) -> Columns:
    """The records of all pieces, in their order."""
    pieces = pieces or [no_records()]
    offset, epoch, value = (np.concatenate([piece[i] for piece in pieces]) for i in range(3))
    return Columns(offset, epoch, value, np.concatenate([piece.digest for piece in pieces]))


@dataclass(frozen=True)
class ReplicaLog:
    """One replica of one partition, as its files have it.

    `offset`, `epoch`, `value`, `digest` are parallel, one element per record, offsets ascending; `value` is the int64
    that the record carries, `digest` covers timestamp, key, value and headers. `epochs`: entries (epoch, start offset)
    of its epoch file. `high_watermark`: as last written to disk, -1 if never. `damage`: why the log ends where it does,
    if bytes lie behind its end that are no records. `unread`: why the rest of it could not be read though it may well
    hold records: nothing may be concluded from where such a log ends. `opaque`: ranges of offsets (first, behind the
    last) of compressed sets that were not opened. `formats`: the message formats that it holds.
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
    epochs: tuple[tuple[int, int], ...]
    high_watermark: int
    damage: str = ""
    unread: str = ""
    opaque: tuple[tuple[int, int], ...] = ()
    formats: tuple[int, ...] = ()

    @cached_property
    def has_epochs(self) -> bool:
        """Whether every record carries the leader epoch under which it was appended."""
        return bool(self.epoch.min(initial=0) > NO_EPOCH)

    def is_opaque(self, offset: I64) -> Bools:
        """Which of these offsets lie in sets that were not opened."""
        mask = np.zeros(len(offset), np.bool_)
        for first, behind in self.opaque:
            mask |= (offset >= first) & (offset < behind)
        return mask

    def at(self, offset: int) -> dict[str, Any] | None:
        """The record at an offset as a witness shows it, or None when the replica has none there."""
        index = int(np.searchsorted(self.offset, offset))
        if index == len(self.offset) or self.offset[index] != offset:
            return None
        digest = f"{int(self.digest[index]):016x}"
        fields = {"offset": offset, "epoch": int(self.epoch[index]), "value": int(self.value[index]), "digest": digest}
        return {"op": "record", "node": self.node, "topic": self.topic, "partition": self.partition, **fields}
