"""Measures which lines of the broker simulated runs reach, for a CI artefact.

    python -m tests.simulator.reached_lines [--seeds 200] [--jobs 2] [--keep DIRECTORY] [--out PAGE.md]

Each campaign that the simulated world can run gets one seed, in its first cell without a mutant; the other seeds go to
the campaigns with drawn clusters, in turn. A run that does not meet its expectation is named. A run that fails is an
alarm, and the exit code is 1. With `--keep` an interrupted measurement continues where it stopped, as long as the
broker is unchanged.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final

from coverage import Coverage, CoverageData
from slipcover import FileMatcher, ImportManager, Slipcover

ROOT: Final = Path(__file__).resolve().parents[2]
CAMPAIGNS: Final = ROOT / "campaigns"
DRAWN: Final = (CAMPAIGNS / "swarm.toml", CAMPAIGNS / "swarm-groups.toml")
LEAST: Final = 0.9
"""The share of a module's lines below which the page lists the module."""
_NEVER_RUN: Final = (r"if TYPE_CHECKING:", r"^\s*\.\.\.$", r"@overload")
"""Lines that say something of types, to those who check them."""
_DATA: Final = ".reached"
_MADE: Final = ".made"
"""Of a run that was made: a file with what was to be said of it, empty for nothing."""
ALARM: Final = "alarm: "

