"""How a campaign's results develop over its invocations: pass rate, latency and outages, by version.

Every invocation in the store counts, also one that a later one supersedes: a trend is about the past.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.summary import RunSummary
from orchestrator.campaign.plan import invocation_of
from orchestrator.campaign.store_index import IndexedRun

_COMMIT = "brownout"


@dataclass(frozen=True)
class TrendPoint:
    """One invocation of a campaign. `version`: of Brownout's commit and of the system under test. `met`: of its `runs`,
    those that met their expectation. The figures are medians over its runs that met it, None if not measured."""

    campaign: str
    invocation: str
    made: str
    world: str
    version: str
    runs: int
    met: int
    latency_p99_ms: float | None
    longest_outage_s: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def trends(runs: Iterable[IndexedRun]) -> Iterator[TrendPoint]:
    """The invocations of each campaign, oldest first. Runs without a verdict are left out."""
    found: dict[str, dict[str, list[IndexedRun]]] = {}
    for row in sorted(runs, key=lambda row: (row.campaign, row.summary.run)):
        if row.summary.world:  # known from a verdict only
            found.setdefault(row.campaign, {}).setdefault(invocation_of(row.summary.run), []).append(row)
    for campaign, invocations in found.items():
        for stamp, rows in invocations.items():
            yield _point(campaign, stamp, rows[0].made, [row.summary for row in rows])


def _point(campaign: str, stamp: str, made: str, runs: Sequence[RunSummary]) -> TrendPoint:
    met = [run for run in runs if run.met]
    return TrendPoint(
        campaign,
        stamp,
        made,
        ", ".join(sorted({run.world for run in runs})),
        ", ".join(sorted({version for run in runs for version in _versions(run)})),
        len(runs),
        len(met),
        _median(met, "latency_p99_ms"),
        _median(met, "longest_outage_s"),
    )


def _versions(run: RunSummary) -> Iterator[str]:
    """Of Brownout and of the system under test."""
    for name in dict.fromkeys((_COMMIT, run.system)):
        if name in run.versions:
            yield f"{name} {run.versions[name]}"


def _median(runs: Sequence[RunSummary], figure: str) -> float | None:
    values = [run.stats[figure] for run in runs if figure in run.stats]
    return round(statistics.median(values), 3) if values else None
