"""`brownout mutants`: lists the broker's deliberate bugs and measures how well campaigns find them in simulation."""

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from analysis.verdict import PASS, UNKNOWN, Expectation, first_reasons
from installation.counted import counted
from installation.files import PROJECT_ROOT, default_store
from orchestrator.campaign.lookup import find
from orchestrator.campaign.model import Campaign, Cell
from orchestrator.campaign.parser import load
from orchestrator.campaign.plan import MOST_RUNS, expand
from orchestrator.campaign.seed_list import SEEDS, read_seed_list
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option, positive
from orchestrator.errors import EXIT_FAIL, EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNKNOWN, Interrupted, UsageError
from orchestrator.printing import say, show
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.running.worker_processes import worker_processes
from orchestrator.search.run_maker import Made, Maker, require_simulation, scratch
from orchestrator.store.directories import Store
from systems.toml_tables import suggestion

_Z = 1.959963984540054  # quantile of the normal distribution for 95 %
R = TypeVar("R")
_AHEAD: Final = 4
"""Queued runs per process: the whole list may not fit into memory."""


@dataclass(frozen=True)
class MutantSchedule:
    """A mutant under a campaign. `anomalies`: those that it must cause; empty for a benign mutant."""

    mutant: str
    rule: str
    anomalies: tuple[str, ...]
    campaign: Campaign
    cell: Cell


@dataclass(frozen=True)
class MutantTrial:
    """One run of a mutant. `killed_by`: the expected anomalies in the verdict; for a benign mutant all anomalies.
    `reason`: why it is unknown. A time of None: the run ended too early to measure it."""

    seed: int
    verdict: str
    killed_by: tuple[str, ...]
    simulated_s: float | None = None
    cpu_s: float | None = None
    reason: str = ""

    @property
    def decided(self) -> bool:
        """Whether the run is evidence about the mutant."""
        return self.verdict != UNKNOWN or bool(self.killed_by)


@dataclass
class MutantResult:
    """The results so far of one schedule."""

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
        """Times are medians, in seconds, of a run without its analysis. `interval`: of the share of decided runs that
        killed the mutant, None without decided runs."""
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
            "undecided": [{"seed": trial.seed, "reason": trial.reason} for trial in self.trials if not trial.decided],
        }


