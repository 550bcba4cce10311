"""`brownout shrink`: reduces a failed simulated run to the smallest campaign of steps that still shows its anomaly."""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from analysis.verdict import Expectation
from installation.commands import command
from installation.counted import counted
from installation.files import default_store
from orchestrator.campaign.lookup import shortest, shown
from orchestrator.campaign.model import SIMULATION, STRICT, Campaign
from orchestrator.campaign.plan import PlannedRun
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option, positive, store_option
from orchestrator.errors import EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNKNOWN, Interrupted, UsageError
from orchestrator.printing import say
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.search.campaign_document import Document, document_of
from orchestrator.search.replay_plan import stored_plan
from orchestrator.search.run_maker import Maker, read_made, require_simulation
from orchestrator.search.scratch import scratch
from orchestrator.search.shrinking import Budget, SpentError, Trials, shrink
from orchestrator.search.steps_of_run import StepTable, injected_faults_of, steps_of
from orchestrator.store.directories import RunDirectory, Store
from orchestrator.world_kinds import WORLDS
from orchestrator.worlds.selection import lab_named

CONFIRMED_BY: Final = 10
"""Further seeds for the final check of the result: the share that shows the anomaly is reported."""
SUFFIX: Final = "-shrunk"
UNFINISHED: Final = "No run of it finished, not even the unreduced one: the failure prevents that."
_INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True)
class ShrinkResult:
    """The result of a search. `document`: the smallest campaign that was found. `ended`: why the search ended. `tried`:
    the number of seeds of the final check, which the search did not use; `shown`: how many of them show the anomaly.
    `undecided`: the reason of each run that was not decided; such runs count as not showing the anomaly."""

    document: Document
    ended: str
    shown: int = 0
    tried: int = 0
    undecided: tuple[str, ...] = ()
    to_the_end: bool = True
    """Whether runs of the document finish. Otherwise the failure prevents that, as in the unreduced run."""


def main(options: argparse.Namespace) -> int:
    """Shrink a run; returns the exit code. Raises `UsageError`."""
    store = Store((options.store or default_store()).resolve())
    directory, budget = store.find_run(options.run), Budget.of(options.budget)
    plan = stored_plan(directory)
    require_simulation(plan.campaign, "shrink makes runs of this world")
    anomaly = _anomaly(directory, plan, options.anomaly)
    output = (options.output or directory.path / "shrunk.toml").resolve()
    _require_writable(output)
    whole = whole_document(directory, plan, anomaly)
    whole.campaign(output)  # raises before the search if the run cannot be written as a campaign
    with Progress(quiet=options.quiet) as progress, scratch(store) as place:
        result = _search(whole, plan, anomaly, budget, place, progress, options.tries)
    if isinstance(result, str):
        say(f"{result}; nothing was written")
        return EXIT_INTERRUPTED if result == _INTERRUPTED else EXIT_UNKNOWN
    text = result.document.text(_comment(directory, anomaly, result, output))
    output.write_text(text, encoding="utf-8")
    _print(whole, result, anomaly, output, budget, as_json=options.json)
    return EXIT_INTERRUPTED if result.ended == _INTERRUPTED else EXIT_PASS


def _require_writable(output: Path) -> None:
    """Raise `UsageError` if `output` is not writable: before the search, not after it."""
    is_new = not output.exists()
    try:
        output.open("ab").close()
        if is_new:
            output.unlink()
    except OSError as error:
        raise UsageError(f"{output}: cannot be written: {error.strerror}; give another file with --output") from error


def _anomaly(directory: RunDirectory, plan: PlannedRun, asked: str | None) -> str:
    """The anomaly to keep: the given one, else the one that the cell expects, else the first in the verdict."""
    try:
        found = read_made(directory).anomalies
    except (OSError, ValueError) as error:
        judge = command("analyze", str(shortest(directory.path)))
        raise UsageError(f"{directory.id}: it has no readable verdict; analyze it first: {judge}") from error
    if not found:
        raise UsageError(f"{directory.id}: its verdict has no anomaly, so there is nothing to reproduce")
    wanted = asked or (plan.cell.expect.anomaly if plan.cell.expect.anomaly in found else found[0])
    if wanted not in found:
        raise UsageError(f"--anomaly {wanted}: {directory.id} does not show it; it shows {', '.join(found)}")
    return str(wanted)


