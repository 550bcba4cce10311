"""Appends that name their offset but are not durable, matched with the records that reads show there.

Theory of operation. An append with acks < all may be lost and its offset reused, so the offset that it names binds
nothing. But values are unique: if reads show its value at that offset, then the record is this append. So the task that
has the offset finds the append's place, whatever the other tasks know. From then on the append gives its offset a
release, as a durable one does, and no deadline. Only the others are loose for the driver: their offset holds another
value, or was not read. With acks=1 these are few, and the matched ones are nearly all appends of a history.

If several appends name one offset and its value, the one invoked first is matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from analysis.core.aggregates import LooseAppends
from analysis.core.evidence import ACK, NAMED, SEEN, OffsetEvidence
from analysis.core.rows import I64, Ints, Loose
from history.record.schemas import INF, INFO


class NamedAppends(NamedTuple):
    """Appends that may have happened, and the offsets that they name."""

    offset: I64
    value: I64
    inv: I64

    @classmethod
    def within(cls, loose: Loose, start: int, stop: int) -> NamedAppends:
        """Those that name one of the offsets start .. stop - 1; `start` is 0 or more."""
        at = np.flatnonzero((loose.offset >= start) & (loose.offset < stop))
        return cls(loose.offset[at], loose.value[at], loose.inv[at])

    @classmethod
    def concat(cls, pieces: Iterable[NamedAppends]) -> NamedAppends:
        nothing = np.empty((3, 0), np.int64)
        return cls(*np.concatenate([nothing, *map(np.stack, pieces)], axis=1))

    def take(self, at: Ints) -> NamedAppends:
        return NamedAppends(self.offset[at], self.value[at], self.inv[at])

    def as_loose(self) -> LooseAppends:
        size = len(self.offset)
        type_, ret, again = (np.full(size, filler, np.int64) for filler in (INFO, INF, 0))
        return LooseAppends(self.value, type_, self.inv, ret, again)


def match(pieces: Sequence[OffsetEvidence], named: NamedAppends) -> LooseAppends:
    """Adds to the evidence of a range, in `pieces` by ascending offset, the appends that name the offset at which reads
    show them; returns the other appends."""
    named = named.take(np.lexsort((named.inv, named.offset)))
    is_left = np.ones(len(named.offset), np.bool_)
    for piece in pieces:
        first, last = np.searchsorted(named.offset, (piece.start, piece.start + len(piece.value))).tolist()
        offset, value, inv = named.take(np.arange(first, last))
        at = offset - piece.start
        fits = np.flatnonzero((piece.value[at] == value) & (piece.flags[at] & (ACK | SEEN) == SEEN))
        fits = fits[np.diff(offset[fits], prepend=-1) != 0]
        piece.flags[at[fits]] |= NAMED
        piece.append_release[at[fits]] = inv[fits]
        is_left[first + fits] = False
    return named.take(np.flatnonzero(is_left)).as_loose()
