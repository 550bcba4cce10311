"""Decides what is wrong with a partition, from its summary and facts: the theorem's last step.

Here values that only reads returned are matched with the appends that may have written them, and gaps with the appends
that may fill them. Every finding names offsets, values and times that identify the contradicting operations; `explain`
fetches those and writes the sentence.

An append that may be at several offsets (`LooseAppends.again`) gives each of them its invocation as release, and no
deadline: it is not known which copy an acknowledgement without an offset is about. Reads may locate any number of
copies. One more may fill a gap; that a gap has even more of them is not proven, so it ends in a doubt (`explain`).

A complete final read decides: an acknowledged value that it lacks at every offset is lost. Without one, a value is lost
if a different value was read in its place, if a different value was acknowledged there too, or if the log was shown to
end before it. Each lost value is reported once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from analysis.core.aggregates import Facts, FinalEnd, FinalReads, Offenders
from analysis.core.evidence import ACK, FINAL, SEEN
from analysis.core.rows import I64, Bools
from analysis.core.scans import APPENDS, QUERIES, KeyedScan, Pair
from analysis.core.summary import LISTED, PRODUCER_SHIFT, SEQUENCE_MASK, Located, Summary
from history.record.schemas import FAIL, INF, INFO, OK

# ---- Finds lost values, from values at one offset, the final reads and the final ends.

# ---- A contradiction in a partition, in numbers: `decide` finds it, `explain` puts it into words.


@dataclass(frozen=True)
class LogFinding:
    """One kind of contradiction in a partition, with what identifies its witness.

    `offsets`, `values`: where and which; `inv`, `ret`: the release and deadline that contradict each other; `kinds`:
    the kind of operation (APPENDS or QUERIES) of each, or -1 for either; `process`: of a query that contradicts itself;
    `session`: the client's (process << 32 | session). `also`: further values for which the same is true, at most
    LISTED.
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
    session: int = -1
    also: tuple[int, ...] = ()


LOST: Final = "lost-acknowledged-write"
TRUNCATED: Final = "committed-then-truncated"
LOSSES: Final = (TRUNCATED, LOST)


def losses(summary: Summary, facts: Facts, hits: I64, end: FinalEnd | None, deleted_to: int) -> Iterator[LogFinding]:
    """The lost and truncated values of a partition, and offsets with several values that are not known to be lost.

    `hits`: the index of each located value's loose append, or -1; `end`: the result of a complete final read, which
    proves nothing about offsets below `deleted_to`.
    """
    if end is None and not len(facts.finals.end) and not len(summary.extras):
        return
    misplaced = _seen_away(summary, final=end is not None)
    for offset, claims in _conflicts(summary, misplaced):
        yield from _at_one_offset(offset, claims, facts.finals, end if offset >= deleted_to else None)
    if end is None:
        yield from _beyond_the_end(summary, facts.finals, misplaced)
    else:
        yield from _not_in_the_end(summary, facts, hits, end, misplaced, finds_all=not deleted_to)


class _Claim(NamedTuple):
    """A value claimed for an offset. `ret`: when it was acknowledged; `away`: it was seen at another offset."""

    value: int
    flags: int
    ret: int
    canonical: bool
    away: bool


def _seen_away(summary: Summary, *, final: bool) -> I64:
    """Values that reads (or only final ones) returned at another offset than acknowledged: they are misplaced, not
    lost."""
    wanted_flag = FINAL if final else SEEN
    places = (summary.located, summary.extras, summary.conflicts)
    return np.concatenate(
        [place.value[((place.flags & ACK) == 0) & ((place.flags & wanted_flag) != 0)] for place in places]
    )


def _conflicts(summary: Summary, misplaced: I64) -> Iterator[tuple[int, list[_Claim]]]:
    """The offsets for which several values are claimed, ascending."""
    at: dict[int, list[_Claim]] = {}
    for canonical, claims in ((True, summary.conflicts), (False, summary.extras)):
        columns = (claims.offset, claims.value, claims.flags, claims.deadline, np.isin(claims.value, misplaced))
        for offset, value, flags, ret, is_away in zip(*(column.tolist() for column in columns), strict=True):
            at.setdefault(offset, []).append(_Claim(value, flags, ret, canonical, is_away))
    return iter(sorted(at.items()))


