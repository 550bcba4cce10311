"""Decides what is wrong with a partition, from its summary and facts: the theorem's last step.

Here values that only reads returned are matched with the appends that may have written them, and gaps with the appends
that may fill them. Every finding names offsets, values and times that identify the contradicting operations; `explain`
fetches those and writes the sentence.

An append that may be at several offsets (`LooseAppends.again`) gives each of them its invocation as release, and no
deadline: it is not known which copy an acknowledgement without an offset is about. Reads may locate any number of
copies. One more may fill a gap; that a gap has even more of them is not proven, so it ends in a doubt (`explain`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from analysis.core.aggregates import Facts, FinalEnd, Offenders
from analysis.core.log_finding import LogFinding
from analysis.core.lost_values import LOSSES, losses
from analysis.core.rows import I64
from analysis.core.scans import APPENDS, QUERIES, KeyedScan, Pair
from analysis.core.summary import LISTED, PRODUCER_SHIFT, SEQUENCE_MASK, Located, Summary
from history.record.schemas import FAIL, INF, INFO, OK

_SEPARATE: Final = frozenset({"unknown-value", "value-twice", "sequence-falls"})
"""Rules whose findings are not joined."""


@dataclass(frozen=True)
class Placement:
    """The offsets assigned to loose appends: `offset`, `value`, release and deadline. Ordered by offset."""

    offset: I64
    value: I64
    release: I64
    deadline: I64

    @classmethod
    def nothing(cls) -> "Placement":
        return cls(*(np.empty(0, np.int64) for _ in range(4)))


@dataclass(frozen=True)
class Conclusion:
    """The result for one partition: linearizable iff `findings` is empty."""

    findings: tuple[LogFinding, ...]
    placed: Placement
    length: int
    final_end: FinalEnd | None
    stats: dict[str, int] = field(default_factory=dict)
    deleted_to: int = 0


def conclude(summary: Summary, facts: Facts, deleted_to: int = 0) -> Conclusion:
    """Decides one partition. `deleted_to`: records of lower offsets may have been deleted."""
    facts = replace(facts, loose=facts.loose.in_order())  # so that the order does not depend on the ranges
    final_end = facts.final_end(deleted_to)
    hits = _look_up(summary.located, facts)
    findings = [*_structural(summary, facts, hits), *losses(summary, facts, hits, final_end, deleted_to)]
    first = _first_damage(findings)
    placement_findings, placed = _placements(summary, facts, hits, first)
    findings += [*placement_findings, *_realtime(summary, first), *_sessions(summary), *_orders(summary, facts, hits)]
    findings += _offences(facts)
    shown = np.unique(hits[hits >= 0])
    stats = {
        "gaps_filled": len(placed.offset) - int((hits >= 0).sum()),
        "located_by_reads": summary.named + int((hits >= 0).sum()),
        "unlocated_acknowledged": int((facts.loose.type == OK).sum() - (facts.loose.type[shown] == OK).sum()),
    }
    counts = {**facts.counts, **stats}
    return Conclusion(tuple(_joined(findings)), placed, summary.stop, final_end, counts, deleted_to)


def _look_up(located: Located, facts: Facts) -> I64:
    """The index of each located value's loose append, or -1."""
    if not len(located.value) or not len(facts.loose.value):
        return np.full(len(located.value), -1, np.int64)
    order = np.argsort(facts.loose.value, kind="stable")
    values = facts.loose.value[order]
    at = np.minimum(np.searchsorted(values, located.value), len(values) - 1)
    return np.where(values[at] == located.value, order[at], -1)


def _structural(summary: Summary, facts: Facts, hits: I64) -> Iterator[LogFinding]:
    """C1 and C2: a value at two offsets, never produced, or produced by an append that failed."""
    located = summary.located
    unknown = np.flatnonzero(hits < 0)
    # Not a loose append: either unknown, or of a bound append that was acknowledged elsewhere.
    for at, count in _listed(unknown):
        yield LogFinding("phantom", "unknown-value", count, (int(located.offset[at]),), (int(located.value[at]),))
    matched = np.flatnonzero(hits >= 0)
    failed = matched[facts.loose.type[hits[matched]] == FAIL]
    if len(failed):
        at = int(failed[0])
        yield LogFinding(
            "aborted-read", "failed-value", len(failed), (int(located.offset[at]),), (int(located.value[at]),)
        )
    matched = matched[facts.loose.again[hits[matched]] == 0]
    order = matched[np.lexsort((located.offset[matched], hits[matched]))]
    repeats = np.flatnonzero(hits[order][1:] == hits[order][:-1]) + 1
    for at, count in _listed(repeats[np.argsort(located.offset[order[repeats]])]):
        offsets = (int(located.offset[order[at - 1]]), int(located.offset[order[at]]))
        yield LogFinding("duplicate", "value-twice", count, offsets, (int(located.value[order[at]]),))


