"""A cell that expects a failure states what must hold in spite of it, so that no second bug hides behind it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import pytest

from orchestrator.campaign.parser import load

CAMPAIGNS: Final = sorted((Path(__file__).resolve().parents[2] / "campaigns").glob("*.toml"))
UNLIMITED: Final = frozenset(
    {
        ("tiered-join", "log-start"),
        ("tiered-join", "no-epochs"),
        ("tiered-lineage", "mutated"),
        ("tiered-unknown", "unknown-as-zero"),
        ("tiered-unknown", "one-too-high"),
    }
)
"""Cells without a statement: what a damaged remote log may show besides was not measured. The set may only shrink."""


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: path.stem)
def test_a_cell_that_must_fail_states_the_promises_that_hold(path: Path) -> None:
    told = {cell["name"]: cell.get("expect", {}) for cell in tomllib.loads(path.read_text("utf-8")).get("cell", [])}
    read = {cell.name: cell.expect for cell in load(path).cells}
    for name, expect in told.items():
        if expect.get("verdict") != "fail":
            continue
        assert read[name].must_hold == tuple(expect.get("must_hold", ())), name
        assert ("must_hold" in expect) != ((path.stem, name) in UNLIMITED), name
