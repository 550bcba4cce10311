"""Mutations of a campaign's directory: the gate passes only a complete, own and current one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.verdict import Verdict
from history.regular_files import sha256_of
from orchestrator.campaign.gate import gate
from orchestrator.campaign.plan import derived_seed
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


def says_with_its_checksum(**fields: object) -> Callable[[Path], None]:
    """A change of the run's verdict with a correct checksum."""

    def change(campaign: Path) -> None:
        path = the_run(campaign) / "verdict.json"
        replace(Verdict.read(path), **fields).write(path)  # type: ignore[arg-type]

    return change


def without_the_check(name: str) -> Callable[[Path], None]:
    def change(campaign: Path) -> None:
        path = the_run(campaign) / "verdict.json"
        verdict = Verdict.read(path)
        left = tuple(check for check in verdict.checks if check.name != name)
        assert len(left) < len(verdict.checks)
        replace(verdict, checks=left).write(path)

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
    "the verdict has doubts": says_with_its_checksum(doubts=("something was missing",)),
    "the verdict is of another world": says_with_its_checksum(world="namespaces"),
    "the verdict has mutants": says_with_its_checksum(mutants=("truncate_to_hw",)),
    "the verdict has weaker bounds": says_with_its_checksum(upper_bound="lower-bound-only"),
    "the verdict has no limits": says_with_its_checksum(limits=()),
    "the verdict has other versions": says_with_its_checksum(versions={"python": "2"}),
    "the verdict has no checks": says_with_its_checksum(checks=()),
    "the verdict has no figures": says_with_its_checksum(stats={}),
    "the verdict has too few queries": says_with_its_checksum(stats={"acknowledged": 1_000, "queries_under_load": 0}),
    "the verdict has no faults": says_with_its_checksum(faults=()),
    "the replicas were not looked at": without_the_check("replicas"),
    "the clients were not looked at": without_the_check("partition logs"),
    "nothing was certified": without_the_check("certificate"),
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


