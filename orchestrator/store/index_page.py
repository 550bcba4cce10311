"""Writes a store's `index.html`: all campaigns and runs, with search and filters, in one file."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from history.regular_files import replace_text
from installation.sanitize import visible_line
from orchestrator.store.index import IndexedCampaign, ordered
from orchestrator.store.trends import trends

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
