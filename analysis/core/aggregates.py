"""Facts about a partition's operations that do not depend on the order of its log.

Facts of disjoint sets of operations merge in any order: loose appends, the extent of the final reads, operations that
contradict themselves, and counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from analysis.core.rows import I64, Bools, Ints, Rows
from history.record.schemas import FAIL, INFO, OK


@dataclass(frozen=True)
class Offenders:
    """Queries that contradict themselves: how many, and the one invoked first (`offset`: where it contradicts
    itself)."""

    count: int = 0
    inv: int = -1
    process: int = -1
    offset: int = -1

    def merge(self, other: Offenders) -> Offenders:
        if not self.count or not other.count:
            return self if self.count else other
        first = min(self, other, key=lambda offenders: (offenders.inv, offenders.process))
        return Offenders(self.count + other.count, first.inv, first.process, first.offset)


class FinalEnd(NamedTuple):
    """The length of a log according to a complete final read, and when the end query was invoked."""

    length: int
    inv: int


@dataclass(frozen=True)
class LooseAppends:
    """Appends without a binding place (see `rows`), except those that `range_evidence` matched with a record. `again`:
    1 for one that may be at several offsets, else 0."""

    value: I64
    type: I64
    inv: I64
    ret: I64
    again: I64

    def __len__(self) -> int:
        return len(self.value)

    def merge(self, other: LooseAppends) -> LooseAppends:
        return LooseAppends(
            np.concatenate((self.value, other.value)),
            np.concatenate((self.type, other.type)),
            np.concatenate((self.inv, other.inv)),
            np.concatenate((self.ret, other.ret)),
            np.concatenate((self.again, other.again)),
        )

    def in_order(self) -> LooseAppends:
        """The same appends by invocation, then by value."""
        order = np.lexsort((self.value, self.inv))
        return LooseAppends(self.value[order], self.type[order], self.inv[order], self.ret[order], self.again[order])


@dataclass(frozen=True)
class FinalReads:
    """The extent of the final reads: `start` .. `stop` are disjoint ascending ranges of offsets that they covered.

    `end`, `end_inv`: the answers of the final end queries and the times of their invocation.
    """

    start: I64
    stop: I64
    end: I64
    end_inv: I64

    def merge(self, other: FinalReads) -> FinalReads:
        return FinalReads(
            *_union(np.concatenate((self.start, other.start)), np.concatenate((self.stop, other.stop))),
            np.concatenate((self.end, other.end)),
            np.concatenate((self.end_inv, other.end_inv)),
        )


_EMPTY = np.empty(0, np.int64)


@dataclass(frozen=True)
class Facts:
    """The facts about one partition.

    `last_ack`: when the last acknowledgement of a durable append returned, -1 if none. `skips`: reads that left out an
    offset, from the requested one on; `regressions`: reads that returned an offset below the next expected one;
    `overruns`: queries that show more than their own upper bound allows.
    """

    loose: LooseAppends = LooseAppends(_EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY)
    finals: FinalReads = FinalReads(_EMPTY, _EMPTY, _EMPTY, _EMPTY)
    last_ack: int = -1
    skips: Offenders = Offenders()
    regressions: Offenders = Offenders()
    overruns: Offenders = Offenders()
    counts: dict[str, int] = field(default_factory=dict)

    def merge(self, other: Facts) -> Facts:
        """The facts of both sets of operations."""
        return Facts(
            self.loose.merge(other.loose),
            self.finals.merge(other.finals),
            max(self.last_ack, other.last_ack),
            self.skips.merge(other.skips),
            self.regressions.merge(other.regressions),
            self.overruns.merge(other.overruns),
            {name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in {**self.counts, **other.counts}},
        )

    def with_loose(self, appends: LooseAppends) -> Facts:
        """These facts and `appends`, loose ones, all in order."""
        return replace(self, loose=self.loose.merge(appends).in_order())

    def final_end(self, deleted_to: int = 0) -> FinalEnd | None:
        """The length that a complete final read shows, or None without one.

        Complete: an end query was invoked after the last acknowledgement, and final reads covered every offset to its
        answer, from 0 or from an offset below which records may have been deleted.
        """
        finals = self.finals
        late = np.flatnonzero(finals.end_inv > self.last_ack)
        if not len(late):
            return None
        end, inv = max(zip(finals.end[late].tolist(), finals.end_inv[late].tolist(), strict=True))
        covered = bool(((finals.start <= deleted_to) & (finals.stop >= end)).any())
        return FinalEnd(end, inv) if covered or end <= deleted_to else None


def facts_of(rows: Rows, upper_bound: str) -> list[Facts]:
    """The facts of each of `rows.keys`, without the appends that name an offset: the range of the offset has them."""
    parts = len(rows.keys)
    bound, loose = rows.bound, rows.loose
    order = np.flatnonzero(loose.offset < 0)
    order = order[np.lexsort((loose.value[order], loose.inv[order], loose.part[order]))]
    edges = np.searchsorted(loose.part[order], np.arange(parts + 1))
    last_ack = np.full(parts, -1, np.int64)
    np.maximum.at(last_ack, bound.part, bound.ret)
    sure = loose.type == OK
    np.maximum.at(last_ack, loose.part[sure], loose.ret[sure])
    skips, regressions = _astray(rows)
    overruns = _overruns(rows, upper_bound)
    finals = finals_of(rows)
    counts = _counts(rows)

    def appends_of(part: int) -> LooseAppends:
        at = order[edges[part] : edges[part + 1]]
        type_, again = (column[at].astype(np.int64) for column in (loose.type, loose.again))
        return LooseAppends(loose.value[at], type_, loose.inv[at], loose.ret[at], again)

    return [
        Facts(
            appends_of(part),
            finals.get(part, Facts.finals),
            int(last_ack[part]),
            skips.get(part, Offenders()),
            regressions.get(part, Offenders()),
            overruns.get(part, Offenders()),
            {name: int(part_counts[part]) for name, part_counts in counts.items()},
        )
        for part in range(parts)
    ]


def _counts(rows: Rows) -> dict[str, I64]:
    def per_part(part: Ints, weights: I64 | None = None) -> I64:
        return np.bincount(part, weights, minlength=len(rows.keys)).astype(np.int64)

    loose, queries = rows.loose, rows.queries
    return {
        "acknowledged": per_part(rows.bound.part) + per_part(loose.part[loose.type == OK]),
        "failed": per_part(loose.part[loose.type == FAIL]),
        "indeterminate": per_part(loose.part[(loose.type == INFO) & ~loose.bound]),
        "reads": per_part(queries.part[queries.is_read]),
        "ends": per_part(queries.part[~queries.is_read]),
        "records_read": per_part(queries.part, queries.count),
    }


def _astray(rows: Rows) -> tuple[dict[int, Offenders], dict[int, Offenders]]:
    """Reads whose records are not start, start + 1, start + 2, ...: those that skip offsets, and those that go back.

    The first unexpected record decides which. `offset` is the first skipped offset, or the repeated one.
    """
    queries = rows.queries
    first = np.cumsum(queries.count) - queries.count
    expected = np.repeat(queries.start - first, queries.count) + np.arange(len(queries.item_offset))
    strays = np.flatnonzero(queries.item_offset != expected)
    if not len(strays):
        return {}, {}
    row = np.searchsorted(first + queries.count, strays, side="right")
    row, first_strays = np.unique(row, return_index=True)
    due, shown = expected[strays[first_strays]], queries.item_offset[strays[first_strays]]
    on, back = np.flatnonzero(shown > due), np.flatnonzero(shown < due)
    return _first_by_part(rows, row[on], due[on]), _first_by_part(rows, row[back], shown[back])


def _overruns(rows: Rows, upper_bound: str) -> dict[int, Offenders]:
    """Queries that show more than their own upper bound: records at or past the high watermark they report."""
    queries = rows.queries
    binding = queries.final | (upper_bound != "lower-bound-only")
    row = np.flatnonzero((queries.hi >= 0) & (queries.lo > queries.hi) & binding)
    return _first_by_part(rows, row, queries.hi[row]) if len(row) else {}


def _first_by_part(rows: Rows, row: Ints, offset: I64) -> dict[int, Offenders]:
    queries = rows.queries
    offenders: dict[int, Offenders] = {}
    columns = (queries.part[row], queries.inv[row], queries.process[row], offset)
    for part, inv, process, at in zip(*(column.tolist() for column in columns), strict=True):
        offenders[part] = offenders.get(part, Offenders()).merge(Offenders(1, inv, process, at))
    return offenders


def finals_of(rows: Rows) -> dict[int, FinalReads]:
    """The extent of the final reads, by index into `rows.keys`; partitions without final reads are left out."""
    queries = rows.queries
    final = np.flatnonzero(queries.final)
    final = final[np.argsort(queries.part[final], kind="stable")]
    item_part = np.repeat(queries.part[final], queries.count[final])
    shown = np.repeat(queries.final, queries.count)
    order = np.argsort(np.repeat(queries.part, queries.count)[shown], kind="stable")
    offset = queries.item_offset[shown][order]
    finals: dict[int, FinalReads] = {}
    for part in np.unique(queries.part[final]).tolist():
        mine = final[queries.part[final] == part]
        ended = mine[_is_end(rows, mine)]
        a, z = np.searchsorted(item_part, (part, part + 1))
        finals[part] = FinalReads(*_runs(offset[a:z]), queries.lo[ended], queries.inv[ended])
    return finals


def _is_end(rows: Rows, at: Ints) -> Bools:
    queries = rows.queries
    return np.asarray(~queries.is_read[at] & (queries.lo[at] >= 0))


def _runs(offset: I64) -> tuple[I64, I64]:
    """The ranges of the offsets that reads returned, from the offsets in the order of the reads."""
    first = np.flatnonzero(np.diff(offset, prepend=np.int64(-2)) != 1)
    last = np.append(first[1:], len(offset))[: len(first)] - 1
    return _union(offset[first], offset[last] + 1)


def _union(start: I64, stop: I64) -> tuple[I64, I64]:
    """Disjoint ascending ranges with the same union as the given ones."""
    if not len(start):
        return start, stop
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(stop[order])
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return start[first], reach[np.append(first[1:], len(start)) - 1]
