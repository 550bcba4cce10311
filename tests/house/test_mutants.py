"""docs/mutants.md tells of every mutant, and every mutant has a campaign that expects its death."""

from __future__ import annotations

import tomllib
from pathlib import Path

from broker.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_names_every_mutant() -> None:
    page = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    assert [name for name in MUTANTS if f"`{name}`" not in page] == []


def test_every_mutant_has_a_cell_that_expects_one_of_its_anomalies() -> None:
    killed: dict[str, set[str]] = {}
    for path in sorted((ROOT / "campaigns").glob("*.toml")):
        for cell in tomllib.loads(path.read_text(encoding="utf-8")).get("cell", []):
            for mutant in cell.get("mutants", []):
                killed.setdefault(mutant, set()).add(cell.get("expect", {}).get("anomaly", ""))
    assert killed.keys() == MUTANTS.keys()
    for name, anomalies in killed.items():
        assert anomalies <= set(MUTANTS[name].anomaly.split(", ")), name
