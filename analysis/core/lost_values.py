"""Finds lost values, from values at one offset, the final reads and the final ends.

A complete final read decides: an acknowledged value that it lacks at every offset is lost. Without one, a value is lost
if a different value was read in its place, if a different value was acknowledged there too, or if the log was shown to
end before it. Each lost value is reported once.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from analysis.core.aggregates import Facts, FinalEnd, FinalReads
from analysis.core.evidence import ACK, FINAL, SEEN
from analysis.core.log_finding import LogFinding
from analysis.core.rows import I64, Bools
from analysis.core.summary import LISTED, Summary
from history.record.schemas import OK

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
        yield _listed("not-in-final-read", int(lost.sum()), missing.offset[lost], missing.value[lost])


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
        yield _listed("not-in-final-read", count, missing.offset[lost], missing.value[lost])
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


def _listed(rule: str, count: int, offset: I64, value: I64) -> LogFinding:
    return LogFinding(LOST, rule, count, (int(offset[0]),), (int(value[0]),), also=tuple(value[1:].tolist()))