def whole_document(directory: RunDirectory, plan: PlannedRun, anomaly: str) -> Document:
    """A stored run as a campaign of steps, before any reduction. Raises `UsageError`."""
    steps: list[StepTable]
    if plan.campaign.nemesis.kind == "steps":
        steps = tomllib.loads(plan.campaign.text)["nemesis"]["step"]
    else:
        steps = steps_of(injected_faults_of(directory.path), plan.campaign.topology.names)
    cell = replace(plan.cell, expect=Expectation("fail", anomaly))
    description = f"Reduced from {directory.id}: the part that {anomaly} needs"
    return document_of(plan.campaign, cell, plan.seed, steps, suffix=SUFFIX, description=description)


def _search(
    whole: Document, plan: PlannedRun, anomaly: str, budget: Budget, place: Path, progress: Progress, tries: int
) -> ShrinkResult | str:
    """The best result within the budget, until the user interrupts; or why nothing was found. Runs are
    made in the directory `place`."""
    interrupts = Interrupts(lambda: progress.say("stopping; the smallest campaign so far is kept"), lambda: None)
    with interrupts.installed():
        maker = Maker(Store(place), Progress(quiet=True), interrupts)
        trials = Trials(
            maker,
            place,
            anomaly,
            budget,
            seed=plan.seed,
            tries=tries,
            heard=lambda smaller, spent: progress.say(f"{spent}: {size_of(smaller)}"),
        )
        ended = "nothing more can be removed"
        try:
            if not trials(whole):
                return _not_shown(anomaly, tries, trials.undecided)
            shrink(whole, trials)
        except SpentError:
            ended = "the budget is used up"
        except Interrupted:
            ended = _INTERRUPTED
        if trials.best is not None:
            result = ShrinkResult(trials.best, ended, to_the_end=trials.to_the_end)
            if ended != _INTERRUPTED:
                result = _confirmed(result, trials, progress, plan.seed + tries)
            return replace(result, undecided=tuple(trials.undecided))
    if ended == _INTERRUPTED:
        return ended
    return f"{ended} before {anomaly} was reproduced by a campaign of steps; give a larger --budget"


def _not_shown(anomaly: str, tries: int, undecided: Sequence[str]) -> str:
    if undecided:
        return (
            f"it is undecided whether a campaign of steps reproduces {anomaly}: of {counted(tries, 'seed')} no run "
            f"shows it, and {len(undecided)} were not decided: {undecided[0]}"
        )
    return (
        f"as a campaign of steps it does not reproduce {anomaly} with {counted(tries, 'seed')}, so it cannot be "
        "reduced; another run of it or more --tries may help"
    )


def _confirmed(result: ShrinkResult, trials: Trials, progress: Progress, first: int) -> ShrinkResult:
    """Add how many of the seeds from `first` on show the anomaly; the search did not use these seeds. An interruption
    leaves the counts as they are."""
    progress.say(f"running the result with {CONFIRMED_BY} other seeds")
    try:
        shows = [trials.shows(result.document, first + number, free=True) for number in range(CONFIRMED_BY)]
    except Interrupted:
        return replace(result, ended=_INTERRUPTED)
    return replace(result, shown=sum(shows), tried=len(shows))


def size_of(document: Document) -> str:
    """The size of a campaign, in words."""
    load = document.workload
    kinds = ("producer", "consumer", "member")
    clients = ", ".join(counted(load[f"{kind}s"], kind) for kind in kinds if f"{kind}s" in load)
    waits = sum(float(step.get("seconds", 0)) for step in document.steps)
    parts = [
        counted(document.faults, "fault"),
        counted(len(document.steps), "step"),
        counted(document.nodes, "node"),
        clients,
    ]
    return ", ".join(filter(None, [*parts, f"{waits:.1f} s of waits" if waits else ""]))