def _median(values: Iterable[float | None], places: int) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(statistics.median(numbers), places) if numbers else None


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share. Raises `ValueError` for zero tries."""
    if tries < 1:
        raise ValueError("the interval of zero tries is undefined")
    share, z2 = hits / tries, _Z * _Z
    middle = (share + z2 / (2 * tries)) / (1 + z2 / tries)
    half = _Z * math.sqrt(share * (1 - share) / tries + z2 / (4 * tries * tries)) / (1 + z2 / tries)
    return max(0.0, middle - half), min(1.0, middle + half)


def schedules(mutants: Mapping[str, Any], names: Sequence[str], campaigns: Sequence[Path]) -> list[MutantSchedule]:
    """For each of these mutants: every cell of these campaigns that has it alone, or in addition to the mutants of a
    cell that must pass, so that it is the only change; and every campaign without such a cell, with the mutant switched
    on. Raises `UsageError` for an unknown mutant, for a mutant without any campaign, and for a campaign that the
    simulation cannot run."""
    loaded = [load(path) for path in campaigns]
    return [schedule for name in names for schedule in _schedules_of(mutants, name, loaded)]


def all_schedules(mutants: Mapping[str, Any], campaigns: Sequence[Path]) -> tuple[list[MutantSchedule], dict[str, str]]:
    """The schedules of all mutants that have any here; for each other mutant, the reason."""
    loaded = [load(path) for path in campaigns]
    mutant_schedules: list[MutantSchedule] = []
    without: dict[str, str] = {}
    for name in sorted(mutants):
        try:
            mutant_schedules += _schedules_of(mutants, name, loaded)
        except UsageError as error:
            without[name] = str(error)
    return mutant_schedules, without


def _schedules_of(mutants: Mapping[str, Any], name: str, campaigns: Sequence[Campaign]) -> list[MutantSchedule]:
    if name not in mutants:
        raise UsageError(f"unknown mutant {name!r}; the mutants are: {', '.join(sorted(mutants))}")
    mutant = mutants[name]
    expected = tuple(part.strip() for part in mutant.anomaly.split(",") if part)
    mutant_schedules = [
        MutantSchedule(name, mutant.rule, expected, campaign, cell)
        for campaign in campaigns
        for cell in _cells(campaign, name, expected)
    ]
    if not mutant_schedules:
        raise UsageError(f"no campaign has a cell with {name} alone; give one with --campaign FILE")
    for schedule in mutant_schedules:
        require_simulation(schedule.campaign, "mutants are measured in it")
    return mutant_schedules


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


def check_size(selection: Sequence[MutantSchedule], seeds: Sequence[int]) -> None:
    """Raise `UsageError` for more than `MOST_RUNS` runs."""
    if len(selection) * len(seeds) > MOST_RUNS:
        count = f"{counted(len(selection), 'schedule')} with {counted(len(seeds), 'seed')}"
        raise UsageError(f"{count}: more than {MOST_RUNS:,} runs; ask for fewer with --seeds, or name some mutants")


def measure(
    selection: Sequence[MutantSchedule],
    seeds: Sequence[int],
    heard: Callable[[MutantResult], None],
    *,
    directory: Path,
    interrupts: Interrupts,
    jobs: int = 1,
) -> None:
    """Run every schedule with every seed, in `jobs` processes; `heard` gets each schedule's result, also a partial one
    when the user interrupts. Runs are made below `directory` and removed. Raises as `_results`."""
    arguments = (
        (schedule, seed, directory / f"{number}-{seed}") for number, schedule in enumerate(selection) for seed in seeds
    )
    with contextlib.closing(_results(_tried, arguments, interrupts, jobs)) as trials:
        for schedule in selection:
            measured = MutantResult(schedule)
            try:
                for _ in seeds:
                    measured.trials.append(next(trials))
            finally:
                if measured.trials:
                    heard(measured)


def _results(
    function: Callable[..., R], arguments: Iterable[tuple[Any, ...]], interrupts: Interrupts, jobs: int
) -> Generator[R, None, None]:
    """The results of the function in the order of its arguments, made in `jobs` processes; only a bounded number is
    queued or running. In this process it also gets `interrupts`. Raises `Interrupted`, and `RunError` when one of the
    processes ends unexpectedly."""
    if jobs == 1:
        yield from (function(*each, interrupts) for each in arguments)
        return
    with worker_processes(jobs, interrupts) as pool:
        pending: deque[Future[R]] = deque()
        for each in arguments:
            pending.append(pool.submit(function, *each))
            if len(pending) >= jobs * _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _tried(schedule: MutantSchedule, seed: int, directory: Path, interrupts: Interrupts | None = None) -> MutantTrial:
    """Make and analyze one run; only the trial is kept. An exception makes it unknown with a reason, so that
    results of other seeds are kept. Raises `Interrupted` if the user can interrupt it."""
    store, campaign = Store(directory), replace(schedule.campaign, cells=(schedule.cell,))
    try:
        (planned,) = expand(campaign, store.new_stamp(), seeds=(seed,))
        maker = Maker(store, Progress(quiet=True), interrupts or Interrupts(lambda: None, lambda: None))
        return _trial(schedule, seed, maker.make(planned))
    except Exception as error:  # a bug in Brownout or in the broker
        return MutantTrial(seed, UNKNOWN, (), reason=f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(store.campaign_dir(campaign.name), ignore_errors=True)


def _trial(schedule: MutantSchedule, seed: int, made: Made) -> MutantTrial:
    killed_by = tuple(name for name in schedule.anomalies or sorted(made.anomalies) if name in made.anomalies)
    has_times = bool(made.digest)
    return MutantTrial(
        seed,
        made.outcome,
        killed_by,
        made.simulated_s if has_times else None,
        made.cpu_s if has_times else None,
        "; ".join(first_reasons(made.verdict.reasons, 2)),
    )


@dataclass(frozen=True)
class GenericResult:
    """A mutant under campaigns that were made for no mutant, up to the first run with an anomaly, or until its budget
    is spent."""

    mutant: str
    benign: bool
    runs: int
    undecided: int
    cpu_s: float
    """Of all these runs, with their analyses."""
    campaign: str = ""
    """The campaign of the run that killed it; empty if it survived."""
    seed: int = -1
    anomalies: tuple[str, ...] = ()

    @property
    def is_killed(self) -> bool:
        return bool(self.campaign)


def generic_result(
    mutant: str,
    expected: tuple[str, ...],
    campaigns: Sequence[Campaign],
    seeds: Sequence[int],
    budget_s: float,
    directory: Path,
    interrupts: Interrupts | None = None,
) -> GenericResult:
    """Try a mutant with one seed after the other, always under the campaign that has cost least so far: a campaign of
    long runs takes no larger part of the budget than one of short runs. Raises `Interrupted` with `interrupts`."""
    start_s, undecided, runs = _processor_s(), 0, 0
    costs_s, unused_seeds = [0.0] * len(campaigns), [list(reversed(seeds)) for _ in campaigns]
    while (spent_s := _processor_s() - start_s) < budget_s and any(unused_seeds):
        cheapest = min((at for at, unused in enumerate(unused_seeds) if unused), key=costs_s.__getitem__)
        campaign, seed = campaigns[cheapest], unused_seeds[cheapest].pop()
        (cell,) = _cells(campaign, mutant, expected)
        trial = _tried(MutantSchedule(mutant, "", (), campaign, cell), seed, directory, interrupts)
        costs_s[cheapest] += _processor_s() - start_s - spent_s
        runs, undecided = runs + 1, undecided + (not trial.decided)
        if trial.killed_by:
            spent_s = _processor_s() - start_s
            return GenericResult(mutant, not expected, runs, undecided, spent_s, campaign.name, seed, trial.killed_by)
    return GenericResult(mutant, not expected, runs, undecided, spent_s)


def _processor_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def generic_score(results: Sequence[GenericResult]) -> str:
    """The score as a sentence: the share of mutants that were killed, and what a kill cost."""
    harmful = [result for result in results if not result.benign]
    costs = [result.cpu_s for result in harmful if result.is_killed]
    share = f" ({len(costs) / len(harmful):.0%}), median {statistics.median(costs):.1f} CPU s" if costs else ""
    alarms = sum(result.is_killed for result in results if result.benign)
    benign = counted(len(results) - len(harmful), "benign mutant")
    killed = f"{len(costs)} of {counted(len(harmful), 'mutant')} killed{share}"
    return f"generic score: {killed}; {benign}, {alarms} with an alarm"


GENERIC: Final = ("swarm", "swarm-groups", "chaos-simulated", "tiered-chaos")
"""Campaigns that were made for no mutant."""
GENERIC_BUDGET_S: Final = 60
GENERAL = "chaos-simulated"
PAGE = PROJECT_ROOT / "docs" / "mutants.md"
BEGIN = "<!-- what follows is written by `brownout mutants --seeds FIRST-LAST --write` -->\n"
END = "<!-- until here -->\n"
_MOST_UNDECIDED = 3  # undecided runs that are printed per schedule, with reasons; --json has all
_GENERIC_COLUMNS = ("mutant", "killed by", "campaign", "seed", "runs", "unknown", "processor")
_COLUMNS = ("mutant", "campaign", "killed", "of decided", "unknown", "by", "simulated", "processor")


def main(options: argparse.Namespace) -> int:
    """Print the table of mutants, or with `--seeds` the measured results. Raises `UsageError`."""
    from systems.brownout.broker import Brownout

    for name in options.names:
        if name not in Brownout.mutants:
            raise UsageError(f"unknown mutant {name!r}; {suggestion(name, Brownout.mutants)}")
    if options.seeds is None:
        if options.names or options.campaign or options.write or options.jobs or options.generic or options.budget:
            raise UsageError("nothing is run without --seeds; give it, or leave out the other arguments")
        _list(Brownout.mutants, as_json=options.json)
        return EXIT_PASS
    if options.budget and not options.generic:
        raise UsageError("--budget is of --generic; give both")
    if options.generic:
        return _generic(options, Brownout.mutants)
    return _measure(options, Brownout.mutants)


def _generic(options: argparse.Namespace, mutants: Mapping[str, Any]) -> int:
    """Print the generic score. Raises `UsageError` for a campaign that has mutants or is not of the simulation."""
    if options.write:
        raise UsageError("--write stores the table of expected anomalies; leave it out, or leave out --generic")
    campaigns = [load(find(name)) for name in options.campaign or GENERIC]
    for campaign in campaigns:
        require_simulation(campaign, "mutants are measured in it")
        if any(cell.mutants for cell in campaign.cells):
            raise UsageError(f"{campaign.path}: its cells have mutants; --generic needs a campaign without any")
    seeds, results = read_seed_list(options.seeds), list[GenericResult]()
    names = options.names or sorted(mutants)
    try:
        for result in _generic_results({name: mutants[name] for name in names}, campaigns, seeds, options):
            results.append(result)
            outcome = f"killed by {', '.join(result.anomalies)}" if result.is_killed else "survived"
            say(
                f"{len(results)} of {len(names)}: {result.mutant}: {outcome}, {result.cpu_s:.1f} CPU s", file=sys.stderr
            )
    except Interrupted:
        return EXIT_INTERRUPTED
    finally:  # also after an interrupt or error: print the results so far
        if options.json:
            print(json.dumps([asdict(result) for result in results], indent=1))
        else:
            show(f"mutants, seeds {options.seeds}", list(map(_generic_row, results)), _GENERIC_COLUMNS)
            say(generic_score(results))
    if any(result.benign and result.is_killed for result in results):
        return EXIT_FAIL
    return EXIT_UNKNOWN if any(result.undecided == result.runs for result in results) else EXIT_PASS


def _generic_results(
    mutants: Mapping[str, Any], campaigns: Sequence[Campaign], seeds: Sequence[int], options: argparse.Namespace
) -> Iterator[GenericResult]:
    """The result of each mutant, in their order. Raises as `_results`."""
    budget_s = options.budget or GENERIC_BUDGET_S
    interrupts = Interrupts(lambda: say("stopping; printing the results so far", file=sys.stderr), lambda: None)
    with interrupts.installed(), scratch(Store(default_store().resolve())) as directory:
        arguments = [
            (name, tuple(filter(None, mutant.anomaly.split(","))), campaigns, seeds, budget_s, directory / name)
            for name, mutant in mutants.items()
        ]
        jobs = min(options.jobs or os.cpu_count() or 1, len(mutants))
        yield from _results(generic_result, arguments, interrupts, jobs)


def _generic_row(result: GenericResult) -> dict[str, str]:
    return {
        "mutant": f"{result.mutant} (benign)" if result.benign else result.mutant,
        "killed by": ", ".join(result.anomalies) or "nothing",
        "campaign": result.campaign or "-",
        "seed": str(result.seed) if result.is_killed else "-",
        "runs": str(result.runs),
        "unknown": str(result.undecided),
        "processor": f"{result.cpu_s:.1f} s",
    }


def _list(mutants: Mapping[str, Any], *, as_json: bool) -> None:
    rows = [{"name": m.name, "rule": m.rule, "anomaly": m.anomaly, "schedule": m.schedule} for m in mutants.values()]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        show("mutants", rows, ("name", "rule", "anomaly", "schedule"))


def _measure(options: argparse.Namespace, mutants: Mapping[str, Any]) -> int:

    given = [find(name) for name in options.campaign]
    campaigns = given or [find(name) for name in sorted(_named(mutants))]
    without = dict[str, str]()
    if options.names:
        wanted = schedules(mutants, options.names, campaigns)
    else:
        wanted, without = all_schedules(mutants, campaigns)
        if not given:  # mutants without a campaign of their own are tried under random faults
            others, without = all_schedules({name: mutants[name] for name in without}, [find(GENERAL)])
            wanted += others

    seeds, results = read_seed_list(options.seeds), list["MutantResult"]()
    check_size(wanted, seeds)
    try:
        _measure_all(wanted, seeds, options.jobs or os.cpu_count() or 1, results)
    except Interrupted:
        return EXIT_INTERRUPTED
    finally:  # also after an interrupt or error: print the results so far
        _print([each.to_json() for each in results], without, options)
    if options.write:
        rows = [each.to_json() for each in results]
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rows, options.seeds), encoding="utf-8")
    return exit_code(results)


def _measure_all(
    wanted: Sequence[MutantSchedule], seeds: Sequence[int], jobs: int, results: list[MutantResult]
) -> None:
    """Append the result of each schedule to `results`, and print a line about it. Raises as `measure`."""

    def finished(result: MutantResult) -> None:
        results.append(result)
        schedule, found = result.schedule, "false alarm" if result.benign else "killed"
        text = f"{schedule.mutant}, {schedule.campaign.name}: {found} in {result.killed} of {result.decided} decided"
        say(f"{len(results)} of {len(wanted)}: {text}", file=sys.stderr)

    interrupts = Interrupts(lambda: say("stopping; printing the results so far", file=sys.stderr), lambda: None)
    with interrupts.installed(), scratch(Store(default_store().resolve())) as directory:
        measure(wanted, seeds, finished, directory=directory, interrupts=interrupts, jobs=jobs)


def exit_code(results: Sequence[MutantResult]) -> int:
    """Fail if a benign mutant raised an alarm; unknown if a mutant has no decided run, or nothing was tried; else pass,
    regardless of how often each was killed: the table shows that."""
    if any(each.benign and each.killed for each in results):
        return EXIT_FAIL
    return EXIT_PASS if results and all(each.decided for each in results) else EXIT_UNKNOWN


def _print(results: Sequence[Mapping[str, Any]], without: Mapping[str, str], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(results, indent=1, allow_nan=False))
    else:
        show(f"mutants, seeds {options.seeds}", [_row(result) for result in results], _COLUMNS)
    for result in results:
        for it in result["undecided"][:_MOST_UNDECIDED]:
            say(
                f"unknown: {result['mutant']}, {result['campaign']}, seed {it['seed']}: {it['reason']}", file=sys.stderr
            )
    for name, reason in without.items():
        say(f"not tried: {name}: {reason}", file=sys.stderr)


def _named(mutants: Mapping[str, Any]) -> set[str]:
    """The campaigns that the mutants name."""
    words = [word.strip(",;.") for mutant in mutants.values() for word in mutant.schedule.split()]
    return {Path(word.removesuffix(".toml")).name for word in words if word.startswith("campaigns/")}


def _row(result: Mapping[str, Any]) -> dict[str, str]:
    share = "({:.0%} to {:.0%})".format(*result["interval"]) if result["interval"] else ""
    return {
        "mutant": f"{result['mutant']} (benign)" if result["benign"] else result["mutant"],
        "campaign": result["campaign"],
        "killed": f"{result['killed']} {share}" if share else "-",
        "of decided": str(result["decided"]),
        "unknown": str(result["unknown"]),
        "by": ", ".join(f"{name} {count}" for name, count in result["by"].items()) or "nothing",
        "simulated": _seconds(result["simulated_s"]),
        "processor": _seconds(result["cpu_s"]),
    }


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:g} s"


def with_table(page: str, results: Sequence[Mapping[str, Any]], seeds: str) -> str:
    """The page with these results between its markers. Raises `UsageError` if it has no markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"{PAGE}: the marker lines {BEGIN.strip()} and {END.strip()} of the table are missing")
    lines = [
        f"Seeds {seeds} of each campaign, in the simulation. Killed: the analysis reported an anomaly that the mutant",
        "must cause (95 % Wilson interval, of the decided runs). Times are medians without the analysis.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
        *(f"| {' | '.join(_row(result)[column] for column in _COLUMNS)} |" for result in results),
        "",
    ]
    return before + BEGIN + "\n".join(lines) + END + after


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("names", nargs="*", metavar="NAME", help="only these mutants")
    command.add_argument("--seeds", metavar=SEEDS, help="run each mutant in the simulated world with these seeds")
    command.add_argument(
        "--campaign",
        action="append",
        default=[],
        metavar="CAMPAIGN",
        help="the campaign to run (repeatable). One without a cell for a mutant is run with the mutant switched on "
        "(default: the campaign that the mutant names, else chaos-simulated)",
    )
    command.add_argument(
        "--jobs", type=positive, default=None, metavar="N", help="concurrent runs (default: the number of cores)"
    )
    command.add_argument(
        "--generic",
        action="store_true",
        help="try each mutant under campaigns that were made for no mutant, each for the same processor time, until an "
        f"anomaly kills it (default of --campaign: {', '.join(GENERIC)})",
    )
    command.add_argument(
        "--budget",
        type=positive,
        metavar="SECONDS",
        help=f"with --generic: the processor time of the runs of each mutant (default: {GENERIC_BUDGET_S})",
    )
    command.add_argument("--write", action="store_true", help="write the result into docs/mutants.md")
    json_option(command)


COMMAND: Final = Command(
    name="mutants",
    place=150,
    summary="list or measure the deliberate bugs that campaigns can switch on",
    description="""\
Lists the mutants of the broker: the rule that each breaks, the anomaly it must cause, and its campaign.

  brownout mutants --seeds 1-20                    how many of 20 simulated runs kill each mutant
  brownout mutants NAME --seeds 1-20 --campaign X  one mutant, under your own campaign
  brownout mutants --seeds 9001-9040 --generic     which mutants die under campaigns that name none, and at what cost

Ctrl-C stops and prints the results so far. Unknown runs are not counted: shares are of the decided runs.
Exit 1: a benign mutant raised an alarm. Exit 2: a mutant has no decided run. With --generic any anomaly kills a mutant.
""",
    options=_options,
    main=main,
)
