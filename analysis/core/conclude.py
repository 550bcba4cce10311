"""From a partition's summary and facts to what is wrong with it: the theorem's last step.

Here the values that only reads showed meet the appends they may be, and the gaps meet the appends that may fill them.
Every finding names offsets, values and times, which single out the operations that contradict each other; `explain`
fetches those and tells the story.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from analysis.core.evidence import ACK, FINAL, SEEN
from analysis.core.facts import Facts, FinalEnd, Offenders
from analysis.core.rows import I64
from analysis.core.scans import APPENDS, QUERIES, Pair
from analysis.core.summary import Located, Summary
from history import FAIL, INF, INFO, OK


@dataclass(frozen=True)
class Finding:
    """One kind of contradiction in a partition and what singles out its witness.

    `offsets`, `values`: where and which; `inv`, `ret`: the release and deadline that contradict each other, each with
    the kind of operation (APPENDS or QUERIES) it belongs to, or -1 when either may be; `process`: of a session.
    """

    name: str
    rule: str
    count: int
    offsets: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    inv: int = -1
    ret: int = -1
    kinds: tuple[int, int] = (-1, -1)
    process: int = -1


@dataclass(frozen=True)
class Placement:
    """Where loose appends ended up: `offset`, `value`, release and deadline. Ordered by offset."""

    offset: I64
    value: I64
    release: I64
    deadline: I64

    @classmethod
    def nothing(cls) -> Placement:
        return cls(*(np.empty(0, np.int64) for _ in range(4)))


@dataclass(frozen=True)
class Conclusion:
    """The state of one partition: linearizable iff `findings` is empty."""

    findings: tuple[Finding, ...]
    placed: Placement
    length: int
    final_end: FinalEnd | None
    stats: dict[str, int] = field(default_factory=dict)


def conclude(summary: Summary, facts: Facts) -> Conclusion:
    """Decides one partition."""
    final_end = facts.final_end()
    hits = _look_up(summary.located, facts)
    findings = [*_structural(summary, facts, hits)]
    elsewhere = {int(v) for v in summary.located.value[hits < 0]} if (hits < 0).any() else set()
    findings += _values_differ(summary, final_end, elsewhere)
    if final_end is not None:
        findings += _not_in_the_end(summary, facts, hits, elsewhere, final_end)
    first = _first_damage(findings)
    found, placed = _placements(summary, facts, hits, first)
    findings += [*found, *_realtime(summary, first), *_sessions(summary), *_orders(summary)]
    findings += _offences(facts)
    stats = {
        "gaps_filled": len(placed.offset) - int((hits >= 0).sum()),
        "located_by_reads": int((hits >= 0).sum()),
        "unlocated_acknowledged": int((facts.loose.type == OK).sum() - (facts.loose.type[hits[hits >= 0]] == OK).sum()),
    }
    return Conclusion(tuple(_joined(findings)), placed, summary.stop, final_end, {**facts.counts, **stats})


def _look_up(located: Located, facts: Facts) -> I64:
    """The index of the loose append that each located value is, or -1."""
    if not len(located.value) or not len(facts.loose.value):
        return np.full(len(located.value), -1, np.int64)
    order = np.argsort(facts.loose.value, kind="stable")
    values = facts.loose.value[order]
    at = np.minimum(np.searchsorted(values, located.value), len(values) - 1)
    return np.where(values[at] == located.value, order[at], -1)


def _structural(summary: Summary, facts: Facts, hits: I64) -> Iterator[Finding]:
    """C1 and C2: a value at two offsets, never produced, or produced by an append that failed."""
    located = summary.located
    unknown = np.flatnonzero(hits < 0)
    if len(unknown):
        # Not a loose append: either nobody's, or a bound append's that was acknowledged elsewhere.
        for at in unknown[:8].tolist():
            yield Finding("phantom", "unknown-value", 1, (int(located.offset[at]),), (int(located.value[at]),))
        if len(unknown) > 8:
            yield Finding("phantom", "unknown-value", len(unknown) - 8, values=(int(located.value[unknown[8]]),))
    known = np.flatnonzero(hits >= 0)
    failed = known[facts.loose.type[hits[known]] == FAIL]
    if len(failed):
        at = int(failed[0])
        yield Finding(
            "aborted-read", "failed-value", len(failed), (int(located.offset[at]),), (int(located.value[at]),)
        )
    order = known[np.lexsort((located.offset[known], hits[known]))]
    again = np.flatnonzero(hits[order][1:] == hits[order][:-1]) + 1
    if len(again):
        at = again[np.argmin(located.offset[order[again]])]
        where = (int(located.offset[order[at - 1]]), int(located.offset[order[at]]))
        yield Finding("duplicate", "value-twice", len(again), where, (int(located.value[order[at]]),))


def _values_differ(summary: Summary, final_end: FinalEnd | None, elsewhere: set[int]) -> Iterator[Finding]:
    """C1: several values claimed for one offset. Which of them was lost, if that can be told?"""
    extras, canon = summary.extras, summary.conflicts
    if not len(extras):
        return
    at: dict[int, list[tuple[int, int]]] = {}
    for each in (canon, extras):
        for offset, value, flags in zip(each.offset.tolist(), each.value.tolist(), each.flags.tolist(), strict=True):
            at.setdefault(offset, []).append((value, flags))
    for offset, claims in sorted(at.items()):
        values = tuple(value for value, _ in claims)
        told = False
        for value, flags in claims:
            others_seen = any(other & SEEN for v, other in claims if v != value)
            kept = bool(flags & FINAL) and final_end is not None
            if flags & ACK and others_seen and not kept and value not in elsewhere:
                told = True
                yield Finding("lost-acknowledged-write", "offset-holds-another", 1, (offset,), (value, *values))
            if flags & SEEN and final_end is not None and not flags & FINAL and value not in elsewhere:
                told = True
                yield Finding("committed-then-truncated", "seen-then-replaced", 1, (offset,), (value, *values))
        if not told:
            yield Finding("offset-mismatch", "two-values", 1, (offset,), values)


def _not_in_the_end(summary: Summary, facts: Facts, hits: I64, elsewhere: set[int], end: FinalEnd) -> Iterator[Finding]:
    """A complete final read decides: what it lacks, and was there before its end was asked, is gone."""
    missing = summary.missing
    if missing.count and missing.value not in elsewhere:
        yield Finding(
            "lost-acknowledged-write", "not-in-final-read", missing.count, (missing.offset,), (missing.value,)
        )
    found = np.zeros(len(facts.loose.value), np.bool_)
    found[hits[hits >= 0]] = True
    for index in np.flatnonzero((facts.loose.type == OK) & ~found).tolist():
        yield Finding("lost-acknowledged-write", "not-in-final-read", 1, (), (int(facts.loose.value[index]),))
    located = summary.located
    gone = np.flatnonzero(((located.flags & FINAL) == 0) & (located.latest < end.inv))
    gone = gone[hits[gone] >= 0]
    if len(gone):
        at = int(gone[0])
        where = (int(located.offset[at]),), (int(located.value[at]),)
        yield Finding("committed-then-truncated", "seen-not-in-final-read", len(gone), *where)


def _first_damage(findings: list[Finding]) -> int:
    """The first offset from which values were lost or replaced; order contradictions beyond it are consequences."""
    damage = {"lost-acknowledged-write", "committed-then-truncated", "offset-mismatch"}
    return min((offset for each in findings if each.name in damage for offset in each.offsets), default=INF)


def _placements(summary: Summary, facts: Facts, hits: I64, first_damage: int) -> tuple[list[Finding], Placement]:
    """C3 and the real-time bounds of loose appends: those that reads located, and those that must fill gaps."""
    located = summary.located
    known = np.flatnonzero((hits >= 0) & (facts.loose.type[hits] != FAIL)) if len(facts.loose.type) else hits[:0]
    index = hits[known]
    sure = facts.loose.type[index] == OK
    release, deadline = facts.loose.inv[index], np.where(sure, facts.loose.ret[index], INF)
    offset = located.offset[known]
    findings = []
    late = np.flatnonzero((release > located.latest[known]) & (offset < first_damage))
    if len(late):
        at = int(late[0])
        findings.append(_pair("located-late", int(offset[at]), int(release[at]), int(located.latest[known[at]]), 0, -1))
    early = np.flatnonzero((located.earliest[known] > deadline) & (offset < first_damage))
    if len(early):
        at = int(early[0])
        bounds = int(located.earliest[known[at]]), int(deadline[at])
        findings.append(_pair("located-early", int(offset[at]), *bounds, -1, 0))
    if sure.any():
        behind = np.maximum.accumulate(release)
        crossed = np.flatnonzero((behind > deadline) & (offset < first_damage))
        if len(crossed):
            at = int(crossed[0])
            findings.append(_pair("located-crossed", int(offset[at]), int(behind[at]), int(deadline[at]), 0, 0))
    placed = Placement(offset, located.value[known], release, deadline)
    free = (facts.loose.type == INFO) | (facts.loose.type == OK)
    free[index] = False
    unfilled, filled = _fill(summary, facts, np.flatnonzero(free), placed)
    return findings + unfilled, filled


def _pair(rule: str, offset: int, inv: int, ret: int, release_kind: int, deadline_kind: int) -> Finding:
    return Finding("append-reorder", rule, 1, (offset,), (), inv, ret, (release_kind, deadline_kind))


def _fill(summary: Summary, facts: Facts, free: I64, placed: Placement) -> tuple[list[Finding], Placement]:
    """Gaps in ascending order take the unused loose appends in order of invocation.

    Since no gap's `latest` is before an earlier gap's, an append too late for one gap may fit the next, and an append
    that fits is never needed more by a later gap: this fills as many gaps as can be filled.
    """
    gaps = summary.gaps
    if not gaps.count:
        return [], placed
    latest = gaps.latest
    if len(placed.deadline) and placed.deadline.min() < INF:
        behind = np.append(np.minimum.accumulate(placed.deadline[::-1])[::-1], INF)
        latest = np.minimum(latest, behind[np.searchsorted(placed.offset, gaps.start)])
    free = free[np.lexsort((facts.loose.value[free], facts.loose.inv[free]))]
    inv = facts.loose.inv[free].tolist()
    taken, where, next_free, unfilled = [], [], 0, 0
    findings: list[Finding] = []
    for start, stop, limit in zip(gaps.start.tolist(), gaps.stop.tolist(), latest.tolist(), strict=True):
        for offset in range(start, stop):
            if next_free == len(inv) or inv[next_free] > limit:
                if not unfilled:
                    candidate = int(facts.loose.value[free[next_free]]) if next_free < len(inv) else -1
                    findings.append(Finding("gap", "unfilled-offset", 1, (offset,), (candidate,), ret=limit))
                unfilled += stop - offset
                break
            taken.append(next_free)
            where.append(offset)
            next_free += 1
    findings = [replace(each, count=unfilled) for each in findings]
    return findings, _with_filled(placed, facts, free, taken, where)


def _with_filled(placed: Placement, facts: Facts, free: I64, taken: list[int], where: list[int]) -> Placement:
    index = free[taken] if taken else free[:0]
    offset = np.concatenate((placed.offset, np.array(where, np.int64)))
    order = np.argsort(offset, kind="stable")
    return Placement(
        offset[order],
        np.concatenate((placed.value, facts.loose.value[index]))[order],
        np.concatenate((placed.release, facts.loose.inv[index]))[order],
        np.concatenate((placed.deadline, np.full(len(index), INF, np.int64)))[order],
    )


NAMES = {
    (APPENDS, APPENDS): "append-reorder",
    (APPENDS, QUERIES): "future-read",
    (QUERIES, APPENDS): "stale-read",
    (QUERIES, QUERIES): "non-monotonic-high-watermark",
}


def _realtime(summary: Summary, first_damage: int) -> Iterator[Finding]:
    """The theorem's condition, by kind of release and deadline."""
    for index, pair in enumerate(summary.realtime.worst):
        kinds = (index // 2, index % 2)
        if pair is None or (pair.later >= first_damage and kinds != (QUERIES, QUERIES)):
            continue
        yield _from_pair(NAMES[kinds], "real-time", pair, kinds)


def _from_pair(name: str, rule: str, pair: Pair, kinds: tuple[int, int], process: int = -1) -> Finding:
    offsets = (pair.earlier, pair.later)
    return Finding(name, rule, 1, offsets, (), pair.release, pair.deadline, kinds, process)


def _sessions(summary: Summary) -> Iterator[Finding]:
    for process, pair in sorted(summary.sessions.worst.items()):
        yield _from_pair("session-violation", "session", pair, (QUERIES, -1), process)


def _orders(summary: Summary) -> Iterator[Finding]:
    """Acknowledged appends of one producer, pipelined, keep the order of their sequences."""
    for producer, pair in sorted(summary.producers.worst.items()):
        values = (producer << 32 | pair.release, producer << 32 | pair.deadline)
        name = "duplicate" if pair.release == pair.deadline else "producer-order"
        yield Finding(name, "sequence-falls", 1, (pair.earlier, pair.later), values)


def _offences(facts: Facts) -> Iterator[Finding]:
    def finding(name: str, rule: str, each: Offenders) -> Finding:
        return Finding(name, rule, each.count, (each.offset,), (), each.inv, process=each.process)

    if facts.skips.count:
        yield finding("poll-skip", "not-contiguous", facts.skips)
    if facts.overruns.count:
        yield finding("future-read", "past-own-bound", facts.overruns)


def _joined(findings: list[Finding]) -> Iterator[Finding]:
    """One finding per name and rule, the first stands for all; unknown values may yet turn out to differ in kind."""
    joined: dict[tuple[object, ...], Finding] = {}
    for each in findings:
        key = (each.name, each.rule, each.offsets if each.rule == "unknown-value" else ())
        known = joined.setdefault(key, each)
        if known is not each:
            joined[key] = replace(known, count=known.count + each.count)
    return iter(joined.values())