def _comment(directory: RunDirectory, anomaly: str, result: ShrinkResult, output: Path) -> str:
    surely = (
        f"shown in the simulation by {result.shown} of {counted(result.tried, 'other seed')}." if result.tried else ""
    )
    return "\n".join(
        filter(
            None,
            (
                f"The smallest campaign found that reproduces {anomaly} of {directory.id}",
                f"({size_of(result.document)}; {result.ended}). {surely}".rstrip(),
                "" if result.to_the_end else UNFINISHED,
                f"Run it with: {command('run', shown(output), '--world', 'simulation')}",
            ),
        )
    )


def _worlds_of(campaign: Campaign) -> list[str]:
    """The worlds that can run a campaign."""
    if campaign.topology.filesystem == STRICT:
        return [SIMULATION]
    needs = campaign.nemesis.needs
    return [name for name in WORLDS if needs <= lab_named(name).capabilities]


def _print(whole: Document, result: ShrinkResult, anomaly: str, output: Path, budget: Budget, *, as_json: bool) -> None:
    worlds = _worlds_of(result.document.campaign(output))
    if as_json:
        content: dict[str, Any] = {
            "anomaly": anomaly,
            "campaign": str(output),
            "faults": result.document.faults,
            "steps": len(result.document.steps),
            "nodes": result.document.nodes,
            "faults_before": whole.faults,
            "steps_before": len(whole.steps),
            "runs": budget.spent_runs,
            "ended": result.ended,
            "shown": result.shown,
            "seeds": result.tried,
            "undecided": list(result.undecided),
            "to_the_end": result.to_the_end,
            "worlds": worlds,
        }
        print(json.dumps(content, indent=1))
        return
    say(f"before: {size_of(whole)}")
    say(f"after:  {size_of(result.document)} ({budget}; {result.ended})")
    if result.tried:
        say(f"{anomaly} shown in the simulation by {result.shown} of {counted(result.tried, 'other seed')}")
    if not result.to_the_end:
        say(UNFINISHED)
    if result.undecided:
        count = len(result.undecided)
        say(f"undecided, so counted as not showing it: {counted(count, 'run')}; the last: {result.undecided[-1]}")
    say(f"campaign: {shortest(output)}; worlds that can run it: {', '.join(worlds)}")


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN", help="a failed run's directory, its name, or `latest`")
    command.add_argument("--anomaly", metavar="NAME", help="the anomaly to keep (default: the one the cell expects)")
    command.add_argument(
        "--budget", default="200", metavar="RUNS|TIME", help="the limit of the search: 200, 90s, 10m, 1h (default: 200)"
    )
    command.add_argument(
        "--tries",
        type=positive,
        default=2,
        metavar="N",
        help="seeds per candidate; as many of them must show the anomaly as at the start (default: 2)",
    )
    command.add_argument(
        "--output", type=Path, metavar="FILE", help="the file for the campaign (default: RUN/shrunk.toml)"
    )
    command.add_argument("--quiet", action="store_true", help="print only the result, no progress")
    store_option(command)
    json_option(command)


COMMAND: Final = Command(
    name="shrink",
    place=80,
    summary="reduce a failed simulated run to the smallest campaign that still fails",
    description="""\
Removes faults, steps, clients, nodes and time from a failed run of the simulation while the same anomaly
remains, and writes the rest as a campaign of steps. That campaign runs in every world that has its faults.
Finally runs it with ten other seeds and reports how many show the anomaly.

  brownout shrink latest
  brownout shrink store/X/RUN --budget 10m --output campaigns/smaller.toml
  brownout run store/X/RUN/shrunk.toml --world simulation --seeds 1-20
  brownout run store/X/RUN/shrunk.toml --world namespaces

Ctrl-C keeps the smallest campaign so far. Exit 2: the anomaly does not reproduce as scripted steps, or the
budget was used up before it did.
""",
    options=_options,
    main=main,
)
