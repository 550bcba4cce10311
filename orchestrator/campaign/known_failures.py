"""Classifies failures as new, known or resolved.

A signature is an anomaly of a system in a cell that must not have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from analysis.summary import RunSummary
from analysis.verdict import FAIL
from orchestrator.campaign.policy_file import KnownFailure


@dataclass(frozen=True, order=True)
class Signature:
    anomaly: str
    system: str
    cell: str

    def __str__(self) -> str:
        return f"{self.anomaly} of {self.system or 'the system'} in cell {self.cell}"


@dataclass(frozen=True)
class Signatures:
    """`new`: neither listed nor in the baseline. `unresolved`: also in the baseline. `known`: listed, with the entry of
    the list; `expired`: listed, but the entry has expired. `resolved`: in the baseline or listed, and not seen now.
    `excused`: by run, why its failure is allowed."""

    new: tuple[Signature, ...]
    unresolved: tuple[Signature, ...]
    known: Mapping[Signature, KnownFailure]
    expired: Mapping[Signature, KnownFailure]
    resolved: tuple[str, ...]
    excused: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "new": list(map(str, self.new)),
            "unresolved": list(map(str, self.unresolved)),
            "known": {str(each): known.reason for each, known in self.known.items()},
            "expired": {str(each): known.reason for each, known in self.expired.items()},
            "resolved": list(self.resolved),
            "excused": dict(self.excused),
        }


def signatures_of(
    entries: Sequence[RunSummary], baseline: Sequence[RunSummary] | None, listed: Sequence[KnownFailure], today: date
) -> Signatures:
    """Compare the failures with a baseline, if there is one, and with the list of known failures."""
    by_run = {entry.run: _of(entry) for entry in entries}
    believed = {entry.run for entry in entries if not entry.doubts}
    seen = sorted({signature for found in by_run.values() for signature in found})
    before = {signature for entry in baseline or () for signature in _of(entry)}
    by_end = sorted(listed, key=lambda known: known.expires)  # of several matching entries the last to expire applies
    fitting = {each: known for each in seen for known in by_end if known.fits(each.anomaly, each.system, each.cell)}
    known = {each: entry for each, entry in fitting.items() if entry.expires >= today}
    excused = {
        run: "; ".join(sorted({known[each].reason for each in found}))
        for run, found in by_run.items()
        if found and run in believed and all(each in known for each in found)
    }
    unseen = [str(each) for each in sorted(before - set(seen))]
    unseen += [
        f"{known.anomaly} (listed: {known.reason})"
        for known in listed
        if not any(known.fits(each.anomaly, each.system, each.cell) for each in seen)
    ]
    return Signatures(
        new=tuple(each for each in seen if each not in fitting and each not in before),
        unresolved=tuple(each for each in seen if each not in fitting and each in before),
        known=known,
        expired={each: entry for each, entry in fitting.items() if each not in known},
        resolved=tuple(unseen),
        excused=excused,
    )


def _of(entry: RunSummary) -> list[Signature]:
    """Of a run that failed and was not expected to. An anomaly beside the expected one of a mutant is the mutant's
    own."""
    if entry.verdict != FAIL or entry.expected.startswith(FAIL):
        return []
    return [Signature(anomaly, entry.system, entry.cell) for anomaly in entry.anomalies]