def _listed(places: I64) -> Iterator[tuple[int, int]]:
    """At most LISTED places, each with the number of those that it represents: the last one represents the rest."""
    last = min(len(places), LISTED) - 1
    for number, place in enumerate(places[: last + 1].tolist()):
        yield place, len(places) - last if number == last else 1


def _first_damage(findings: list[LogFinding]) -> int:
    """The first offset from which values were lost or replaced; order contradictions beyond it are consequences."""
    damage = {*LOSSES, "offset-mismatch"}
    return min((offset for finding in findings if finding.name in damage for offset in finding.offsets), default=INF)


def _placements(summary: Summary, facts: Facts, hits: I64, first_damage: int) -> tuple[list[LogFinding], Placement]:
    """C3 and the real-time bounds of loose appends: those that reads located, and those that must fill gaps."""
    located = summary.located
    matched = np.flatnonzero((hits >= 0) & (facts.loose.type[hits] != FAIL)) if len(facts.loose.type) else hits[:0]
    index = hits[matched]
    sure = (facts.loose.type[index] == OK) & (facts.loose.again[index] == 0)
    release, deadline = facts.loose.inv[index], np.where(sure, facts.loose.ret[index], INF)
    offset = located.offset[matched]
    findings = []
    late = np.flatnonzero((release > located.latest[matched]) & (offset < first_damage))
    if len(late):
        at = int(late[0])
        findings.append(
            _pair("located-late", int(offset[at]), int(release[at]), int(located.latest[matched[at]]), 0, -1)
        )
    early = np.flatnonzero((located.earliest[matched] > deadline) & (offset < first_damage))
    if len(early):
        at = int(early[0])
        bounds = int(located.earliest[matched[at]]), int(deadline[at])
        findings.append(_pair("located-early", int(offset[at]), *bounds, -1, 0))
    if sure.any():
        latest_release = np.maximum.accumulate(release)
        crossed = np.flatnonzero((latest_release > deadline) & (offset < first_damage))
        if len(crossed):
            at = int(crossed[0])
            findings.append(_pair("located-crossed", int(offset[at]), int(latest_release[at]), int(deadline[at]), 0, 0))
    placed = Placement(offset, located.value[matched], release, deadline)
    free = (facts.loose.type == INFO) | (facts.loose.type == OK)
    free[index] = facts.loose.again[index] != 0
    unfilled, filled = _fill(summary, facts, np.flatnonzero(free), placed)
    return findings + unfilled, filled


def _pair(rule: str, offset: int, inv: int, ret: int, release_kind: int, deadline_kind: int) -> LogFinding:
    return LogFinding("append-reorder", rule, 1, (offset,), (), inv, ret, (release_kind, deadline_kind))


def _fill(summary: Summary, facts: Facts, free: I64, placed: Placement) -> tuple[list[LogFinding], Placement]:
    """Assigns the unused loose appends to gaps: gaps in ascending order, appends in order of invocation.

    No gap's `latest` is before an earlier gap's, so an append that is too late for one gap may fit the next, and an
    append that fits is never needed more by a later gap. Therefore this fills as many gaps as possible.
    """
    gaps = summary.gaps
    if not gaps.count:
        return [], placed
    latest = gaps.latest
    if len(placed.deadline) and placed.deadline.min() < INF:
        next_deadline = np.append(np.minimum.accumulate(placed.deadline[::-1])[::-1], INF)
        latest = np.minimum(latest, next_deadline[np.searchsorted(placed.offset, gaps.start)])
    free = free[np.lexsort((facts.loose.value[free], facts.loose.inv[free]))]
    inv = facts.loose.inv[free].tolist()
    filler_numbers, filled_offsets, next_free, unfilled = [], [], 0, 0
    findings: list[LogFinding] = []
    for start, stop, limit in zip(gaps.start.tolist(), gaps.stop.tolist(), latest.tolist(), strict=True):
        for offset in range(start, stop):
            if next_free == len(inv) or inv[next_free] > limit:
                if not unfilled:
                    candidate = int(facts.loose.value[free[next_free]]) if next_free < len(inv) else -1
                    findings.append(LogFinding("gap", "unfilled-offset", 1, (offset,), (candidate,), ret=limit))
                unfilled += stop - offset
                break
            filler_numbers.append(next_free)
            filled_offsets.append(offset)
            next_free += 1
    findings = [replace(finding, count=unfilled) for finding in findings]
    return findings, _with_filled(placed, facts, free, filler_numbers, filled_offsets)


