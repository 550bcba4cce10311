"""Writes a store's `index.html`: all campaigns and runs, with search and filters, in one file.

In its trends every invocation in the store counts, also one that a later one supersedes: a trend is about the past.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from analysis.run_row import RunRow
from history.regular_files import replace_text
from installation.sanitize import visible_line
from orchestrator.campaign.plan import invocation_of
from orchestrator.store.index import IndexedCampaign, ordered

# ---- How a campaign's results develop over its invocations: pass rate, latency and outages, by version.

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


def trends(runs: Iterable[RunRow]) -> Iterator[TrendPoint]:
    """The invocations of each campaign, oldest first. Runs without a verdict are left out."""
    found: dict[tuple[str, str], list[RunRow]] = {}
    for row in sorted(runs, key=lambda row: (row.campaign, row.run)):
        if row.world:  # known from a verdict only
            found.setdefault((row.campaign, invocation_of(row.run)), []).append(row)
    return map(_point, found.values())


def _point(runs: Sequence[RunRow]) -> TrendPoint:
    met = [run for run in runs if run.met]
    return TrendPoint(
        runs[0].campaign,
        invocation_of(runs[0].run),
        runs[0].made,
        ", ".join(sorted({run.world for run in runs})),
        ", ".join(sorted({version for run in runs for version in _versions(run)})),
        len(runs),
        len(met),
        _median(met, "latency_p99_ms"),
        _median(met, "longest_outage_s"),
    )


def _versions(run: RunRow) -> Iterator[str]:
    """Of Brownout and of the system under test."""
    for name in dict.fromkeys((_COMMIT, run.system)):
        if name in run.versions:
            yield f"{name} {run.versions[name]}"


def _median(runs: Sequence[RunRow], figure: str) -> float | None:
    values = [run.stats[figure] for run in runs if figure in run.stats]
    return round(statistics.median(values), 3) if values else None


PAGE: Final = "index.html"


def write_index(store: Path, campaigns: Sequence[IndexedCampaign]) -> Path:
    """Write the page of these campaigns into the store's directory; returns its path. Raises `OSError`."""
    replace_text(store / PAGE, index_of(store, campaigns))
    return store / PAGE


def index_of(store: Path, campaigns: Sequence[IndexedCampaign]) -> str:
    """The page of these campaigns."""
    from analysis.report import link_to, page_of  # imports the templates, which only this function needs

    rows = ordered(tuple(campaigns))
    return page_of(
        "store.html",
        title=store.name,
        written=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        count=len(rows),
        campaigns=sorted(campaigns, key=lambda campaign: (campaign.verdict == "pass", campaign.name)),
        worlds=sorted({visible_line(row.world) for row in rows if row.world}),
        data={
            "rows": [{**row.to_json(), "link": link_to(row.report)} for row in rows],
            "trends": [point.to_json() for point in trends(rows)],
        },
    )
