"""The evidence that operations give for each offset of a piece of the log: dense and mergeable in any order.

A piece ("span") is a partition or a range of its offsets, or a block of these if evidence from several subsets of the
operations is merged. Any subset of a partition's operations gives evidence for the spans that it touches, and evidence
for one span from several subsets merges by maximum, minimum and first-or-conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from analysis.core.rows import DAMAGED, I64, NO_VALUE, Bools, DamagedError, Ints, Rows
from analysis.core.scans import NEVER
from history.record.schemas import INF

NONE: Final = NO_VALUE
"""No value is known at this offset."""

ACK: Final = 1
SEEN: Final = 2
FINAL: Final = 4
NAMED: Final = 8
"""The value was read here, and an append that is not durable names this offset (`range_evidence`)."""
AGAIN: Final = 16
"""With ACK: the record may have other copies (`rows`)."""

SESSION_BITS: Final = 32

BLOCK: Final = 1 << 16
"""Offsets per block of a range that several batches of rows are about."""

SPARSE_BLOCK: Final = 1 << 8
"""Offsets per block of a partition with claims far beyond its end."""


@dataclass(frozen=True)
class OffsetClaims:
    """Values claimed for offsets; an acknowledgement also gives a release and a deadline."""

    offset: I64
    value: I64
    flags: I64
    release: I64
    deadline: I64

    @classmethod
    def nothing(cls) -> OffsetClaims:
        return cls(*(np.empty(0, np.int64) for _ in range(5)))

    @classmethod
    def concat(cls, claims: list[OffsetClaims]) -> OffsetClaims:
        names = ("offset", "value", "flags", "release", "deadline")
        return cls(*(np.concatenate([getattr(piece, name) for piece in claims]) for name in names))

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, at: Ints) -> OffsetClaims:
        return OffsetClaims(self.offset[at], self.value[at], self.flags[at], self.release[at], self.deadline[at])

    def merged(self) -> OffsetClaims:
        """One claim per (offset, value), ordered: at each offset the canonical value first.

        Canonical is the value that a final read showed, else an acknowledged one, else the smallest.
        """
        order = np.lexsort((self.value, self.offset))
        sort = self.take(order)
        new = (sort.offset[1:] != sort.offset[:-1]) | (sort.value[1:] != sort.value[:-1])
        first = np.flatnonzero(np.concatenate(([True], new)))
        claims = OffsetClaims(
            sort.offset[first],
            sort.value[first],
            np.bitwise_or.reduceat(sort.flags, first),
            np.maximum.reduceat(sort.release, first),
            np.minimum.reduceat(sort.deadline, first),
        )
        return claims.take(np.lexsort((claims.value, ~claims.flags & ACK, ~claims.flags & FINAL, claims.offset)))


@dataclass(frozen=True)
class ReaderSessions:
    """Bounds that clients saw, by session (process << 32 | session): at an offset a release (else NEVER) and a deadline
    (else INF)."""

    session: I64
    offset: I64
    release: I64
    deadline: I64

    @classmethod
    def nothing(cls) -> ReaderSessions:
        return cls(*(np.empty(0, np.int64) for _ in range(4)))


@dataclass
class OffsetEvidence:
    """The evidence for the offsets start, start + 1, ... of one partition.

    `value`, `flags` (ACK, SEEN, FINAL, NAMED, AGAIN) and `append_*` belong to the canonical value of each offset;
    `extras` are the other values claimed for it. `query_release[g]`: a query invoked then showed a length <= g.
    `query_deadline[g]`: a query returned then showed a length > g.
    """

    start: int
    value: I64
    flags: Ints
    append_release: I64
    append_deadline: I64
    query_release: I64
    query_deadline: I64
    extras: OffsetClaims = field(default_factory=OffsetClaims.nothing)
    sessions: ReaderSessions = field(default_factory=ReaderSessions.nothing)

    def merge(self, other: OffsetEvidence) -> OffsetEvidence:
        """The evidence for the same span from two disjoint sets of operations."""
        if (self.start, len(self.value)) != (other.start, len(other.value)):
            raise ValueError(f"evidence for offset {other.start} does not belong to the block at {self.start}")
        suspects = (self.value != other.value) & (self.value != NONE) & (other.value != NONE)
        mixed = np.unique(
            np.concatenate((np.flatnonzero(suspects) + self.start, self.extras.offset, other.extras.offset))
        )
        claims = OffsetClaims.concat(
            [self.extras, other.extras, self.canonical_claims(mixed), other.canonical_claims(mixed)]
        )
        merged = OffsetEvidence(
            start=self.start,
            value=np.maximum(self.value, other.value),
            flags=self.flags | other.flags,
            append_release=np.maximum(self.append_release, other.append_release),
            append_deadline=np.minimum(self.append_deadline, other.append_deadline),
            query_release=np.maximum(self.query_release, other.query_release),
            query_deadline=np.minimum(self.query_deadline, other.query_deadline),
            sessions=_concat_sessions(self.sessions, other.sessions),
        )
        merged.settle(claims)
        return merged

    def moved(self, by: int) -> OffsetEvidence:
        """The same evidence for offsets that are higher by `by`."""
        extras, sessions = self.extras, self.sessions
        return replace(
            self,
            start=self.start + by,
            extras=replace(extras, offset=extras.offset + by),
            sessions=replace(sessions, offset=sessions.offset + by),
        )

    def settle(self, claims: OffsetClaims) -> None:
        """Takes all claims for the offsets on which values differ: the canonical one stays, the others become
        extras."""
        if not len(claims):
            return
        claims = claims.merged()
        canonical = np.concatenate(([True], claims.offset[1:] != claims.offset[:-1]))
        chosen = claims.take(np.flatnonzero(canonical))
        at = chosen.offset - self.start
        self.value[at] = chosen.value
        self.flags[at] = chosen.flags
        self.append_release[at] = chosen.release
        self.append_deadline[at] = chosen.deadline
        self.extras = claims.take(np.flatnonzero(~canonical))

    def excuse_deleted(self, deleted_to: int) -> None:
        """Records below this offset may have been deleted: final reads need not show them, so their values count as
        finally read. An offset with several values keeps its contradiction."""
        size = min(max(0, deleted_to - self.start), len(self.value))
        excused = self.value[:size] != NONE
        excused[self.extras.offset[self.extras.offset < self.start + size] - self.start] = False
        self.flags[:size][excused] |= FINAL

    def canonical_claims(self, offsets: I64) -> OffsetClaims:
        """The canonical values at these offsets, as claims."""
        at = offsets - self.start
        at = at[self.value[at] != NONE]
        return OffsetClaims(
            at + self.start,
            self.value[at],
            self.flags[at].astype(np.int64),
            self.append_release[at],
            self.append_deadline[at],
        )


def _concat_sessions(a: ReaderSessions, b: ReaderSessions) -> ReaderSessions:
    names = ("session", "offset", "release", "deadline")
    return ReaderSessions(*(np.concatenate((getattr(a, name), getattr(b, name))) for name in names))


@dataclass(frozen=True)
class Spans:
    """The offsets, by partition, that get dense arrays, laid out one span after another.

    A partition has one span from offset 0; one of `blocked` partitions has a span for each block that was touched.
    """

    part: I64
    start: I64
    base: I64  # length spans + 1
    whole: I64  # by partition: base of its only span, or -1 when it is blocked
    length: I64  # by partition: how many offsets its only span has
    blocks: I64  # sorted keys part << bits | block of the spans of blocked partitions
    bits: int
    block_base: I64
    block: int

    def locate(self, part: Ints, offset: I64) -> I64:
        """The dense index of each (partition, offset); each offset must be in a span."""
        index = self.whole[part] + offset
        if len(self.blocks):
            blocked = np.flatnonzero(self.whole[part] < 0)
            key = (part[blocked] << self.bits) | (offset[blocked] // self.block)
            index[blocked] = self.block_base[np.searchsorted(self.blocks, key)] + offset[blocked] % self.block
        return index

    def holds(self, part: Ints, offset: I64) -> Bools:
        """Whether a span covers each offset."""
        inside = offset < self.length[part]
        if len(self.blocks):
            blocked = np.flatnonzero(self.whole[part] < 0)
            key = (part[blocked] << self.bits) | (offset[blocked] // self.block)
            at = np.minimum(np.searchsorted(self.blocks, key), len(self.blocks) - 1)
            inside[blocked] = self.blocks[at] == key
        return np.asarray(inside)


def lay_out(rows: Rows, block: int | None) -> Spans:
    """Spans for all offsets that `rows` give evidence for.

    Blocks of size `block`, or whole partitions when it is None. Exception: a partition in which an operation claims an
    offset far beyond what could have been appended gets blocks, because a corrupt offset must result in an anomaly, not
    in a lack of memory.
    """
    parts = len(rows.keys)
    bound, queries = rows.bound, rows.queries
    item_part = np.repeat(queries.part, queries.count)
    shown = queries.lo > 0
    length = np.zeros(parts, np.int64)
    np.maximum.at(length, bound.part, bound.offset + 1)
    np.maximum.at(length, item_part, queries.item_offset + 1)
    np.maximum.at(length, queries.part, queries.lo)
    if block is None:
        claims = np.bincount(bound.part, minlength=parts) + np.bincount(item_part, minlength=parts)
        blocked = is_sparse(length, claims)
        block = SPARSE_BLOCK
    else:
        blocked = np.ones(parts, np.bool_)
    keys, bits = np.empty(0, np.int64), 0
    if blocked.any():
        part = np.concatenate((bound.part, item_part, queries.part[shown], queries.part[queries.hi >= 0]))
        offset = np.concatenate((bound.offset, queries.item_offset, queries.lo[shown] - 1, queries.hi[queries.hi >= 0]))
        mine = blocked[part]
        number = offset[mine] // block
        bits = int(number.max(initial=0)).bit_length()
        if parts.bit_length() + bits > 63:
            raise DamagedError(f"offset {int(offset.max())} cannot be one of {parts} partitions: {DAMAGED}")
        keys = np.unique((part[mine] << bits) | number)
    return _spans(blocked, length, keys, bits, block)


def is_sparse(length: I64, claims: I64) -> Bools:
    """Whether a log's length is far out of proportion to the number of offsets that operations mention."""
    return np.asarray(length > 4 * claims + (1 << 20))