def _at_one_offset(offset: int, claims: list[_Claim], finals: FinalReads, end: FinalEnd | None) -> Iterator[LogFinding]:
    """C1: several values for one offset, and which of them is lost if that is known."""
    values = tuple(claim.value for claim in claims)
    doubtful = [claim for claim in claims if not claim.flags & FINAL and not claim.away]
    is_reported = False
    for claim in doubtful:
        other_claims = [other for other in claims if other.value != claim.value]
        replaced = any(other.flags & SEEN for other in other_claims)
        ended = end is not None or bool(_excluded(finals, np.array([offset]), np.array([claim.ret])).any())
        if claim.flags & ACK and (replaced or ended):
            is_reported = True
            if end is None or not claim.canonical:  # else `missing` has it
                rule = "offset-holds-another" if replaced else "not-in-final-read"
                yield LogFinding(LOST, rule, 1, (offset,), (claim.value, *values))
        if claim.flags & SEEN and (end is not None or any(other.flags & FINAL for other in other_claims)):
            is_reported = True
            yield LogFinding(TRUNCATED, "seen-then-replaced", 1, (offset,), (claim.value, *values))
    if is_reported:
        return
    rivals = sorted((claim for claim in doubtful if claim.flags & ACK), key=lambda claim: (claim.ret, claim.value))
    for claim in rivals[:-1]:
        yield LogFinding(LOST, "acknowledged-at-one-offset", 1, (offset,), (claim.value, rivals[-1].value))
    yield LogFinding("offset-mismatch", "two-values", 1, (offset,), values)


def _beyond_the_end(summary: Summary, finals: FinalReads, misplaced: I64) -> Iterator[LogFinding]:
    """Without a complete final read: values acknowledged before the log was shown to end where they should be."""
    missing = summary.missing
    lost = _excluded(finals, missing.offset, missing.ret)
    lost &= ~np.isin(missing.value, misplaced) & ~np.isin(missing.offset, summary.conflicts.offset)
    if lost.any():
        yield _loss("not-in-final-read", int(lost.sum()), missing.offset[lost], missing.value[lost])


def _excluded(finals: FinalReads, offset: I64, ret: I64) -> Bools:
    """Whether the longest end that a final query invoked after `ret` returned is at or before each offset."""
    since = finals.end_inv[None, :] > ret[:, None]
    longest = np.where(since, finals.end[None, :], -1).max(axis=1, initial=-1)
    return np.asarray(since.any(axis=1) & (longest <= offset))


def _not_in_the_end(
    summary: Summary, facts: Facts, hits: I64, end: FinalEnd, misplaced: I64, *, finds_all: bool
) -> Iterator[LogFinding]:
    """A complete final read decides: what it lacks, and was acknowledged before its end query, is lost. `finds_all`:
    also if it was acknowledged without an offset; else its record may have been deleted."""
    missing, located, loose = summary.missing, summary.located, facts.loose
    lost = ~np.isin(missing.value, misplaced)
    if lost.any():
        count = missing.count - int((~lost).sum())
        yield _loss("not-in-final-read", count, missing.offset[lost], missing.value[lost])
    is_final = (located.flags & FINAL) != 0
    is_read = np.zeros(len(loose.value), np.bool_)
    is_read[hits[is_final & (hits >= 0)]] = True
    unfound = loose.value[(loose.type == OK) & ~is_read & ~np.isin(loose.value, misplaced)]
    for value in unfound.tolist() if finds_all else ():
        yield LogFinding(LOST, "not-in-final-read", 1, (), (value,))
    is_known = (hits >= 0) & ~np.isin(located.offset, summary.conflicts.offset)
    is_copy = is_known.copy()
    is_copy[is_known] = loose.again[hits[is_known]] != 0
    yield from _truncated(summary, is_known, is_copy, end)


def _truncated(summary: Summary, is_known: Bools, is_copy: Bools, end: FinalEnd) -> Iterator[LogFinding]:
    """Values that reads returned before the final end query, and no final read at any offset, or a copy not at its own.
    `is_known`: of each located value whether it has an append and no rival; `is_copy`: whether its append may be at
    several offsets."""
    located, named = summary.located, summary.unconfirmed
    is_final = (located.flags & FINAL) != 0
    final_values = located.value[is_final]
    is_lost = is_known & (located.latest < end.inv) & ~is_final & (is_copy | ~np.isin(located.value, final_values))
    is_lost_unconfirmed = (named.latest < end.inv) & ~np.isin(named.value, final_values)
    offset = np.concatenate((located.offset[is_lost], named.offset[is_lost_unconfirmed]))
    if len(offset):
        order = np.argsort(offset)
        value = np.concatenate((located.value[is_lost], named.value[is_lost_unconfirmed]))[order][:LISTED].tolist()
        # `latest` never falls from an offset to the next. What is not listed is between the first and the others.
        unlisted = named.count - len(named.offset) if is_lost_unconfirmed[1:].any() else 0
        count, offsets = len(offset) + unlisted, (int(offset[order[0]]),)
        yield LogFinding(TRUNCATED, "seen-not-in-final-read", count, offsets, (value[0],), also=tuple(value[1:]))


def _loss(rule: str, count: int, offset: I64, value: I64) -> LogFinding:
    return LogFinding(LOST, rule, count, (int(offset[0]),), (int(value[0]),), also=tuple(value[1:].tolist()))


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
