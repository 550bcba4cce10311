"""`brownout replay`: repeats a simulated run and adds its trace and diagrams."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from analysis.evidence.run_directory import describe
from history import seal
from installation.files import default_store
from orchestrator.campaign.lookup import find, shortest, shown
from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import PlannedRun
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option, store_option
from orchestrator.errors import EXIT_FAIL, EXIT_PASS, EXIT_UNKNOWN, UsageError
from orchestrator.printing import say
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.versions import CHANGES, UNKNOWN, commit
from orchestrator.search import run_maker
from orchestrator.store.directories import RunDirectory, Store
from orchestrator.worlds.simulation.files import SUMMARY

_WHY = "replay repeats runs of this world"
_SAYS_WHAT_IT_WAS = frozenset({"run.toml", "campaign.toml", SUMMARY})
"""Keys of the seal for files that describe a run: what it was made from, with which code, and its digest."""


@dataclass(frozen=True)
class ReplayComparison:
    """The new run compared with the stored one. `same`: None when they are not comparable."""

    same: bool | None
    text: str

    @property
    def exit_code(self) -> int:
        return EXIT_UNKNOWN if self.same is None else EXIT_PASS if self.same else EXIT_FAIL


def main(options: argparse.Namespace) -> int:
    """Replay a run or a seed; returns the exit code. Raises `UsageError`."""
    from orchestrator.search.trace_text import narrate  # imports the simulator

    store = Store((options.store or default_store()).resolve())
    planned, before = _wanted(options, store)
    run_maker.require_simulation(planned.campaign, _WHY)
    with Progress(quiet=options.quiet) as progress:
        interrupts = Interrupts(lambda: progress.say("stopping"), lambda: None)
        with interrupts.installed():
            maker = run_maker.Maker(store, progress, interrupts, plots=True, messages=True)
            made = run_maker.make_to_stay(store, maker, planned.campaign, planned.cell.name, planned.seed)
            progress.phase("trace")
            trace = narrate(made.directory.path)
    compared = compare(before, made)
    _print(made, compared, trace, as_json=options.json)
    return compared.exit_code


def _wanted(options: argparse.Namespace, store: Store) -> tuple[PlannedRun, RunDirectory | None]:
    """The run to make, and the stored run to compare it with, if there is one."""
    if options.run.isdecimal() and not Path(options.run).is_dir():
        return _of_seed(options, store, int(options.run))
    for name in ("campaign", "cell"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name} {getattr(options, name)}: a stored run defines it; give it with a bare seed only"
            )
    directory = store.find_run(options.run)
    return run_maker.stored_plan(directory), directory


def _of_seed(options: argparse.Namespace, store: Store, seed: int) -> tuple[PlannedRun, RunDirectory | None]:
    if options.campaign is None:
        raise UsageError(f"{seed}: a seed needs its campaign: --campaign CAMPAIGN [--cell NAME]")
    campaign = load(find(options.campaign))
    cells = {cell.name: cell for cell in campaign.cells}
    name = options.cell or (next(iter(cells)) if len(cells) == 1 else None)
    if name not in cells:
        raise UsageError(f"{shown(campaign.path)}: give one of its cells with --cell: {', '.join(cells)}")
    earlier = run_maker.runs_of_seed(store, campaign, name, seed)
    return PlannedRun("", campaign, cells[name], seed, run_maker.WHERE), earlier[-1] if earlier else None


def compare(before: RunDirectory | None, made: run_maker.Made) -> ReplayComparison:
    """Compare a run with a stored one, by the digests over all events."""
    if before is None:
        return ReplayComparison(None, "this seed has no stored run to compare with")
    stored = str(run_maker.read_summary(before.path).get("digest", ""))
    if not stored or not made.digest:
        which = before if not stored else made.directory
        return ReplayComparison(None, f"{which.id} ended before it had a digest, so it is not comparable")
    if stored == made.digest:
        return ReplayComparison(True, f"the same run as {before.id}: digest {made.digest[:16]}...")
    what = f"not the same run as {before.id}: digest {made.digest[:16]}... instead of {stored[:16]}..."
    if changed := [sentence for name, sentence in seal.changed(before.path).items() if name in _SAYS_WHAT_IT_WAS]:
        return ReplayComparison(None, f"{what} The stored run's evidence was changed since: {'; '.join(changed)}")
    then, now = describe(before.path).versions.get("brownout", UNKNOWN), commit()
    if then == now and now != UNKNOWN and not now.endswith(CHANGES):
        return ReplayComparison(False, f"{what} Both are of commit {now}: something does not depend on the seed only")
    return ReplayComparison(None, f"{what} It was made by commit {then}, this one by {now}: the code differs")


def _print(made: run_maker.Made, compared: ReplayComparison, trace: Path, *, as_json: bool) -> None:
    report = made.directory.path / "report.html"
    if as_json:
        content: dict[str, Any] = {
            "run": made.directory.id,
            "verdict": made.verdict.verdict,
            "anomalies": list(made.anomalies),
            "same": compared.same,
            "comparison": compared.text,
            "digest": made.digest,
            "simulated_s": made.simulated_s,
            "trace": str(trace),
            "report": str(report),
        }
        print(json.dumps(content, indent=1))
        return
    met = f" ({', '.join(made.anomalies)})" if made.anomalies else ""
    say(f"{made.verdict.verdict}{met} after {made.simulated_s:.1f} simulated seconds")
    say(compared.text)
    say(f"trace:  {shortest(trace)}")
    say(f"report: {shortest(report)}")


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN|SEED", help="a run's directory, its name, `latest`, or a seed")
    command.add_argument("--campaign", metavar="CAMPAIGN", help="the seed's campaign: a file, or a name of Brownout's")
    command.add_argument("--cell", metavar="NAME", help="a cell of the campaign (default: its only cell)")
    command.add_argument("--quiet", action="store_true", help="print only the result, no progress")
    store_option(command)
    json_option(command)


COMMAND: Final = Command(
    name="replay",
    place=70,
    summary="repeat a simulated run, with its trace and plots",
    description="""\
Repeats a run of the simulation and checks that it is the same, by a digest over all events.
The new run also has trace.txt (each node's events and output, in virtual time) and messages.jsonl; its report
has plots of the nodes' lifetimes and a space-time diagram around the anomaly.

  brownout replay latest
  brownout replay store/demo/20260801T10000042-main-7
  brownout replay 7 --campaign demo                    a seed, stored or new
  brownout replay 7 --campaign X.toml --cell mutated

Exit 0: the same run. 1: a different run by the same code, so something does not depend on the seed only.
2: not comparable: code or evidence changed since, or the seed has no stored run.
""",
    options=_options,
    main=main,
)
