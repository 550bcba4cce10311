"""docs/mutants.md lists every mutant, and a campaign, or at least a test, expects to kill each."""

import re
import tomllib
from pathlib import Path

from broker.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_names_every_mutant() -> None:
    page = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    assert [name for name in MUTANTS if f"`{name}`" not in page] == []


def test_every_mutant_is_killed_by_a_campaign_or_by_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py")))
    killed_by_tests = set(re.findall(r'mark\.kills\("(\w+)"\)', tests))
    assert killed_by_tests <= MUTANTS.keys()
    killed: dict[str, set[str]] = {}
    for path in sorted((ROOT / "campaigns").rglob("*.toml")):
        for cell in tomllib.loads(path.read_text(encoding="utf-8")).get("cell", []):
            if cell.get("expect", {}).get("verdict") == "pass":
                continue
            for mutant in cell.get("mutants", [])[:1]:  # those behind it are the circumstances
                killed.setdefault(mutant, set()).add(cell.get("expect", {}).get("anomaly", ""))
    assert killed.keys() | killed_by_tests == MUTANTS.keys()
    for name, anomalies in killed.items():
        assert anomalies <= set(MUTANTS[name].anomaly.split(", ")), name
