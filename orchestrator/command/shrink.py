"""`brownout shrink`: reduces a failed simulated run to the smallest campaign that still shows its anomaly.

Theory of operation. The faults of a run with a random nemesis first become steps with waits, which every world can run.
A few milliseconds differ then, so an anomaly that needs exact moments does not appear. In that case the run is reduced
as a schedule: its faults, with their moments, under its seed, which in the simulation repeats the run. The smallest
schedule is tried as steps again: with fewer faults the moments often matter less.
"""

import argparse
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from analysis.evidence.run_toml import SIMULATION
from analysis.verdict import Expectation
from installation.commands import command
from installation.counted import counted
from installation.files import default_store
from orchestrator.campaign.lookup import shortest, shown
from orchestrator.campaign.model import STRICT, Campaign
from orchestrator.campaign.plan import PlannedRun
from orchestrator.campaign.swarm import must_be_apart
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option, positive, store_option
from orchestrator.errors import EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNKNOWN, Interrupted, UsageError
from orchestrator.printing import say
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.search.campaign_document import Document, document_of
from orchestrator.search.run_maker import Maker, read_made, require_simulation, scratch, stored_plan
from orchestrator.search.shrinking import Budget, SpentError, Trials, shrink
from orchestrator.search.steps_of_run import injected_by, injected_faults_of, moments_of, steps_of
from orchestrator.store.directories import RunDirectory, Store
from orchestrator.world_kinds import WORLDS
from orchestrator.worlds.selection import lab_named

CONFIRMED_BY: Final = 10
"""Further seeds for the final check of the result: the share that shows the anomaly is reported."""
SUFFIX: Final = "-shrunk"
UNFINISHED: Final = "No run of it finished, not even the unreduced one: the failure prevents that."
_INTERRUPTED: Final = "interrupted"
_COMPLETE: Final = "nothing more can be removed"


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
    whole = whole_run(directory, plan, anomaly)
    whole.document.campaign(output)  # raises before the search if the run cannot be written as a campaign
    with Progress(quiet=options.quiet) as progress, scratch(store) as place:
        result = _search(whole, plan, anomaly, budget, place, progress, options.tries)
    if isinstance(result, str):
        say(f"{result}; nothing was written")
        return EXIT_INTERRUPTED if result == _INTERRUPTED else EXIT_UNKNOWN
    text = result.document.text(_comment(directory, anomaly, result, output))
    output.write_text(text, encoding="utf-8")
    _print(whole.document, result, anomaly, output, budget, as_json=options.json)
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


@dataclass(frozen=True)
class WholeRun:
    """A stored run as campaigns, before any reduction."""

    steps: Document | None
    """None: no step injects one of its faults."""
    schedule: Document | None
    """None: the run itself had steps."""
    is_apart: bool = False
    """Whether the waits between its faults must stay, since two faults that meet may take records from all replicas."""

    @property
    def document(self) -> Document:
        document = self.steps or self.schedule
        assert document is not None
        return document


def whole_run(directory: RunDirectory, plan: PlannedRun, anomaly: str) -> WholeRun:
    """A stored run as campaigns. Raises `UsageError`."""
    campaign, cell = plan.campaign, replace(plan.cell, expect=Expectation("fail", anomaly))
    description = f"Reduced from {directory.id}: the part that {anomaly} needs"
    document = document_of(campaign, cell, plan.seed, (), suffix=SUFFIX, description=description)
    table = tomllib.loads(campaign.text).get("nemesis", {})
    if campaign.nemesis.kind == "steps":
        return WholeRun(document.with_steps(table["step"]), None)
    overlap, drawn = campaign.nemesis.overlap, plan.schedule(lab_named(SIMULATION).capabilities)

    def schedule_of_run() -> Document:
        moments = table.get("fault") or moments_of(directory.path, drawn, overlap=overlap)
        return document.with_moments(moments, overlap=overlap)

    def steps_of_run() -> Document:
        return document.with_steps(steps_of(injected_faults_of(directory.path), campaign.topology.names))

    steps, schedule = _possible(steps_of_run), _possible(schedule_of_run)
    if campaign.profile and must_be_apart(campaign) and schedule:
        return WholeRun(None, schedule, is_apart=True)
    return WholeRun(steps, schedule) if steps or schedule else WholeRun(steps_of_run(), None)


def _possible(make: Callable[[], Document]) -> Document | None:
    try:
        return make()
    except UsageError:  # the run ended before the end of its load, or no step injects one of its faults
        return None


