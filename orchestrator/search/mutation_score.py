"""How well campaigns see the broker's deliberate bugs: each run in the simulated world, over many seeds."""

from __future__ import annotations

import math
import shutil
import signal
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from analysis.verdict import PASS, UNKNOWN, Expectation, first_reasons
from orchestrator.campaign.model import Campaign, Cell
from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import MOST_RUNS, expand
from orchestrator.campaign.store import Store
from orchestrator.cleanup import always
from orchestrator.errors import STOPPING, RunError, UsageError
from orchestrator.machine import syscalls
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.search.run_maker import Made, Maker, require_simulation

_Z = 1.959963984540054  # of a normal distribution: 95 % lie within
_AHEAD: Final = 4
"""Runs that wait for each process: what was asked for may be more than memory holds."""


@dataclass(frozen=True)
class MutantSchedule:
    """A mutant under a campaign. `anomalies`: those that are expected of it; of a benign one none is."""

    mutant: str
    rule: str
    anomalies: tuple[str, ...]
    campaign: Campaign
    cell: Cell


@dataclass(frozen=True)
class MutantTrial:
    """One run of a mutant. `killed_by`: the expected anomalies that the analysis named; of a benign one, all. `reason`:
    why it is unknown. Times are None of a run that broke down before it had them."""

    seed: int
    verdict: str
    killed_by: tuple[str, ...]
    simulated_s: float | None = None
    cpu_s: float | None = None
    reason: str = ""

    @property
    def decided(self) -> bool:
        """Whether it says anything of the mutant."""
        return self.verdict != UNKNOWN or bool(self.killed_by)


@dataclass
class MutantResult:
    """What the trials of one schedule came to, so far."""

    schedule: MutantSchedule
    trials: list[MutantTrial] = field(default_factory=list)

    @property
    def killed(self) -> int:
        return sum(bool(trial.killed_by) for trial in self.trials)

    @property
    def decided(self) -> int:
        return sum(trial.decided for trial in self.trials)

    @property
    def benign(self) -> bool:
        return not self.schedule.anomalies

    def to_json(self) -> dict[str, Any]:
        """Times are medians, in seconds, of a run without its analysis. `interval`: of the share of the decided runs
        that killed it, None where there are none."""
        by = Counter(name for trial in self.trials for name in trial.killed_by)
        interval = [round(bound, 4) for bound in wilson(self.killed, self.decided)] if self.decided else None
        return {
            "mutant": self.schedule.mutant,
            "rule": self.schedule.rule,
            "benign": self.benign,
            "campaign": self.schedule.campaign.name,
            "killed": self.killed,
            "decided": self.decided,
            "runs": len(self.trials),
            "unknown": len(self.trials) - self.decided,
            "interval": interval,
            "by": dict(by.most_common()),
            "verdicts": dict(Counter(trial.verdict for trial in self.trials)),
            "simulated_s": _median((trial.simulated_s for trial in self.trials), 1),
            "cpu_s": _median((trial.cpu_s for trial in self.trials), 2),
            "missed": [trial.seed for trial in self.trials if trial.decided and not trial.killed_by],
            "undecided": [{"seed": it.seed, "reason": it.reason} for it in self.trials if not it.decided],
        }