def _spans(blocked: Bools, length: I64, keys: I64, bits: int, block: int) -> Spans:
    alone = np.flatnonzero(~blocked)
    part = np.concatenate((alone, keys >> bits))
    start = np.concatenate((np.zeros(len(alone), np.int64), (keys & ((1 << bits) - 1)) * block))
    size = np.concatenate((length[alone], np.full(len(keys), block, np.int64)))
    base = np.concatenate(([0], np.cumsum(size)))
    whole_base = np.full(len(blocked), -1, np.int64)
    whole_base[alone] = base[: len(alone)]
    return Spans(part, start, base, whole_base, np.where(blocked, 0, length), keys, bits, base[len(alone) : -1], block)


def gather(rows: Rows, spans: Spans, upper_bound: str) -> list[OffsetEvidence]:
    """The evidence that `rows` give, one piece per span."""
    total = int(spans.base[-1])
    bound, queries = rows.bound, rows.queries
    value = np.full(total, NONE, np.int64)
    flags = np.zeros(total, np.uint8)
    releases = np.full((2, total), NEVER, np.int64)
    deadlines = np.full((2, total), INF, np.int64)
    acked = spans.locate(bound.part, bound.offset)
    value[acked] = bound.value
    flags[acked] = ACK + AGAIN * bound.again
    releases[0][acked] = bound.inv
    deadlines[0][acked] = bound.ret
    read = spans.locate(np.repeat(queries.part, queries.count), queries.item_offset)
    fresh = value[read] == NONE
    value[read[fresh]] = queries.item_value[fresh]
    flags[read] |= SEEN
    if queries.final.any():
        flags[read[np.repeat(queries.final, queries.count)]] |= FINAL
    shown = np.flatnonzero(queries.lo > 0)
    np.minimum.at(deadlines[1], spans.locate(queries.part[shown], queries.lo[shown] - 1), queries.ret[shown])
    capped = np.flatnonzero((queries.hi >= 0) & (queries.final | (upper_bound == "strict")))
    capped = capped[spans.holds(queries.part[capped], queries.hi[capped])]
    np.maximum.at(releases[1], spans.locate(queries.part[capped], queries.hi[capped]), queries.inv[capped])
    evidence = [
        OffsetEvidence(
            int(start), value[a:z], flags[a:z],
            releases[0][a:z], deadlines[0][a:z], releases[1][a:z], deadlines[1][a:z],
        )
        for start, a, z in zip(spans.start.tolist(), spans.base[:-1].tolist(), spans.base[1:].tolist(), strict=True)
    ]  # fmt: skip
    _settle(evidence, spans, rows, acked, read, value)
    if upper_bound == "session":
        _add_sessions(evidence, spans, rows)
    return evidence


