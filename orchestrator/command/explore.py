"""`brownout explore`: coverage-guided search for failures in the simulation."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from analysis.verdict import FAIL, PASS, UNKNOWN
from installation.counted import counted
from installation.files import default_store
from orchestrator.campaign.lookup import find, shortest, shown
from orchestrator.campaign.model import MAX_SEED, Campaign, Cell
from orchestrator.campaign.parser import load
from orchestrator.cleanup import always
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import engine_option, json_option, positive, store_option
from orchestrator.errors import EXIT_INTERRUPTED, EXIT_OF_VERDICT, Interrupted, UsageError
from orchestrator.printing import say
from orchestrator.running.engine import IN_PROCESS, Engine, choose_engine, engine_asked
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.versions import code
from orchestrator.search.coverage import DEEP, SOMETIMES
from orchestrator.search.exploring import (
    GUIDED,
    RANDOM,
    ROUND,
    Arm,
    Exploration,
    ExploredCell,
    Head,
    cheapest,
    explore,
    found_in,
    require_explorable,
)
from orchestrator.search.run_maker import Maker, make_to_stay, require_simulation, scratch
from orchestrator.search.task import Attempted, ExplorationTask, attempt, spread
from orchestrator.store.directories import Store

MOST_UNKNOWN = 20
"""The most unknown runs that are listed; the report has their total."""


def report_content(head: Head, arms: Sequence[Arm], runs_kept: Mapping[str, str], ended: str) -> dict[str, Any]:
    """All of it. `runs_kept`: by anomaly, the run in the store that shows it, as `campaign/run`."""
    runs = [attempted for arm in arms for attempted in arm.made]
    unknown = [run for run in runs if run.verdict == UNKNOWN]
    verdict = FAIL if any(run.verdict == FAIL for run in runs) else UNKNOWN if unknown or not runs else PASS
    return {
        "campaign": head.campaign,
        "cell": head.cell,
        "verdict": verdict,
        "ended": ended,
        "summary": f"{counted(len(runs), 'run')}, from seed {head.first}; {len(unknown)} of them unknown; {ended}",
        "found": [_found(arms, anomaly, count, runs_kept) for anomaly, count in sorted(found_in(runs).items())],
        "undecided": len(unknown),
        "unknown": [_unknown(run) for run in unknown[:MOST_UNKNOWN]],
        "arms": [_arm(arm) for arm in arms],
        "deep": [{"state": state, "runs": [_first_in(arm, state) for arm in arms]} for state in DEEP],
        "met": [
            {"met": name, "runs": [sum(name in run.met for run in arm.made) for arm in arms]} for name in SOMETIMES
        ],
        "comparison": comparison(arms),
    }


def _found(arms: Sequence[Arm], anomaly: str, count: int, runs_kept: Mapping[str, str]) -> dict[str, Any]:
    attempts = [attempted for arm in arms for attempted in arm.made]
    best, run = cheapest(attempts, anomaly), runs_kept.get(anomaly, "")
    first = min(number for arm in arms for number, attempt in enumerate(arm.made, 1) if anomaly in attempt.anomalies)
    return {
        "anomaly": anomaly,
        "runs": count,
        "first": first,
        "seed": best.seed,
        "varied": best.parent >= 0,
        "steps": best.steps,
        "kept": run,
        "link": f"../../../{run}/report.html" if run else "",
    }


def _unknown(attempted: Attempted) -> dict[str, Any]:
    schedule = "the seed's own" if attempted.parent < 0 else f"a variation of run {attempted.parent + 1}"
    return {"seed": attempted.seed, "schedule": schedule, "reason": attempted.reason}


def _arm(arm: Arm) -> dict[str, Any]:
    return {
        "name": arm.name,
        "runs": len(arm.made),
        "states": arm.states,
        "failed": sum(bool(run.anomalies) for run in arm.made),
        "simulated_s": round(sum(run.simulated_s for run in arm.made), 1),
        "cpu_s": round(sum(run.cpu_s for run in arm.made), 1),
        "curve": arm.curve,
        "hits": [number for number, run in enumerate(arm.made, 1) if run.anomalies],
    }


def _first_in(arm: Arm, state: str) -> int | None:
    """The number of the run, from 1, that first reached a deep state."""
    return next((number for number, run in enumerate(arm.made, 1) if state in run.deep), None)


def comparison(arms: Sequence[Arm]) -> str:
    """One sentence that compares guided and random choice on the same number of runs, with measured figures only."""
    by_name = {arm.name: arm for arm in arms}
    if set(by_name) < {GUIDED, RANDOM} or not all(arm.made for arm in arms):
        return "Only one way of choosing runs was measured; --compare also measures random choice with as many runs."
    runs = min(len(arm.made) for arm in arms)
    guided, plain = (by_name[name].curve[runs - 1] for name in (GUIDED, RANDOM))
    needed = next((number for number, states in enumerate(by_name[GUIDED].curve, 1) if states >= plain), None)
    share = f"had reached as many as random after {counted(needed, 'run')}" if needed else "never reached as many"
    return (
        f"After {counted(runs, 'run')} each, guided had seen {counted(guided, 'different state')} and random "
        f"{plain:,}; guided {share}. "
        "One start of each is one sample."
    )


RUNS: Final = 200
"""Runs of each arm, without `--runs`."""
FIRST: Final = 1
"""The first seed, without `--first`."""
_ASKED: Final = ("cell", "runs", "first", "round", "keep_going", "random", "compare")
"""The options that define an exploration. With `--resume` they come from the stored exploration."""
_DONE: Final = "the budget is used up"
_FIRST: Final = "stopped at the first failure"
_INTERRUPTED: Final = "interrupted"
_STOPPED: Final = "had_stopped"
"""The key in the stored report that says whether the exploration ever stopped at a failure."""


def main(options: argparse.Namespace) -> int:
    """Explore a campaign; returns the exit code. Raises `UsageError`."""
    if options.first is not None and not 0 <= options.first <= MAX_SEED - (options.runs or RUNS):
        raise UsageError(f"--first {options.first}: seeds are whole numbers from 0, below 2^63 - 1")
    options.engine, _ = choose_engine(engine_asked(options.engine, options.master), master=options.master)
    store = Store((options.store or default_store()).resolve())
    campaign = load(find(options.campaign))
    require_simulation(campaign, "explore makes runs of this world")
    require_explorable(campaign)
    exploration = _exploration(options, store, campaign)
    head, cell = exploration.head, _cell(campaign, exploration.head.cell)
    arms = [Arm(name, ExploredCell(campaign, cell, head.first), head.round_runs) for name in head.arms]
    with exploration.held():
        with Progress(quiet=options.quiet) as progress:
            ended, kept = _explore(exploration, arms, store, options, progress)
        content = report_content(head, arms, kept, ended) | {_STOPPED: _had_stopped(exploration) or ended == _FIRST}
        report = _write(exploration, content)
    _print(content, report, as_json=options.json)
    return _exit_code(content, cell, ended)


def _exploration(options: argparse.Namespace, store: Store, campaign: Campaign) -> Exploration:
    """A new exploration from the options, or with `--resume` the last one of the campaign."""
    if options.resume:
        given = [f"--{name.replace('_', '-')}" for name in _ASKED if getattr(options, name) is not None]
        if given:
            raise UsageError(f"--resume uses the options of the stored exploration; leave out {', '.join(given)}")
        return Exploration.last(store, campaign.name, campaign.text, code())
    arms = (GUIDED, RANDOM) if options.compare else (RANDOM if options.random else GUIDED,)
    head = Head(
        campaign=campaign.name,
        text=campaign.text,
        cell=_cell(campaign, options.cell).name,
        first=FIRST if options.first is None else options.first,
        budget=options.runs or RUNS,
        arms=arms,
        keep_going=bool(options.keep_going or options.compare),
        round_runs=options.round or ROUND,
        code=code(),
    )
    return Exploration.begin(store, head)


def _cell(campaign: Campaign, name: str | None) -> Cell:
    """The cell with this name; for None the first cell that is expected to pass."""
    cells = {cell.name: cell for cell in campaign.cells}
    if name is not None and name not in cells:
        raise UsageError(f"{shown(campaign.path)}: unknown cell {name!r}; the cells are: {', '.join(cells)}")
    passing = [cell for cell in campaign.cells if cell.expect.verdict == "pass"]
    return cells[name] if name is not None else (passing or list(campaign.cells))[0]


def _explore(
    exploration: Exploration, arms: list[Arm], store: Store, options: argparse.Namespace, progress: Progress
) -> tuple[str, dict[str, str]]:
    """Run the exploration. Returns why it ended, and by anomaly the run that was kept. Stored runs are not repeated."""
    interrupts = Interrupts(lambda: progress.say("stopping; results so far are kept"), lambda: None)
    with interrupts.installed():
        try:
            with _workers(options, store, interrupts) as make:
                ended = _make_all(exploration, arms, make, progress)
        except Interrupted:
            ended = _INTERRUPTED
        kept = _kept_before(exploration, arms, store)
        if ended != _INTERRUPTED:
            try:
                _keep(exploration, arms, store, progress, interrupts, kept)
            except Interrupted:
                ended = _INTERRUPTED
    return ended, kept


@contextmanager
def _workers(
    options: argparse.Namespace, store: Store, interrupts: Interrupts
) -> Iterator[Callable[[list[ExplorationTask]], Iterable[Attempted]]]:
    """The function that makes runs, in this process or in Spark. Raises `UsageError` if Spark is missing."""
    with scratch(store) as place:
        if options.engine == IN_PROCESS:
            yield lambda tasks: (attempt(task, place, interrupts) for task in tasks)
            return
        cores = os.cpu_count() or 1
        engine = Engine("spark", options.master or f"local[{cores}]")
        with always(engine.stop, shield=interrupts.shielded):
            # The session starts with the first round: the stored runs may already complete the exploration.
            yield lambda tasks: spread(engine.tasks().of(f"explore {options.campaign}"), place, tasks)


def _make_all(
    exploration: Exploration,
    arms: list[Arm],
    make: Callable[[list[ExplorationTask]], Iterable[Attempted]],
    progress: Progress,
) -> str:
    """Make every run of every arm; returns why it ended. A resumed exploration continues after a failure."""
    head, known = exploration.head, dict[int, Attempted]()
    had_stopped = _had_stopped(exploration)
    kept: dict[str, dict[int, Attempted]] = {arm.name: {} for arm in arms}
    for attempted in exploration.runs():
        kept[attempted.arm][attempted.number] = attempted
    began_s, before = time.monotonic(), sum(map(len, kept.values()))
    for arm in arms:
        progress.run(f"{head.campaign} {head.cell}, {arm.name}")
        for attempted in explore(arm, head.budget, make, known=known, kept=kept[arm.name]):
            is_new = attempted.number not in kept[arm.name]
            if is_new:
                exploration.add(attempted)
                _show(arm, arms, before, began_s, progress)
                if attempted.verdict != "pass":
                    progress.say(_words(attempted))
            goes_on = had_stopped or max(kept[arm.name], default=-1) > attempted.number
            if attempted.anomalies and not head.keep_going and (is_new or not goes_on):
                return _FIRST
    return _DONE


def _had_stopped(exploration: Exploration) -> bool:
    """Whether the exploration stopped at a failure before, in this or an earlier process."""
    return bool(exploration.stored_report().get(_STOPPED))


def _kept_before(exploration: Exploration, arms: list[Arm], store: Store) -> dict[str, str]:
    """By anomaly: the run that the exploration kept when it last ended. Leaves out runs that were removed from the
    store and runs for which a cheaper one was found since."""
    made = [attempted for arm in arms for attempted in arm.made]
    kept = {}
    for before in exploration.kept():
        if before.anomaly not in found_in(made):
            continue  # the exploration was interrupted before it repeated that run
        best = cheapest(made, before.anomaly)
        is_there = before.kept and (store.root / before.kept).is_dir()
        if is_there and (before.seed, before.steps) == (best.seed, best.steps):
            kept[before.anomaly] = before.kept
    return kept


def _show(arm: Arm, arms: list[Arm], before: int, began_s: float, progress: Progress) -> None:
    made = sum(len(each.made) for each in arms)
    rate = (made - before) / max(1e-9, time.monotonic() - began_s)
    counts = {"runs": len(arm.made), "states": arm.states, **found_in(arm.made)}
    progress.detail(f"{rate:.2f} runs/s")
    progress.counts(counts)


def _words(attempted: Attempted) -> str:
    how = "" if attempted.parent < 0 else f", a variation of run {attempted.parent + 1}"
    what = ", ".join(attempted.anomalies) or attempted.reason
    return f"run {attempted.number + 1} (seed {attempted.seed}{how}): {attempted.verdict}: {what}"


def _keep(
    exploration: Exploration,
    arms: list[Arm],
    store: Store,
    progress: Progress,
    interrupts: Interrupts,
    kept: dict[str, str],
) -> None:
    """Repeat the cheapest run of each anomaly in the store, with plots and complete logs. Adds each to `kept`;
    anomalies that `kept` has already are skipped."""
    made = [attempted for arm in arms for attempted in arm.made]
    source = arms[0].source
    maker = Maker(store, Progress(quiet=True), interrupts, plots=True, messages=True)
    remade: dict[tuple[str, int], str] = {}
    for anomaly in sorted(found_in(made).keys() - kept.keys()):
        best = cheapest(made, anomaly)
        if (best.arm, best.number) in remade:  # one run can show several anomalies
            kept[anomaly] = remade[best.arm, best.number]
            continue
        campaign = source.campaign
        if best.text:
            path = exploration.path / f"{anomaly}.toml"
            path.write_text(best.text, encoding="utf-8")
            campaign = load(path)
        progress.say(f"keeping seed {best.seed} for {anomaly}")
        again = make_to_stay(store, maker, campaign, source.cell.name, best.seed)
        kept[anomaly] = remade[best.arm, best.number] = f"{campaign.name}/{again.directory.id}"
        if again.digest != best.digest:
            progress.announce(
                f"{again.directory.id} has another result than before: something does not depend on the seed only"
            )


def _write(exploration: Exploration, content: dict[str, Any]) -> Path:
    from analysis.plots.curves import coverage
    from analysis.report import render_exploration

    curves = {row["name"]: row["curve"] for row in content["arms"]}
    plot = coverage(curves, {row["name"]: row["hits"] for row in content["arms"]})
    (exploration.path / "coverage.png").write_bytes(plot)
    exploration.store_report(content)
    return render_exploration(exploration.path, content, plot)


def _print(content: dict[str, Any], report: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**content, "report": str(report)}, indent=1))
        return
    say(content["summary"])
    for row in content["found"]:
        runs = counted(row["runs"], "run")
        say(f"  {row['anomaly']}: in {runs}, first in run {row['first']}; kept: {row['kept'] or 'nothing'}")
    for row in content["arms"]:
        runs, states = counted(row["runs"], "run"), counted(row["states"], "different state")
        say(f"  {row['name']}: {runs}, {states}, {row['cpu_s']} s of CPU time")
    say(content["comparison"])
    say(f"report: {shortest(report)}")


def _exit_code(content: dict[str, Any], cell: Cell, ended: str) -> int:
    """Pass when exactly the cell's expected result was found."""
    if ended == _INTERRUPTED:
        return EXIT_INTERRUPTED
    found = {row["anomaly"] for row in content["found"]}
    if cell.expect.verdict == "fail":
        met = cell.expect.anomaly in found if cell.expect.anomaly else bool(found)
        decided = sum(row["runs"] for row in content["arms"]) > content["undecided"]
        return EXIT_OF_VERDICT["pass" if met else "fail" if decided else "unknown"]
    return EXIT_OF_VERDICT[content["verdict"]]


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("campaign", metavar="CAMPAIGN", help="a file, or the name of a campaign of Brownout")
    command.add_argument("--cell", metavar="NAME", help="a cell of the campaign (default: the first that must pass)")
    # The default is None, so that --resume can reject these options when they are given.
    command.add_argument("--runs", type=positive, metavar="N", help="the number of runs of each arm (default: 200)")
    command.add_argument(
        "--round",
        type=positive,
        metavar="N",
        help="runs per round; coverage is evaluated at the end of a round. For a cluster: at least its number of "
        "cores (default: 4)",
    )
    command.add_argument("--first", type=int, metavar="SEED", help="the first seed (default: 1)")
    command.add_argument("--keep-going", action="store_true", default=None, help="do not stop at the first failure")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--random", action="store_true", default=None, help="new seeds only, no variations")
    how.add_argument(
        "--compare", action="store_true", default=None, help="guided, then random with the same number of runs"
    )
    command.add_argument("--resume", action="store_true", help="continue the last exploration of the campaign")
    engine_option(command)
    command.add_argument(
        "--master",
        metavar="URL",
        help="the Spark master, or a Spark Connect server, sc://host:15002 (default: local, with all cores)",
    )
    command.add_argument("--quiet", action="store_true", help="print only the result, no progress")
    store_option(command)
    json_option(command)