def _with_filled(
    placed: Placement, facts: Facts, free: I64, filler_numbers: list[int], filled_offsets: list[int]
) -> Placement:
    index = free[filler_numbers] if filler_numbers else free[:0]
    offset = np.concatenate((placed.offset, np.array(filled_offsets, np.int64)))
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


def _realtime(summary: Summary, first_damage: int) -> Iterator[LogFinding]:
    """The theorem's condition, for each kind of release and deadline."""
    for index, pair in enumerate(summary.realtime.worst):
        kinds = (index // 2, index % 2)
        if pair is None or (pair.later >= first_damage and kinds != (QUERIES, QUERIES)):
            continue
        yield _from_pair(NAMES[kinds], "real-time", pair, kinds)


def _from_pair(name: str, rule: str, pair: Pair, kinds: tuple[int, int], session: int = -1) -> LogFinding:
    offsets = (pair.earlier, pair.later)
    return LogFinding(name, rule, 1, offsets, (), pair.release, pair.deadline, kinds, session=session)


def _sessions(summary: Summary) -> Iterator[LogFinding]:
    for session, pair in sorted(summary.sessions.worst.items()):
        yield _from_pair("session-violation", "session", pair, (QUERIES, -1), session)


def _orders(summary: Summary, facts: Facts, hits: I64) -> Iterator[LogFinding]:
    """Acknowledged, pipelined appends of one producer keep the order of their sequences: those acknowledged with an
    offset among each other, and those whose offset only reads show."""
    located, matched = summary.located, np.flatnonzero(hits >= 0)
    sure = matched[(facts.loose.type[hits[matched]] == OK) & (facts.loose.again[hits[matched]] == 0)]
    sure = sure[np.unique(hits[sure], return_index=True)[1]]  # a value that was returned twice is a duplicate
    sure.sort()
    value = located.value[sure]
    shown = KeyedScan.of_sequences(value >> PRODUCER_SHIFT, value & SEQUENCE_MASK, located.offset[sure])
    for producer, pair in sorted({**shown.worst, **summary.producers.worst}.items()):
        values = (producer << 32 | pair.release, producer << 32 | pair.deadline)
        name = "duplicate" if pair.release == pair.deadline else "producer-order"
        yield LogFinding(name, "sequence-falls", 1, (pair.earlier, pair.later), values)


def _offences(facts: Facts) -> Iterator[LogFinding]:
    def finding(name: str, rule: str, offenders: Offenders) -> LogFinding:
        return LogFinding(
            name, rule, offenders.count, (offenders.offset,), (), offenders.inv, process=offenders.process
        )

    if facts.skips.count:
        yield finding("poll-skip", "not-contiguous", facts.skips)
    if facts.regressions.count:
        yield finding("poll-regression", "goes-back", facts.regressions)
    if facts.overruns.count:
        yield finding("future-read", "past-own-bound", facts.overruns)


def _joined(findings: list[LogFinding]) -> Iterator[LogFinding]:
    """One finding per name and rule; the first represents all. Values that are unknown, twice in the log, or out of
    order stay separate: they may differ in kind, or some may be lawful."""
    joined: dict[tuple[object, ...], LogFinding] = {}
    for finding in findings:
        key = (finding.name, finding.rule, finding.offsets if finding.rule in _SEPARATE else ())
        representative = joined.setdefault(key, finding)
        if representative is not finding:
            also = (*representative.also, *finding.values[:1], *finding.also) if finding.name in LOSSES else ()
            joined[key] = replace(representative, count=representative.count + finding.count, also=also[:LISTED])
    return iter(joined.values())