@dataclass
class Search:
    """One search for the smallest campaign. `best`: the trials whose result is smallest so far."""

    maker: Maker
    place: Path
    anomaly: str
    budget: Budget
    seed: int
    progress: Progress
    tries: int
    undecided: list[str] = field(default_factory=list)
    best: Trials | None = None

    def reduce(self, whole: WholeRun) -> None:
        """Raises `SpentError` and `Interrupted`."""
        if whole.steps is not None and self._reduced(whole.steps, self.tries):
            return
        if whole.schedule is None or not self._reduced(whole.schedule, 1) or whole.is_apart:
            return
        assert self.best is not None
        assert self.best.best is not None
        smallest = self.best.best
        campaign = smallest.campaign(self.place / "candidate.toml")
        injected = injected_by(smallest.moments, campaign.workload.duration_s)
        try:
            steps = smallest.with_steps(steps_of(injected, campaign.topology.names))
        except UsageError:
            return  # no step injects one of its faults
        self._reduced(steps, self.tries)

    def _reduced(self, document: Document, tries: int) -> bool:
        """Reduce a campaign if it shows the anomaly; returns whether it does. `tries`: the seeds of each candidate."""
        self.progress.say(f"trying {size_of(document)}")
        trials = Trials(
            self.maker,
            self.place,
            self.anomaly,
            self.budget,
            seed=self.seed,
            tries=tries,
            heard=lambda smaller, spent: self.progress.say(f"{spent}: {size_of(smaller)}"),
        )
        try:
            if not trials(document):
                return False
            self.best = trials
            shrink(document, trials)
        finally:
            self.undecided += trials.undecided
        return True


def _search(
    whole: WholeRun, plan: PlannedRun, anomaly: str, budget: Budget, place: Path, progress: Progress, tries: int
) -> ShrinkResult | str:
    """The best result within the budget, until the user interrupts; or why nothing was found. Runs are
    made in the directory `place`."""
    interrupts = Interrupts(lambda: progress.say("stopping; the smallest campaign so far is kept"), lambda: None)
    with interrupts.installed():
        maker = Maker(Store(place), Progress(quiet=True), interrupts)
        search = Search(maker, place, anomaly, budget, plan.seed, progress, tries)
        ended = _COMPLETE
        try:
            search.reduce(whole)
        except SpentError:
            ended = "the budget is used up"
        except Interrupted:
            ended = _INTERRUPTED
        trials = search.best
        if trials is not None and trials.best is not None:
            result = ShrinkResult(trials.best, ended, to_the_end=trials.to_the_end)
            if ended != _INTERRUPTED:
                result = _confirmed(result, trials, progress, plan.seed + tries)
            return replace(result, undecided=tuple(search.undecided))
    if ended == _INTERRUPTED:
        return ended
    if ended != _COMPLETE:
        return f"{ended} before {anomaly} was reproduced; give a larger --budget"
    return _not_shown(whole, anomaly, tries, search.undecided)


def _not_shown(whole: WholeRun, anomaly: str, tries: int, undecided: Sequence[str]) -> str:
    if undecided:
        return (
            f"it is undecided whether a campaign reproduces {anomaly}: no run shows it, and {len(undecided)} were not "
            f"decided: {undecided[0]}"
        )
    forms = [f"a campaign of steps with {counted(tries, 'seed')}"] if whole.steps else []
    forms += ["a schedule with its seed"] if whole.schedule else []
    return (
        f"as {' and as '.join(forms)} it does not reproduce {anomaly}, so it cannot be reduced; another run of it or "
        "more --tries may help"
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
        counted(document.faults, "fault") + (" at exact moments" if document.moments else ""),
        counted(len(document.steps), "step") if document.steps else "",
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
            "kind": result.document.data["nemesis"]["kind"],
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
A run whose anomaly needs exact moments is reduced with these moments and its own seed, to a campaign with a
schedule. Finally runs it with ten other seeds and reports how many show the anomaly.

  brownout shrink latest
  brownout shrink store/X/RUN --budget 10m --output campaigns/smaller.toml
  brownout run store/X/RUN/shrunk.toml --world simulation --seeds 1-20
  brownout run store/X/RUN/shrunk.toml --world namespaces

Ctrl-C keeps the smallest campaign so far. Exit 2: the anomaly does not reproduce, or the budget was used up
before it did.
""",
    options=_options,
    main=main,
)