def _settle(evidence: list[OffsetEvidence], spans: Spans, rows: Rows, acked: I64, read: I64, value: I64) -> None:
    """Finds the offsets for which more than one value is claimed, and settles each of them."""
    bound, queries = rows.bound, rows.queries
    differ = np.concatenate((acked[value[acked] != bound.value], read[value[read] != queries.item_value]))
    if not len(differ):
        return
    mixed = np.unique(differ)
    a, r = np.flatnonzero(np.isin(acked, mixed)), np.flatnonzero(np.isin(read, mixed))
    seen_flags = SEEN + FINAL * np.repeat(queries.final, queries.count)[r]
    index = np.concatenate((acked[a], read[r]))
    span = np.searchsorted(spans.base, index, side="right") - 1
    claims = OffsetClaims(
        index - spans.base[span] + spans.start[span],
        np.concatenate((bound.value[a], queries.item_value[r])),
        np.concatenate((ACK + AGAIN * bound.again[a], seen_flags)),
        np.concatenate((bound.inv[a], np.full(len(r), NEVER))),
        np.concatenate((bound.ret[a], np.full(len(r), INF))),
    )
    for span_number in np.unique(span).tolist():
        evidence[span_number].settle(claims.take(np.flatnonzero(span == span_number)))


def _add_sessions(evidence: list[OffsetEvidence], spans: Spans, rows: Rows) -> None:
    """Adds what each client was shown of the log's length, for clients that were shown an upper bound."""
    bound, queries = rows.bound, rows.queries
    capped = np.flatnonzero((queries.hi >= 0) & ~queries.final)
    capped = capped[spans.holds(queries.part[capped], queries.hi[capped])]
    shown = np.flatnonzero(queries.lo > 0)
    part = np.concatenate((queries.part[capped], queries.part[shown], bound.part))
    offset = np.concatenate((queries.hi[capped], queries.lo[shown] - 1, bound.offset))
    process = np.concatenate((queries.process[capped], queries.process[shown], bound.process)).astype(np.int64)
    number = np.concatenate((queries.session[capped], queries.session[shown], bound.session))
    session = process << SESSION_BITS | number
    nothing = np.full(len(shown) + len(bound.part), NEVER)
    release = np.concatenate((queries.inv[capped], nothing))
    deadline = np.concatenate((np.full(len(capped), INF), queries.ret[shown], bound.ret))
    span = np.searchsorted(spans.base, spans.locate(part, offset), side="right") - 1
    order = np.argsort(span, kind="stable")
    edges = np.searchsorted(span[order], np.arange(len(evidence) + 1))
    for span_number, (a, z) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        at = order[a:z]
        evidence[span_number].sessions = ReaderSessions(session[at], offset[at], release[at], deadline[at])
