"""How well campaigns see the broker's deliberate bugs: each run in the simulated world, over many seeds."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.verdict import PASS
from orchestrator.campaign.file import load
from orchestrator.campaign.judging import Engine
from orchestrator.campaign.model import Campaign, Cell, Expect
from orchestrator.campaign.plan import expand
from orchestrator.campaign.store import RunDirectory, Store
from orchestrator.errors import UsageError
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.runner import Invocation, Runner, RunOptions, require_faults
from orchestrator.worlds.selection import Selection, lab_named

WORLD = "simulation"
_SUMMARY = "simulation.json"
_Z = 1.959963984540054  # of a normal distribution: 95 % lie within


@dataclass(frozen=True)
class Schedule:
    """A mutant under a campaign. `anomalies`: those that are expected of it."""

    mutant: str
    rule: str
    anomalies: tuple[str, ...]
    campaign: Campaign
    cell: Cell


@dataclass(frozen=True)
class Trial:
    """One run of a mutant. `killed_by`: the expected anomalies that the analysis named."""

    seed: int
    verdict: str
    killed_by: tuple[str, ...]
    simulated_s: float
    cpu_s: float


@dataclass
class Measured:
    """What the trials of one schedule came to, so far."""

    schedule: Schedule
    trials: list[Trial] = field(default_factory=list)

    @property
    def killed(self) -> int:
        return sum(bool(trial.killed_by) for trial in self.trials)

    def to_json(self) -> dict[str, Any]:
        """Times are medians, in seconds, of a run without its analysis."""
        low, high = wilson(self.killed, len(self.trials))
        by = Counter(name for trial in self.trials for name in trial.killed_by)
        return {
            "mutant": self.schedule.mutant,
            "rule": self.schedule.rule,
            "campaign": self.schedule.campaign.name,
            "killed": self.killed,
            "runs": len(self.trials),
            "interval": [round(low, 4), round(high, 4)],
            "by": dict(by.most_common()),
            "verdicts": dict(Counter(trial.verdict for trial in self.trials)),
            "simulated_s": round(statistics.median(trial.simulated_s for trial in self.trials), 1),
            "cpu_s": round(statistics.median(trial.cpu_s for trial in self.trials), 2),
            "missed": [trial.seed for trial in self.trials if not trial.killed_by],
        }


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share. Raises `ValueError` without a try."""
    if tries < 1:
        raise ValueError("nothing was tried")
    share, z2 = hits / tries, _Z * _Z
    middle = (share + z2 / (2 * tries)) / (1 + z2 / tries)
    half = _Z * math.sqrt(share * (1 - share) / tries + z2 / (4 * tries * tries)) / (1 + z2 / tries)
    return max(0.0, middle - half), min(1.0, middle + half)


def schedules(mutants: Mapping[str, Any], names: Sequence[str], campaigns: Sequence[Path]) -> list[Schedule]:
    """For each of these mutants every cell of these campaigns that has it alone, or besides what a cell has that must
    pass, so that it is the only change; and every campaign that has no cell of a mutant, with it switched on. Raises
    `UsageError` for a mutant that is not there or that no campaign is for, and for a campaign that the simulation
    cannot make."""
    loaded = [load(path) for path in campaigns]
    return [schedule for name in names for schedule in _schedules_of(mutants, name, loaded)]


def all_schedules(mutants: Mapping[str, Any], campaigns: Sequence[Path]) -> tuple[list[Schedule], dict[str, str]]:
    """The schedules of all mutants that have some here; of the others, why they have none."""
    loaded = [load(path) for path in campaigns]
    found: list[Schedule] = []
    without: dict[str, str] = {}
    for name in sorted(mutants):
        try:
            found += _schedules_of(mutants, name, loaded)
        except UsageError as error:
            without[name] = str(error)
    return found, without


def _schedules_of(mutants: Mapping[str, Any], name: str, campaigns: Sequence[Campaign]) -> list[Schedule]:
    if name not in mutants:
        raise UsageError(f"there is no mutant {name!r}; there are: {', '.join(sorted(mutants))}")
    mutant = mutants[name]
    expected = tuple(part.strip() for part in mutant.anomaly.split(","))
    found = [
        Schedule(name, mutant.rule, expected, campaign, cell)
        for campaign in campaigns
        for cell in _cells(campaign, name, expected)
    ]
    if not found:
        raise UsageError(f"no campaign has a cell with {name} alone; give one with --campaign FILE")
    for schedule in found:
        require_faults(schedule.campaign, lab_named(WORLD), "it is where mutants are tried")
    return found


def _cells(campaign: Campaign, mutant: str, expected: tuple[str, ...]) -> list[Cell]:
    if any(cell.mutants for cell in campaign.cells):
        harmless = [set(cell.mutants) for cell in campaign.cells if cell.expect.verdict == PASS]
        return [
            cell
            for cell in campaign.cells
            if mutant in cell.mutants
            and cell.expect.verdict != PASS
            and (cell.mutants == (mutant,) or set(cell.mutants) - {mutant} in harmless)
        ]
    return [Cell(mutant.replace("_", "-"), (mutant,), expect=Expect("fail", expected[0]))]


def measure(
    wanted: Sequence[Schedule], seeds: Sequence[int], progress: Progress, heard: Callable[[Measured], None]
) -> None:
    """Run every schedule with every seed; `heard` gets each schedule's result, with what it came to until then when
    the user stops it. Raises `Interrupted`."""
    with tempfile.TemporaryDirectory(prefix="brownout-mutants-") as directory:
        for schedule in wanted:
            measured = Measured(schedule)
            try:
                for trial in _trials(schedule, seeds, Path(directory), progress):
                    measured.trials.append(trial)
            finally:
                if measured.trials:
                    heard(measured)


def _trials(schedule: Schedule, seeds: Sequence[int], directory: Path, progress: Progress) -> Iterator[Trial]:
    store, campaign = Store(directory), replace(schedule.campaign, cells=(schedule.cell,))
    lab = lab_named(WORLD)
    options = RunOptions(
        Selection(lab, "mutants are tried there"), Engine("in-process", directory / ".spark", pictures=False)
    )
    interrupts = Interrupts(lambda: None, lambda: None)
    with interrupts.installed():
        for planned in expand(campaign, store.new_stamp(), seeds=seeds):
            Runner(store, options, progress, interrupts).make_all(
                Invocation(campaign, planned.id, (planned,), (planned.id,))
            )
            yield _trial(schedule, planned.seed, RunDirectory(store.campaign_dir(campaign.name) / planned.id))


def _trial(schedule: Schedule, seed: int, directory: RunDirectory) -> Trial:
    from analysis.verdict import VERDICT_FILE, Verdict  # brings Arrow with it

    verdict = Verdict.read(directory.path / VERDICT_FILE)
    named = {anomaly.name for anomaly in verdict.anomalies}
    summary: dict[str, Any] = {"simulated_s": math.nan, "cpu_s": math.nan}
    if (directory.path / _SUMMARY).exists():  # a run that broke down before has none
        summary = json.loads((directory.path / _SUMMARY).read_text(encoding="utf-8"))
    killed_by = tuple(name for name in schedule.anomalies if name in named)
    return Trial(seed, verdict.verdict, killed_by, summary["simulated_s"], summary["cpu_s"])
