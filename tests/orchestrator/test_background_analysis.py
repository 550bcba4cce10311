"""Runs are analyzed while the next ones are made."""

import contextlib
import json
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.verdict import Verdict
from orchestrator.command.line import parser
from orchestrator.command.run import analyzes_meanwhile
from orchestrator.errors import Interrupted
from orchestrator.running.engine import IN_PROCESS, Engine
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.runner import LOWEST, BackgroundAnalysis, Runner, RunOptions, plan_invocation
from orchestrator.store.directories import RunDirectory, Store
from orchestrator.worlds.inventory.lab import InventoryLab
from orchestrator.worlds.lab import Lab
from orchestrator.worlds.namespaces.lab import NamespaceLab
from orchestrator.worlds.selection import Selection
from orchestrator.worlds.vagrant.lab import VagrantLab
from tests.orchestrator.campaigns import campaign
from tests.orchestrator.stored_campaign import StoredCampaign, ask
from tests.orchestrator.test_lab_lifetime import TWO_RUNS, Trouble, fail, interrupt, lab_of, nothing


@pytest.fixture
def runs(tmp_path: Path) -> list[RunDirectory]:
    """Two runs that pass, without verdicts."""
    made = StoredCampaign(tmp_path / "store").made()
    for run in made:
        (run / "verdict.json").unlink()
    return [RunDirectory(run) for run in made]


def usual() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def added(runs: list[RunDirectory], niceness: int) -> BackgroundAnalysis:
    later = BackgroundAnalysis(Engine(IN_PROCESS, plots=False), niceness=niceness)
    for run in runs:
        lock = contextlib.ExitStack()
        lock.enter_context(run.held())
        later.add(run, lock)
    return later


@pytest.mark.parametrize(
    "niceness", [pytest.param(usual(), id="usual"), pytest.param(LOWEST, id="lowest", marks=pytest.mark.thorough)]
)
def test_a_process_of_this_priority_analyzes_the_runs_in_their_order(runs: list[RunDirectory], niceness: int) -> None:
    later = added(runs, niceness)
    assert later.unjudged == [run.path for run in runs]
    verdicts = later.rest()
    first = next(verdicts)
    (process,) = multiprocessing.active_children()
    assert process.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == niceness
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text().strip() == "1000"
    assert [run.is_held() for run in runs] == [False, True]
    assert [each.run for each in (first, *verdicts)] == [run.id for run in runs]
    assert [json.loads((run.path / "verdict.json").read_text())["verdict"] for run in runs] == ["pass"] * 2
    later.close()
    assert multiprocessing.active_children() == []
    assert later.unjudged == []


def test_a_process_that_ends_unexpectedly_makes_one_run_unknown(runs: list[RunDirectory]) -> None:
    later = added(runs, usual())
    (process,) = multiprocessing.active_children()
    process.kill()
    first, second = later.rest()
    later.close()
    assert (first.verdict, second.verdict) == ("unknown", "pass")
    assert "the process that analyzed it ended unexpectedly" in first.reasons[0]
    assert f"analyze {runs[0].path}" in first.reasons[0]
    assert not any(run.is_held() for run in runs)


class Slow(BackgroundAnalysis):
    """No result is there until all runs are made."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, niceness=usual())

    def ended(self) -> Iterator[Verdict]:
        return iter(())


def make(trouble: Trouble, store: Store, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Runner]:
    """Two runs whose analyses are slow; the lines that were printed, and the runner."""
    lines: list[str] = []

    class Ear(Progress):
        def say(self, text: str, *, dim: bool = False) -> None:
            del dim
            lines.append(text)

    monkeypatch.setattr("orchestrator.running.runner.BackgroundAnalysis", Slow)
    invocation = plan_invocation(store, campaign(TWO_RUNS), world="process")
    options = RunOptions(Selection(lab_of(trouble), "it is troubled"), Engine(IN_PROCESS), meanwhile=True)
    interrupts = Interrupts(on_first=nothing, on_second=nothing)
    runner = Runner(store, options, Ear(quiet=True), interrupts)
    with contextlib.suppress(Interrupted), interrupts.installed():
        runner.make_all(invocation)
    return lines, runner


def test_the_next_load_does_not_wait_and_results_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, runner = make(Trouble(), Store(tmp_path / "store"), monkeypatch)
    ids = [line.removeprefix("run ") for line in lines if line.startswith("run ")]
    results = [line for line in lines if ", expected " in line]
    assert [line.rpartition(": ")[2] for line in results] == ids
    assert lines.index(f"run {ids[1]}") < lines.index(results[0])
    assert runner.unjudged == []


def test_an_interrupt_names_the_runs_that_have_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = Trouble()
    ups = iter([fail, interrupt])
    trouble.at_up = lambda: next(ups)()
    lines, runner = make(trouble, Store(tmp_path / "store"), monkeypatch)
    first, _ = [line.removeprefix("run ") for line in lines if line.startswith("run ")]
    assert [run.name for run in runner.unjudged] == [first]


@pytest.mark.parametrize(
    ("words", "lab", "meanwhile"),
    [
        ([], InventoryLab, True),
        (["--keep"], InventoryLab, False),
        (["--no-analyze-meanwhile"], InventoryLab, False),
        ([], NamespaceLab, False),
        ([], VagrantLab, False),
        (["--analyze-meanwhile"], NamespaceLab, True),
    ],
)
def test_runs_are_analyzed_in_the_background_when_nodes_have_separate_processors(
    words: list[str], lab: type[Lab], meanwhile: bool
) -> None:
    argv = ["run", "demo", *words]
    assert analyzes_meanwhile(parser(argv).parse_args(argv), lab) is meanwhile


@pytest.mark.parametrize(
    ("words", "complaint"), [(["--keep"], "--keep needs the verdict"), (["--world", "simulation"], "--jobs N")]
)
def test_options_that_need_the_verdict_immediately_are_refused(
    tmp_path: Path, words: list[str], complaint: str
) -> None:
    result = ask("run", "demo", "--store", tmp_path, "--analyze-meanwhile", *words)
    assert result.code == 64
    assert complaint in result.err
