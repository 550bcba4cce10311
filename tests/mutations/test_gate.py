"""Mutations of a campaign's directory: the gate passes only a complete, own and current one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.command.line import main
from orchestrator.errors import EXIT_FAIL, EXIT_PASS, EXIT_UNKNOWN
from tests.mutations.bench import Bench, judge, seal_again
from tests.mutations.stored import Stored, event


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


def resealed_without(run: Stored, name: str) -> None:
    run.remove(name)
    seal_again(run.path)
    judge(run.path)


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
    "the certificate is missing": on_run(lambda run: run.remove("certificate")),
    "the certificate is garbage": on_run(lambda run: run.edit("certificate/part-00000.parquet", lambda _: b"x")),
    "half of the certificate is missing": on_run(lambda run: run.remove("certificate/certificate.json")),
    "the certificate claims more": on_run(
        lambda run: run.edit("certificate/certificate.json", lambda data: data.replace(b'"format": 3', b'"format": 4'))
    ),
    "fail was met": says(verdict="fail", met=True, expected={"verdict": "fail", "anomaly": None}),
    "what a client printed is missing": on_run(lambda run: resealed_without(run, "clients/probe.log")),
    "the verdict is stale: a record grew": on_run(
        lambda run: run.edit("history/operations/producer-1-1.arrows", lambda data: data + b"x")
    ),
    "the verdict is stale: a replica is gone": on_run(lambda run: run.remove("nodes/n1/data/log-0")),
    "the verdict is stale: the journal ends early": on_run(
        lambda run: run.edit("history/journal.jsonl", lambda data: data[:-9])
    ),
    "the verdict is stale: another plan": on_run(lambda run: run.plan(r"^min_ok = \d+$", "min_ok = 1")),
}


def test_the_unchanged_campaign_passes_the_gate(campaign: Path) -> None:
    assert main(["gate", str(campaign)]) == EXIT_PASS


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", CHANGES)
def test_the_gate_refuses_every_other_change(campaign: Path, name: str) -> None:
    CHANGES[name](campaign)
    assert main(["gate", str(campaign)]) in (EXIT_FAIL, EXIT_UNKNOWN)


CONFIGURATION = "nodes/n2/server.properties"
CONSISTENT: dict[str, Callable[[Stored], None]] = {
    "another plan": lambda run: run.plan(r"^min_queries = 1$", "min_queries = 0"),
    "another time": lambda run: run.plan(r'^started = ".*"$', 'started = "2020-01-01T00:00:00+00:00"'),
    "other versions": lambda run: run.plan(r'^brownout = ".*"$', 'brownout = "fffffffffff"'),
    "another configuration": lambda run: run.text(CONFIGURATION, "^min.insync.replicas=2$", "min.insync.replicas=1"),
}
"""Changes of a run that was sealed and analyzed again after them."""


@pytest.mark.parametrize("name", CONSISTENT)
def test_the_gate_refuses_other_evidence_than_that_with_which_a_run_ended(
    campaign: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = the_run(campaign)
    CONSISTENT[name](run)
    seal_again(run.path)
    if judge(run.path).verdict != "pass":
        return
    assert main(["gate", str(campaign)]) == EXIT_UNKNOWN
    assert "the run's evidence is not that with which it ended" in capsys.readouterr().out


@pytest.mark.parametrize("base", ["simulated", "log", "group", "register"])
def test_the_gate_refuses_a_run_of_another_seed_under_the_planned_name(
    bench: Bench, tmp_path: Path, base: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan asks for seed 2, and the run of seed 1 is given its name, in its description and journal, too."""
    source = bench.bases[base].parent
    ignored = shutil.ignore_patterns("plots", "tables", "spark")
    campaign = Path(shutil.copytree(source, tmp_path / "store" / source.name, ignore=ignored))
    assert main(["gate", str(campaign)]) == EXIT_PASS
    run = the_run(campaign)
    old, new = run.path.name, run.path.name[:-1] + "2"
    (plan,) = (campaign / "plans").glob("*.toml")
    plan.write_text(plan.read_text().replace("seeds = []", "seeds = [2]").replace(old, new))
    renamed = Stored(run.path.rename(campaign / new))
    renamed.text("run.toml", old, new)
    renamed.plan(r"^seed = 1$", "seed = 2")
    renamed.plan(r"--seed 1", "--seed 2")
    renamed.change_lines(event("run_started"), lambda line: line.update(run=new, seed=2))
    for name in ("simulation.json", "history/oracles.json"):
        if (renamed / name).exists():
            renamed.text(name, old, new)
    seal_again(renamed.path)
    assert judge(renamed.path).verdict == "pass"
    assert main(["gate", str(campaign)]) == EXIT_UNKNOWN
    assert "has no digest of the run" in capsys.readouterr().out


def test_a_campaign_in_a_directory_named_latest_counts(campaign: Path) -> None:
    store = campaign.parent
    assert main(["gate", str(store)]) == EXIT_PASS
    shutil.copytree(campaign, store / "latest")
    assert main(["gate", str(store)]) == EXIT_UNKNOWN
