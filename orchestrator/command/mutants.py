"""`brownout mutants`: lists the broker's deliberate bugs and measures how well campaigns find them in simulation."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from installation.files import PROJECT_ROOT, default_store
from orchestrator.campaign.lookup import find
from orchestrator.campaign.seed_list import SEEDS, read_seed_list
from orchestrator.command.shared.declaration import Command
from orchestrator.command.shared.options import json_option, positive
from orchestrator.errors import EXIT_FAIL, EXIT_INTERRUPTED, EXIT_PASS, EXIT_UNKNOWN, Interrupted, UsageError
from orchestrator.printing import say, show
from orchestrator.running.interrupts import Interrupts
from orchestrator.store.directories import Store
from systems.toml_tables import suggestion

if TYPE_CHECKING:
    from orchestrator.search.mutation_score import MutantResult, MutantSchedule

GENERAL = "chaos-simulated"
PAGE = PROJECT_ROOT / "docs" / "mutants.md"
BEGIN = "<!-- what follows is written by `brownout mutants --seeds FIRST-LAST --write` -->\n"
END = "<!-- until here -->\n"
_MOST_UNDECIDED = 3  # undecided runs that are printed per schedule, with reasons; --json has all
_COLUMNS = ("mutant", "campaign", "killed", "of decided", "unknown", "by", "simulated", "processor")


def main(options: argparse.Namespace) -> int:
    """Print the table of mutants, or with `--seeds` the measured results. Raises `UsageError`."""
    from systems.brownout.broker import Brownout

    for name in options.names:
        if name not in Brownout.mutants:
            raise UsageError(f"unknown mutant {name!r}; {suggestion(name, Brownout.mutants)}")
    if options.seeds is None:
        if options.names or options.campaign or options.write or options.jobs:
            raise UsageError("nothing is run without --seeds; give it, or leave out the other arguments")
        _list(Brownout.mutants, as_json=options.json)
        return EXIT_PASS
    return _measure(options, Brownout.mutants)


def _list(mutants: Mapping[str, Any], *, as_json: bool) -> None:
    rows = [{"name": m.name, "rule": m.rule, "anomaly": m.anomaly, "schedule": m.schedule} for m in mutants.values()]
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        show("mutants", rows, ("name", "rule", "anomaly", "schedule"))


def _measure(options: argparse.Namespace, mutants: Mapping[str, Any]) -> int:
    from orchestrator.search.mutation_score import all_schedules, check_size, schedules

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
    from orchestrator.search.mutation_score import measure

    def finished(result: MutantResult) -> None:
        results.append(result)
        schedule, found = result.schedule, "false alarm" if result.benign else "killed"
        text = f"{schedule.mutant}, {schedule.campaign.name}: {found} in {result.killed} of {result.decided} decided"
        say(f"{len(results)} of {len(wanted)}: {text}", file=sys.stderr)

    from orchestrator.search.scratch import scratch

    interrupts = Interrupts(lambda: say("stopping; printing the results so far", file=sys.stderr), lambda: None)
    with interrupts.installed(), scratch(Store(default_store().resolve())) as directory:
        measure(wanted, seeds, finished, scratch=directory, interrupts=interrupts, jobs=jobs)


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

Ctrl-C stops and prints the results so far. Unknown runs are not counted: shares are of the decided runs.
Exit 1: a benign mutant raised an alarm. Exit 2: a mutant has no decided run.
""",
    options=_options,
    main=main,
)