OTHER_PLANS = {
    "no queries": (r"^min_queries = 1$", "min_queries = 0", "its checks.min_queries is 0, not 1"),
    "replicas are not read": (r'^format = "kafka"$', 'format = "none"', "its replicas.format is 'none', not 'kafka'"),
    "metadata are not read": (r'^format = "kraft"$', 'format = "none"', "its metadata.format is 'none', not 'kraft'"),
    "nodes without traces": (r"^traced = true$", "traced = false", "its metadata.traced is False, not True"),
    "weaker bounds": (r'^upper_bound = "strict"$', 'upper_bound = "session"', "its checks.upper_bound is 'session'"),
    "fewer in sync": (
        r'^"min.insync.replicas" = "2"$',
        '"min.insync.replicas" = "1"',
        "its settings.broker.min.insync.replicas is '1', not '2'",
    ),
    "records may go": (
        r"^\[settings.broker\]$",
        '[settings.broker]\n"log.retention.ms" = "1000"',
        "it has settings.broker.log.retention.ms = '1000'",
    ),
    "a limit of the world fewer": (r'^limits = \["[^"]*", ', "limits = [", "its limits lack"),
}
"""Other starts of a run: a pattern in its run.toml, its replacement, and the gate's message."""


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", OTHER_PLANS)
def test_the_gate_refuses_a_run_of_another_plan(campaign: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It started with such a plan, ended with it and was analyzed by it: complete, and not the planned run."""
    run, (pattern, replacement, words) = the_run(campaign), OTHER_PLANS[name]
    run.plan(pattern, replacement)
    run.change_lines(event("run_started"), lambda line: line.update(plan=sha256_of(run / "run.toml")))
    seal_again(run.path)
    judge(run.path)
    assert main(["gate", str(campaign)]) == EXIT_UNKNOWN
    assert words in capsys.readouterr().out


BEGUN: dict[str, tuple[dict[str, object], str]] = {
    "other versions": ({"versions": {"brownout": "fffffffffff"}}, "its versions is {'brownout': 'fffffffffff'}"),
    "another time": ({"started": "2020-01-01T00:00:00+00:00"}, "its started is '2020-01-01T00:00:00+00:00'"),
    "no time": ({"started": None}, "its started is None"),
    "no versions": ({"versions": None}, "its versions is None"),
    "no digest of the plan": ({"plan": None}, "the journal does not have the digest of run.toml"),
    "another digest of the plan": ({"plan": "0" * 64}, "the journal does not have the digest of run.toml"),
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", BEGUN)
def test_the_gate_refuses_a_run_with_another_first_journal_line(
    campaign: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, (fields, words) = the_run(campaign), BEGUN[name]
    run.change_lines(event("run_started"), lambda line: line.update(fields))
    seal_again(run.path)
    judge(run.path)
    assert main(["gate", str(campaign)]) == EXIT_UNKNOWN
    assert words in capsys.readouterr().out


def test_the_gate_refuses_a_run_of_another_time(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = the_run(campaign)
    run.plan(r'^started = ".*"$', 'started = "2020-01-01T00:00:00+00:00"')
    run.change_lines(event("run_started"), lambda line: line.update(plan=sha256_of(run / "run.toml")))
    seal_again(run.path)
    assert judge(run.path).verdict == "pass"
    assert main(["gate", str(campaign)]) == EXIT_UNKNOWN
    assert "its started is" in capsys.readouterr().out


def test_the_gate_refuses_a_run_of_forged_versions(campaign: Path) -> None:
    run = the_run(campaign)
    run.plan(r'^brownout = ".*"$', 'brownout = "fffffffffff"')
    run.change_lines(event("run_started"), lambda line: line.update(plan=sha256_of(run / "run.toml")))
    seal_again(run.path)
    assert judge(run.path).verdict == "pass"
    assert main(["gate", str(campaign)]) == EXIT_UNKNOWN


def renamed(campaign: Path, *, clients: bool) -> None:
    """The plan asks for seed 2, and the run of seed 1 is called so: in its description and in its journal; `clients`:
    in what the journal says of their seeds, too."""
    run = the_run(campaign)
    old, new = run.path.name, run.path.name[:-1] + "2"
    (plan,) = (campaign / "plans").glob("*.toml")
    plan.write_text(plan.read_text().replace("seeds = []", "seeds = [2]").replace(old, new))
    forged = Stored(run.path.rename(campaign / new))
    forged.text("run.toml", old, new)
    forged.plan(r"^seed = 1$", "seed = 2")
    forged.plan(r"--seed 1", "--seed 2")
    forged.change_lines(
        event("run_started"), lambda line: line.update(run=new, seed=2, plan=sha256_of(forged / "run.toml"))
    )
    for name in ("simulation.json", "history/oracles.json"):
        if (forged / name).exists():
            forged.text(name, old, new)
    if clients:
        forged.change_lines(event("client"), lambda line: line.update(seed=derived_seed(2, f"client/{line['client']}")))
    seal_again(forged.path)
    assert judge(forged.path).verdict == "pass"


@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    ("base", "clients", "words"),
    [
        ("simulated", False, "the client producer-1 used seed"),
        ("simulated", True, "simulation.json is of a world with the seed"),
        ("simulated", True, "of the cluster brownout-main-1, not of brownout-main-2"),
        ("log", False, "the client producer-1 used seed"),
        ("log", True, "nodes/n1/data/meta.properties is of the cluster brownout-"),
        ("group", True, "is not the one that the seed has drawn at that place"),
        ("register", True, "is not the one that the seed has drawn at that place"),
    ],
)
def test_the_gate_refuses_a_run_of_another_seed_under_the_planned_name(
    bench: Bench, tmp_path: Path, base: str, *, clients: bool, words: str
) -> None:
    source = bench.bases[base].parent
    ignored = shutil.ignore_patterns("plots", "tables", "spark")
    campaign = Path(shutil.copytree(source, tmp_path / "store" / source.name, ignore=ignored))
    assert main(["gate", str(campaign)]) == EXIT_PASS
    renamed(campaign, clients=clients)
    (entry,) = gate(campaign).entries
    assert entry.verdict == "unknown"
    assert words in " ".join(entry.reasons)


CONFIGURATION = "nodes/n2/server.properties"
OTHER_CONFIGURATIONS: dict[str, Callable[[Stored], None]] = {
    "it is missing": lambda run: run.remove(CONFIGURATION),
    "it is empty": lambda run: run.empty(CONFIGURATION),
    "it is another node's": lambda run: run.copy("nodes/n1/server.properties", CONFIGURATION),
    "another value": lambda run: run.text(CONFIGURATION, "^min.insync.replicas=2$", "min.insync.replicas=1"),
    "a setting fewer": lambda run: run.text(CONFIGURATION, "^min.insync.replicas=2\n", ""),
    "a setting more": lambda run: run.edit(CONFIGURATION, lambda data: data + b"log.flush.interval.messages=9\n"),
    "fewer voters": lambda run: run.text(CONFIGURATION, r",3@[^,]+$", ""),
    "another cluster": lambda run: run.text(CONFIGURATION, r"^cluster.id=brownout-", "cluster.id=other-"),
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", OTHER_CONFIGURATIONS)
def test_the_gate_refuses_nodes_of_another_configuration(
    campaign: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = the_run(campaign)
    OTHER_CONFIGURATIONS[name](run)
    seal_again(run.path)
    judge(run.path)
    assert main(["gate", str(campaign)]) == EXIT_UNKNOWN
    assert CONFIGURATION in capsys.readouterr().out


def test_a_campaign_in_a_directory_named_latest_counts(campaign: Path) -> None:
    store = campaign.parent
    assert main(["gate", str(store)]) == EXIT_PASS
    shutil.copytree(campaign, store / "latest")
    assert main(["gate", str(store)]) == EXIT_UNKNOWN
