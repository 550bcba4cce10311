"""The result of scanning a piece of the log: small, and mergeable in offset order.

The summary of a partition is the merge of its pieces' summaries from left to right; any grouping gives the same. It
decides linearizability together with the partition's `Facts`, which do not depend on the order of the log at all.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.core.evidence import ACK, AGAIN, FINAL, NAMED, NONE, OffsetClaims, OffsetEvidence
from analysis.core.rows import I64
from analysis.core.scans import NEVER, KeyedScan, Realtime
from history.record.schemas import INF

SEQUENCE_MASK = (1 << 32) - 1
PRODUCER_SHIFT = 32

LISTED: Final = 256
"""At most this many lost values of a partition are named individually."""


@dataclass(frozen=True)
class Gaps:
    """Runs of offsets start .. stop - 1 without a value, below an offset that was shown to exist.

    `latest`: the last time at which a record of the run can have been appended, because a later offset existed by then.
    """

    start: I64
    stop: I64
    latest: I64

    @property
    def count(self) -> int:
        return int((self.stop - self.start).sum())


@dataclass(frozen=True)
class Located:
    """Offsets whose value only reads returned and which no append names; the loose appends say which one wrote it.

    `earliest`: the latest release up to the offset; `latest`: the earliest deadline from the offset on.
    """

    offset: I64
    value: I64
    flags: I64
    earliest: I64
    latest: I64


@dataclass(frozen=True)
class Missing:
    """Acknowledged offsets that no final read returned: how many; where, with which value, and when acknowledged.

    Of more than LISTED the first and the last are listed.
    """

    count: int
    offset: I64
    value: I64
    ret: I64

    def merge(self, right: "Missing") -> "Missing":
        """Those of this piece and of `right`, whose offsets are all higher."""
        names = ("offset", "value", "ret")
        columns = [_ends(np.concatenate((getattr(self, name), getattr(right, name)))) for name in names]
        return Missing(self.count + right.count, *columns)


@dataclass(frozen=True)
class Unconfirmed:
    """Offsets with one value, of an append that names the offset, which reads returned, but no final read: how many;
    where, with which value, and `latest` as in `Located`.

    Of more than LISTED the first and the last are listed.
    """

    count: int
    offset: I64
    value: I64
    latest: I64

    def merge(self, right: "Unconfirmed", ahead: int) -> "Unconfirmed":
        """Those of this piece and of `right`, whose offsets are all higher and whose earliest deadline is `ahead`."""
        latest = np.concatenate((np.minimum(self.latest, ahead), right.latest))
        offset, value = np.concatenate((self.offset, right.offset)), np.concatenate((self.value, right.value))
        return Unconfirmed(self.count + right.count, *map(_ends, (offset, value, latest)))


@dataclass(frozen=True)
class Summary:
    """A piece of a partition's log that covers the offsets start .. stop - 1 (none when equal). `named`: the offsets
    whose value reads returned and whose append names them."""

    start: int
    stop: int
    acknowledged: int
    named: int
    realtime: Realtime
    gaps: Gaps
    located: Located
    missing: Missing
    unconfirmed: Unconfirmed
    extras: OffsetClaims
    conflicts: OffsetClaims  # the canonical claims of the offsets that have extras
    producers: KeyedScan
    sessions: KeyedScan

    def merge(self, right: "Summary") -> "Summary":
        """The summary of this piece followed by `right`, whose offsets are all higher."""
        if right.start < self.stop:
            raise ValueError(f"pieces overlap: one ends at {self.stop}, the next starts at {right.start}")
        left_gaps = self.gaps
        covers = right.stop > right.start
        ahead = min(peak.t for peak in right.realtime.deadline)
        latest_release = max(peak.t for peak in self.realtime.release)
        hole = Gaps(*(np.array([bound], np.int64) for bound in (self.stop, right.start, ahead)))
        gaps = [Gaps(left_gaps.start, left_gaps.stop, np.minimum(left_gaps.latest, ahead))]
        gaps += [hole] if covers and right.start > self.stop else []
        gaps.append(right.gaps)
        a, b = self.located, right.located
        return Summary(
            start=self.start,
            stop=right.stop if covers else self.stop,
            acknowledged=self.acknowledged + right.acknowledged,
            named=self.named + right.named,
            realtime=self.realtime.merge(right.realtime),
            gaps=Gaps(*(np.concatenate([getattr(g, name) for g in gaps]) for name in ("start", "stop", "latest"))),
            located=Located(
                np.concatenate((a.offset, b.offset)),
                np.concatenate((a.value, b.value)),
                np.concatenate((a.flags, b.flags)),
                np.concatenate((a.earliest, np.maximum(b.earliest, latest_release))),
                np.concatenate((np.minimum(a.latest, ahead), b.latest)),
            ),
            missing=self.missing.merge(right.missing),
            unconfirmed=self.unconfirmed.merge(right.unconfirmed, ahead),
            extras=OffsetClaims.concat([self.extras, right.extras]),
            conflicts=OffsetClaims.concat([self.conflicts, right.conflicts]),
            producers=self.producers.merge(right.producers, equal_is_wrong=True),
            sessions=self.sessions.merge(right.sessions, equal_is_wrong=False),
        )


def whole(pieces: Iterable[Summary]) -> Summary:
    """The summary of a partition from those of its pieces, in any order; without pieces, of an empty log."""
    return functools.reduce(Summary.merge, sorted(pieces, key=lambda piece: piece.start), nothing())


def nothing() -> Summary:
    """The summary of an empty log: it starts and ends at offset 0."""
    empty = np.empty(0, np.int64)
    return Summary(
        0, 0, 0, 0, Realtime.nothing(), Gaps(empty, empty, empty), Located(empty, empty, empty, empty, empty),
        Missing(0, empty, empty, empty), Unconfirmed(0, empty, empty, empty), OffsetClaims.nothing(),
        OffsetClaims.nothing(),
        KeyedScan.nothing(), KeyedScan.nothing(),
    )  # fmt: skip


def summarise(evidence: OffsetEvidence) -> Summary:
    """Scans one piece: C3's gaps and the theorem's releases and deadlines."""
    stop = _length(evidence)
    value, flags = evidence.value[:stop], evidence.flags[:stop]
    earliest, latest = bounds(evidence, stop)
    acked = np.flatnonzero(flags & ACK)
    gaps = np.flatnonzero(value == NONE) if len(acked) < stop else acked[:0]
    named = np.flatnonzero(flags & NAMED) if len(acked) < stop else acked[:0]
    unacked = (
        np.flatnonzero((flags != 0) & ((flags & (ACK | NAMED)) == 0)) if len(acked) + len(named) < stop else acked[:0]
    )
    start = evidence.start
    once = acked[(flags[acked] & AGAIN) == 0]  # a copy may be behind records that were sent later
    acked_value = value[once]
    return Summary(
        start=start,
        stop=start + stop,
        acknowledged=len(acked),
        named=len(named),
        realtime=Realtime.of(
            start,
            (evidence.append_release, evidence.query_release),
            (evidence.append_deadline, evidence.query_deadline),
            bool((earliest > latest).any()),
        ),
        gaps=Gaps(gaps + start, gaps + start + 1, latest[gaps]),
        located=Located(
            unacked + start, value[unacked], flags[unacked].astype(np.int64), earliest[unacked], latest[unacked]
        ),
        missing=_missing(evidence, acked),
        unconfirmed=_unconfirmed(evidence, named, latest),
        extras=evidence.extras,
        conflicts=evidence.canonical_claims(np.unique(evidence.extras.offset))
        if len(evidence.extras)
        else evidence.extras,
        producers=KeyedScan.of_sequences(acked_value >> PRODUCER_SHIFT, acked_value & SEQUENCE_MASK, once + start),
        sessions=KeyedScan.of_sessions(
            evidence.sessions.session, evidence.sessions.offset, evidence.sessions.release, evidence.sessions.deadline
        ),
    )


def bounds(evidence: OffsetEvidence, stop: int, *, before: int = NEVER) -> tuple[I64, I64]:
    """The theorem's E and L of the first `stop` offsets: E[g] = max r[j], j <= g and L[g] = min d[k], k >= g.

    `before`: the latest release of the pieces to the left.
    """
    earliest = np.maximum(evidence.append_release[:stop], evidence.query_release[:stop])
    latest = np.minimum(evidence.append_deadline[:stop], evidence.query_deadline[:stop])
    if stop:
        earliest[0] = max(int(earliest[0]), before)
    np.maximum.accumulate(earliest, out=earliest)
    np.minimum.accumulate(latest[::-1], out=latest[::-1])
    return earliest, latest


def _length(evidence: OffsetEvidence) -> int:
    """The number of offsets up to the last one that an operation showed to exist."""
    n = len(evidence.value)
    if n and (evidence.flags[-1] or evidence.query_deadline[-1] < INF):
        return n
    shown_offsets = np.flatnonzero((evidence.flags != 0) | (evidence.query_deadline < INF))
    return int(shown_offsets[-1]) + 1 if len(shown_offsets) else 0


def _missing(evidence: OffsetEvidence, acked: I64) -> Missing:
    missing = acked[(evidence.flags[acked] & FINAL) == 0]
    at = _ends(missing)
    return Missing(len(missing), at + evidence.start, evidence.value[at], evidence.append_deadline[at])


def _unconfirmed(evidence: OffsetEvidence, named: I64, latest: I64) -> Unconfirmed:
    absent = named[(evidence.flags[named] & FINAL) == 0]
    if len(evidence.extras):
        absent = absent[~np.isin(absent + evidence.start, evidence.extras.offset)]
    at = _ends(absent)
    return Unconfirmed(len(absent), at + evidence.start, evidence.value[at], latest[at])


def _ends(items: I64) -> I64:
    """The first and the last items, LISTED in all: merging from left to right keeps the first and last of all."""
    return items if len(items) <= LISTED else np.concatenate((items[:1], items[1 - LISTED :]))
