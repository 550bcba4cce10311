"""Makes docs/reached-lines.md: which lines of the broker simulated runs reach.

    python -m tests.simulator.reached_lines [--seeds 200] [--jobs 2] [--keep DIRECTORY] [--write]

Of every campaign that the simulated world can make, the first cell whose broker is as it should be has one seed; the
seeds that are left over are those of the campaigns whose clusters are drawn, by turns. A run that does not come to the
verdict that is expected of it is named; one that fails is an alarm, which a broker without a mutant must never raise.
In a directory that is kept, what an interrupted measurement has made counts, as long as the broker is what it was.
"""

from __future__ import annotations

import argparse
import ast
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final

from coverage import Coverage, CoverageData
from slipcover import FileMatcher, ImportManager, Slipcover

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "reached-lines.md"
REASONS: Final = Path(__file__).with_name("reached_lines.toml")
CAMPAIGNS: Final = ROOT / "campaigns"
DRAWN: Final = (CAMPAIGNS / "swarm.toml", CAMPAIGNS / "swarm-groups.toml")
LEAST: Final = 0.9
"""Of a module's lines: what is less has its reason in `REASONS`."""
_NEVER_RUN: Final = (r"if TYPE_CHECKING:", r"^\s*\.\.\.$", r"@overload")
"""Lines that say something of types, to those who check them."""
_DATA: Final = ".reached"
_MADE: Final = ".made"
"""Of a run that was made: a file with what was to be said of it, empty for nothing."""
ALARM: Final = "alarm: "
NOT_KNOWN: Final = "**not known**"

INTRODUCTION: Final = """# What simulated runs reach of the broker

Made by `python -m tests.simulator.reached_lines --write` ({runs} runs: a seed of each of {campaigns} campaigns, and
{drawn} clusters that seeds drew). Lines are those that Python can execute; `__main__` is left out. A module below
{least:.0%} has its reason: most are rooms that only a process of its own has - sockets, TLS, files that a user
writes -, which tests with real processes reach. A test fails when a module of the broker is not on this page.

Of {modules} modules {reached} have {least:.0%} or more; all together {share:.1%}.

| module | lines | reached | why no more |
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
    from orchestrator.campaign.file import load
    from orchestrator.errors import UsageError
    from orchestrator.search.making import require_simulation

    for path in sorted(CAMPAIGNS.glob("*.toml")):
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
    from orchestrator.campaign.file import load
    from orchestrator.campaign.plan import PlannedRun, run_id
    from orchestrator.campaign.store import Store
    from orchestrator.campaign.swarm import draw
    from orchestrator.machine import syscalls
    from orchestrator.running.interrupts import Interrupts
    from orchestrator.running.progress import Progress
    from orchestrator.search.making import WHERE, Maker

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
    told = Coverage(data_file=None, source=["broker"], config_file=False)
    told.combine([str(path) for path in directory.glob(f"{_DATA}.*")], keep=True)
    for pattern in _NEVER_RUN:
        told.exclude(pattern)
    found = []
    for path in sorted((ROOT / "broker").rglob("*.py")):
        _, lines, _, missing, text = told.analysis2(str(path))
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if lines and path.name != "__main__.py":
            found.append(Reached(module, len(lines), len(lines) - len(missing), text))
    return found


class Reasons:
    """Why simulated runs reach less than `LEAST` of a module."""

    def __init__(self) -> None:
        self.all: dict[str, str] = tomllib.loads(REASONS.read_text(encoding="utf-8"))["reason"]

    def of(self, module: str) -> str | None:
        """The module's own, or that of the package in which it lies."""
        while module not in self.all and "." in module:
            module = module.rpartition(".")[0]
        return self.all.get(module)


def page(found: list[Reached], made: list[Run]) -> str:
    """The page, with a row for each module below `LEAST`."""
    lines, reached = sum(it.lines for it in found), sum(it.reached for it in found)
    drawn = sum(run.campaign in DRAWN for run in made)
    told = INTRODUCTION.format(
        runs=len(made), campaigns=len(made) - drawn, drawn=drawn, least=LEAST, modules=len(found),
        reached=sum(it.share >= LEAST for it in found), share=reached / lines,
    )  # fmt: skip
    reasons = Reasons()
    for it in sorted(found, key=lambda it: it.share):
        if it.share < LEAST:
            told += (
                f"| `{it.module}` | {it.lines} | {it.share * 100 // 1:.0f}% | {reasons.of(it.module) or NOT_KNOWN} |\n"
            )
    enough = (f"`{it.module}`" for it in sorted(found, key=lambda it: it.module) if it.share >= LEAST)
    return f"{told}\n{LEAST:.0%} or more: {', '.join(enough)}.\n"


def modules() -> Iterator[str]:
    """Those of the broker that have code, but its entry."""
    for path in sorted((ROOT / "broker").rglob("*.py")):
        code = ast.parse(path.read_text(encoding="utf-8")).body
        if path.name != "__main__.py" and any(not isinstance(statement, ast.Expr) for statement in code):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def unexplained(told: str) -> list[str]:
    """The modules of which a page says neither that simulated runs reach `LEAST` of them, nor why they do not."""
    table, _, enough = told.partition(f"\n{LEAST:.0%} or more: ")
    rows = (row.split(" | ") for row in table.splitlines() if row.startswith("| `"))
    known = {row[0].strip("| `") for row in rows if NOT_KNOWN not in row[-1]} | set(re.findall("`([^`]+)`", enough))
    return [module for module in modules() if module not in known]


def main() -> int:
    """Make the runs in processes of their own and tell what they reached; 1 when one of them raised an alarm, or a
    module is below `LEAST` without a reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="the page, too")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="what runs reach stays there, and counts again")
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
            sys.exit("a process that made runs ended before all of its own were made: nothing is told of the others'")
        alarms = sum(note.read_text().startswith(ALARM) for note in notes)
        found = measured(directory)
    reasons = Reasons()
    below = [it for it in found if it.share < LEAST]
    for it in below:
        print(f"{it.share:6.1%} {it.module}: {reasons.of(it.module) or f'no reason is known: {it.missing}'}")
    if options.write:
        PAGE.write_text(page(found, list(islice(runs(), options.seeds))), encoding="utf-8")
    return int(alarms > 0 or any(reasons.of(it.module) is None for it in below))


if __name__ == "__main__":
    sys.exit(main())
