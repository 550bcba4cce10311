"""What becomes of a campaign's directory: the gate lets nothing through that is not whole, own and fresh."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.command.line import main
from orchestrator.errors import EXIT_FAIL, EXIT_PASS, EXIT_UNKNOWN
from tests.mutations.bench import Bench
from tests.mutations.stored import Stored


@pytest.fixture
def campaign(bench: Bench, tmp_path: Path) -> Path:
    """A copy of the store with the campaign of the base run; the campaign's directory."""
    source = bench.bases["log"].parent
    ignored = shutil.ignore_patterns("plots", "tables", "spark")
    return Path(shutil.copytree(source, tmp_path / "store" / source.name, ignore=ignored))


def the_run(campaign: Path) -> Stored:
    (run,) = [path.parent for path in campaign.glob("*/run.toml")]
    return Stored(run)


def says(**fields: object) -> Callable[[Path], None]:
    """A change of the run's verdict."""

    def change(campaign: Path) -> None:
        the_run(campaign).edit("verdict.json", lambda data: json.dumps(json.loads(data) | fields).encode())

    return change


def on_run(change: Callable[[Stored], None]) -> Callable[[Path], None]:
    return lambda campaign: change(the_run(campaign))


CHANGES: dict[str, Callable[[Path], None]] = {
    "the run is missing": on_run(lambda run: shutil.rmtree(run.path)),
    "the plan is missing": lambda campaign: shutil.rmtree(campaign / "plans"),
    "the verdict is missing": on_run(lambda run: run.remove("verdict.json")),
    "the verdict is empty": on_run(lambda run: run.empty("verdict.json")),
    "the verdict is torn": on_run(lambda run: run.edit("verdict.json", lambda data: data[:200])),
    "the verdict is of another run": says(run="20200101T000000ff-main-9"),
    "the verdict is of another cell": says(cell="other"),
    "the verdict is of another seed": says(seed=99),
    "the verdict is of another campaign": says(campaign="other"),
    "the verdict has reasons": says(reasons=["something was missing"]),
    "the verdict is unknown": says(verdict="unknown", met=False),
    "the verdict is fail": says(verdict="fail", met=False),
    "the verdict is something else": says(verdict="green"),
    "fail was met": says(verdict="fail", met=True, expected={"verdict": "fail", "anomaly": None}),
    "the verdict is stale: a record grew": on_run(
        lambda run: run.edit("history/operations/producer-1-1.arrows", lambda data: data + b"x")
    ),
    "the verdict is stale: a replica is gone": on_run(lambda run: run.remove("nodes/n1/data/log-0")),
    "the verdict is stale: the journal ends early": on_run(
        lambda run: run.edit("history/journal.jsonl", lambda data: data[:-9])
    ),
    "the verdict is stale: another plan": on_run(lambda run: run.plan(r"^min_ok = \d+$", "min_ok = 1")),
}


def test_the_real_campaign_is_let_through(campaign: Path) -> None:
    assert main(["gate", str(campaign)]) == EXIT_PASS


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_else_is(campaign: Path, name: str) -> None:
    CHANGES[name](campaign)
    assert main(["gate", str(campaign)]) in (EXIT_FAIL, EXIT_UNKNOWN)