def _median(values: Iterable[float | None], places: int) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), places) if known else None


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share. Raises `ValueError` without a try."""
    if tries < 1:
        raise ValueError("nothing was tried")
    share, z2 = hits / tries, _Z * _Z
    middle = (share + z2 / (2 * tries)) / (1 + z2 / tries)
    half = _Z * math.sqrt(share * (1 - share) / tries + z2 / (4 * tries * tries)) / (1 + z2 / tries)
    return max(0.0, middle - half), min(1.0, middle + half)


def schedules(mutants: Mapping[str, Any], names: Sequence[str], campaigns: Sequence[Path]) -> list[MutantSchedule]:
    """For each of these mutants every cell of these campaigns that has it alone, or besides what a cell has that must
    pass, so that it is the only change; and every campaign that has no cell of a mutant, with it switched on. Raises
    `UsageError` for a mutant that is not there or that no campaign is for, and for a campaign that the simulation
    cannot make."""
    loaded = [load(path) for path in campaigns]
    return [schedule for name in names for schedule in _schedules_of(mutants, name, loaded)]


def all_schedules(mutants: Mapping[str, Any], campaigns: Sequence[Path]) -> tuple[list[MutantSchedule], dict[str, str]]:
    """The schedules of all mutants that have some here; of the others, why they have none."""
    loaded = [load(path) for path in campaigns]
    found: list[MutantSchedule] = []
    without: dict[str, str] = {}
    for name in sorted(mutants):
        try:
            found += _schedules_of(mutants, name, loaded)
        except UsageError as error:
            without[name] = str(error)
    return found, without


def _schedules_of(mutants: Mapping[str, Any], name: str, campaigns: Sequence[Campaign]) -> list[MutantSchedule]:
    if name not in mutants:
        raise UsageError(f"there is no mutant {name!r}; there are: {', '.join(sorted(mutants))}")
    mutant = mutants[name]
    expected = tuple(part.strip() for part in mutant.anomaly.split(",") if part)
    found = [
        MutantSchedule(name, mutant.rule, expected, campaign, cell)
        for campaign in campaigns
        for cell in _cells(campaign, name, expected)
    ]
    if not found:
        raise UsageError(f"no campaign has a cell with {name} alone; give one with --campaign FILE")
    for schedule in found:
        require_simulation(schedule.campaign, "it is where mutants are tried")
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
    expect = Expectation("fail", expected[0]) if expected else Expectation("pass")
    return [Cell(mutant.replace("_", "-"), (mutant,), expect=expect)]


def check_size(wanted: Sequence[MutantSchedule], seeds: Sequence[int]) -> None:
    """Raise `UsageError` for more runs than anybody could make."""
    if len(wanted) * len(seeds) > MOST_RUNS:
        count = f"{len(wanted):,} schedules with {len(seeds):,} seeds"
        raise UsageError(f"{count} are more than {MOST_RUNS:,} runs; ask for fewer with --seeds, or name some mutants")


def measure(
    wanted: Sequence[MutantSchedule],
    seeds: Sequence[int],
    heard: Callable[[MutantResult], None],
    *,
    scratch: Path,
    interrupts: Interrupts,
    jobs: int = 1,
) -> None:
    """Run every schedule with every seed, in so many processes; `heard` gets each schedule's result, with what it came
    to until then when the user stops it. Runs are made below `scratch`, and none stays. Raises `Interrupted`, and
    `RunError` when one of the processes ends by itself."""
    if jobs == 1:
        trials = (_tried(schedule, seed, scratch, interrupts) for schedule in wanted for seed in seeds)
        _collect(wanted, len(seeds), trials, heard)
        return
    # Processes of their own: a simulated run takes over signals, the clock and garbage collection of its process.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_begin_process)
    with always(lambda: pool.shutdown(cancel_futures=True), shield=interrupts.shielded):
        try:
            _collect(wanted, len(seeds), _spread(pool, wanted, seeds, scratch, jobs * _AHEAD), heard)
        except BrokenProcessPool as error:
            raise RunError(
                f"a process that made runs ended by itself, as where memory is short; with --jobs {jobs - 1} fewer are "
                "made at a time"
            ) from error


def _begin_process() -> None:
    """Whoever made this process decides when it ends, and it never outlives that one."""
    syscalls.die_with_parent(signal.SIGKILL)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def _spread(
    pool: ProcessPoolExecutor, wanted: Sequence[MutantSchedule], seeds: Sequence[int], scratch: Path, ahead: int
) -> Iterator[MutantTrial]:
    """All trials in their order, with no more than so many under way or waiting."""
    begun: deque[Future[MutantTrial]] = deque()
    for number, schedule in enumerate(wanted):
        for seed in seeds:
            begun.append(pool.submit(_tried, schedule, seed, scratch / f"{number}-{seed}"))
            if len(begun) >= ahead:
                yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()


def _collect(
    wanted: Sequence[MutantSchedule], count: int, trials: Iterator[MutantTrial], heard: Callable[[MutantResult], None]
) -> None:
    """`count`: of each schedule's trials, which come one schedule after the other."""
    for schedule in wanted:
        measured = MutantResult(schedule)
        try:
            for _ in range(count):
                measured.trials.append(next(trials))
        finally:
            if measured.trials:
                heard(measured)


def _tried(schedule: MutantSchedule, seed: int, directory: Path, interrupts: Interrupts | None = None) -> MutantTrial:
    """Make and judge one run; nothing of it stays but the trial. Whatever breaks leaves it unknown, with the reason:
    what other seeds come to is known all the same. Raises `Interrupted` where the user can stop it."""
    store, campaign = Store(directory), replace(schedule.campaign, cells=(schedule.cell,))
    try:
        (planned,) = expand(campaign, store.new_stamp(), seeds=(seed,))
        maker = Maker(store, Progress(quiet=True), interrupts or Interrupts(lambda: None, lambda: None))
        return _trial(schedule, seed, maker.make(planned))
    except Exception as error:  # a defect of ours or of the broker's
        return MutantTrial(seed, UNKNOWN, (), reason=f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(store.campaign_dir(campaign.name), ignore_errors=True)


def _trial(schedule: MutantSchedule, seed: int, made: Made) -> MutantTrial:
    killed_by = tuple(name for name in schedule.anomalies or sorted(made.anomalies) if name in made.anomalies)
    has_times = bool(made.digest)
    return MutantTrial(
        seed,
        made.verdict.verdict,
        killed_by,
        made.simulated_s if has_times else None,
        made.cpu_s if has_times else None,
        "; ".join(first_reasons(made.verdict.reasons, 2)),
    )
