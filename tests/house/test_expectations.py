"""A cell that expects a failure states the promises that hold, so that it does not hide a second bug."""

import tomllib
from pathlib import Path
from typing import Final

import pytest

from orchestrator.campaign.parser import load

CAMPAIGNS: Final = sorted((Path(__file__).resolve().parents[2] / "campaigns").rglob("*.toml"))


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: path.stem)
def test_a_cell_that_must_fail_states_the_promises_that_hold(path: Path) -> None:
    declared = {cell["name"]: cell.get("expect", {}) for cell in tomllib.loads(path.read_text("utf-8")).get("cell", [])}
    read = {cell.name: cell.expect for cell in load(path).cells}
    for name, expect in declared.items():
        if expect.get("verdict") != "fail":
            continue
        assert read[name].must_hold == tuple(expect.get("must_hold", ())), name
        assert expect.get("must_hold"), name