INTRODUCTION: Final = """# Lines of the broker that simulated runs reach

Measured by `python -m tests.simulator.reached_lines` over {runs} runs: one seed of each of {campaigns} campaigns, and
{drawn} clusters drawn from seeds. Only executable lines count; `__main__` is left out.

{reached} of {modules} modules have {least:.0%} or more of their lines reached; all modules together {share:.1%}.

| module | lines | reached | not reached |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Reached:
    """Of one module: its lines that can be executed, and how many of them were."""

    module: str
    lines: int
    reached: int
    missing: str

    @property
    def share(self) -> float:
        return self.reached / self.lines if self.lines else 1.0


@dataclass(frozen=True)
class Run:
    """One run to be made: a cell of a campaign with a seed."""

    campaign: Path
    cell: str
    seed: int

    def __str__(self) -> str:
        return f"{self.campaign.name} --cell {self.cell} --seed {self.seed}"

    def made(self, directory: Path) -> Path:
        """Where it is noted that this run was made."""
        return directory / f"{self.campaign.stem}-{self.cell}-{self.seed}{_MADE}"


def runs() -> Iterator[Run]:
    """A run of each campaign, then clusters that are drawn, for ever."""
    from orchestrator.campaign.parser import load
    from orchestrator.errors import UsageError
    from orchestrator.search.run_maker import require_simulation

    for path in sorted(CAMPAIGNS.rglob("*.toml")):
        campaign = load(path)
        cell = next((it for it in campaign.cells if not it.mutants), None)
        try:
            require_simulation(campaign, "its broker's lines are looked at")
        except UsageError:
            continue
        if cell is not None and path not in DRAWN:
            yield Run(path, cell.name, 1)
    cells = {path: load(path).cells[0].name for path in DRAWN}
    for seed in count(1):
        yield from (Run(path, cell, seed) for path, cell in cells.items())


def make(recorder: Slipcover, seeds: int, jobs: int, part: int, directory: Path) -> None:
    """Make this part's share of the runs in this process, but those that were made, with the lines of the broker kept
    in `directory` run by run."""
    from analysis.verdict import FAIL
    from orchestrator.campaign.parser import load
    from orchestrator.campaign.plan import PlannedRun, run_id
    from orchestrator.campaign.swarm import draw
    from orchestrator.machine import syscalls
    from orchestrator.running.interrupts import Interrupts
    from orchestrator.running.progress import Progress
    from orchestrator.search.run_maker import WHERE, Maker
    from orchestrator.store.directories import Store

    syscalls.die_with_parent(signal.SIGKILL)
    for run in islice(runs(), part, seeds, jobs):
        if run.made(directory).exists():
            continue
        campaign = load(run.campaign)
        cell = next(it for it in campaign.cells if it.name == run.cell)
        with tempfile.TemporaryDirectory(dir=directory) as kept:
            maker = Maker(Store(Path(kept)), Progress(quiet=True), Interrupts(lambda: None, lambda: None))
            drawn = draw(campaign, run.seed)
            made = maker.make(PlannedRun(run_id("reached", cell.name, run.seed), drawn, cell, run.seed, WHERE))
        said = "" if made.verdict.met else f"{run}: {made.verdict.verdict}: {'; '.join(made.verdict.reasons)}"
        if said:
            print(said, file=sys.stderr, flush=True)
        keep(recorder, directory)
        run.made(directory).write_text(f"{ALARM}{said}" if made.verdict.verdict == FAIL and said else said)
        print(run, flush=True)


def keep(recorder: Slipcover, directory: Path) -> None:
    """Keep what was reached until now."""
    data = CoverageData(str(directory / _DATA), suffix=True)
    files = recorder.get_coverage()["files"]
    data.add_lines({str(ROOT / name): lines["executed_lines"] for name, lines in files.items()})
    data.write()


def measured(directory: Path) -> list[Reached]:
    """What the runs that kept their lines in `directory` reached, by module; also those that none of them imported."""
    coverage = Coverage(data_file=None, source=["broker"], config_file=False)
    coverage.combine([str(path) for path in directory.glob(f"{_DATA}.*")], keep=True)
    for pattern in _NEVER_RUN:
        coverage.exclude(pattern)
    found = []
    for path in sorted((ROOT / "broker").rglob("*.py")):
        _, lines, _, missing, text = coverage.analysis2(str(path))
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if lines and path.name != "__main__.py":
            found.append(Reached(module, len(lines), len(lines) - len(missing), text))
    return found


def page(found: list[Reached], made: list[Run]) -> str:
    """The page, with a row for each module below `LEAST`."""
    lines, reached = sum(it.lines for it in found), sum(it.reached for it in found)
    drawn = sum(run.campaign in DRAWN for run in made)
    text = INTRODUCTION.format(
        runs=len(made), campaigns=len(made) - drawn, drawn=drawn, least=LEAST, modules=len(found),
        reached=sum(it.share >= LEAST for it in found), share=reached / lines,
    )  # fmt: skip
    for it in sorted(found, key=lambda it: it.share):
        if it.share < LEAST:
            text += f"| `{it.module}` | {it.lines} | {it.share * 100 // 1:.0f}% | {it.missing} |\n"
    return text


def main() -> int:
    """Run the seeds in processes of their own and print the page; 1 when a run raised an alarm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, metavar="PAGE.md", help="write the page there instead of printing it")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep the measurements there and reuse them")
    parser.add_argument("--part", nargs=2, metavar=("N", "DIRECTORY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        recorder = Slipcover()
        with ImportManager(recorder, FileMatcher([ROOT / "broker"])):  # before anything of the broker is there
            make(recorder, options.seeds, options.jobs, int(options.part[0]), Path(options.part[1]))
        return 0
    with tempfile.TemporaryDirectory(prefix="brownout-reached-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        again = [sys.executable, "-m", "tests.simulator.reached_lines", *sys.argv[1:]]
        parts = [
            subprocess.Popen([*again, "--part", str(number), str(directory.resolve())], cwd=ROOT)
            for number in range(options.jobs)
        ]
        ended = [part.wait() for part in parts]
        notes = [run.made(directory) for run in islice(runs(), options.seeds)]
        if any(ended) or not all(note.exists() for note in notes):
            sys.exit(
                "a process that made runs ended before all of its own were made: no result is printed of the others'"
            )
        alarms = sum(note.read_text().startswith(ALARM) for note in notes)
        found = measured(directory)
    text = page(found, list(islice(runs(), options.seeds)))
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())