COMMAND: Final = Command(
    name="explore",
    place=60,
    summary="coverage-guided search for failures, in the simulation",
    description="""\
Runs seeds of a campaign with random faults in the simulation, on all cores, and varies the schedules of the
runs that reached new abstract states. Keeps the cheapest run of each anomaly in the store, as an ordinary run
with a report. Continue from there with: brownout replay, brownout shrink.

  brownout explore demo --runs 500                     stops at the first failure
  brownout explore X.toml --runs 2000 --keep-going
  brownout explore X.toml --cell mutated --compare     guided and random, the same number of runs each
  brownout explore X.toml --master spark://host:7077 --round 64
                                                       on a cluster
  brownout explore X.toml --resume                     continue an exploration that was interrupted or
                                                       stopped at a failure

Campaign, first seed, number of runs and size of a round determine the result; the number of cores does not.
Ctrl-C keeps all finished runs (with Spark, all finished rounds). Exit 0: only the cell's expected result was
found (no anomaly, or the mutant's). 1: another result was found. 2: no run was decided.

Workers of a Spark cluster need this project and its Python at the same paths as this machine, Java, and
write access at the store's path. The driver sends campaigns to them; no runs are stored there. They connect
back to this machine; SPARK_LOCAL_IP=ADDRESS sets the address for that. A Spark Connect server needs only the
Python packages of this project, and write access at the store's path.
""",
    options=_options,
    main=main,
)
