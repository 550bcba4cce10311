"""`brownout mutants`: the broker's deliberate bugs, and how well campaigns see each in the simulated world."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from installation.files import PROJECT_ROOT
from orchestrator.campaign.finding import find
from orchestrator.command.printing import say, show
from orchestrator.command.run import seed_range
from orchestrator.errors import EXIT_INTERRUPTED, EXIT_PASS, Interrupted, UsageError

GENERAL = "chaos-simulated"
PAGE = PROJECT_ROOT / "docs" / "mutants.md"
BEGIN = "<!-- what follows is written by `brownout mutants --seeds FIRST-LAST --write` -->\n"
END = "<!-- until here -->\n"
_COLUMNS = ("mutant", "campaign", "killed", "of runs", "by", "simulated", "processor")


def main(options: argparse.Namespace) -> int:
    """Print the table of mutants, or with seeds what came of them. Raises `UsageError`."""
    from systems.brownout.broker import Brownout

    if options.seeds is None:
        if options.names or options.campaign or options.write or options.jobs:
            raise UsageError("without --seeds FIRST-LAST nothing is run; give it, or leave the other arguments out")
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
    from orchestrator.running.mutation import Measured, all_schedules, measure, schedules

    given = [find(name) for name in options.campaign]
    campaigns = given or [find(name) for name in sorted(_named(mutants))]
    seeds, results, without = seed_range(options.seeds), list[dict[str, Any]](), dict[str, str]()
    if options.names:
        wanted = schedules(mutants, options.names, campaigns)
    else:
        wanted, without = all_schedules(mutants, campaigns)
        if not given:  # what has no schedule of its own is tried under any faults
            others, without = all_schedules({name: mutants[name] for name in without}, [find(GENERAL)])
            wanted += others

    def heard(measured: Measured) -> None:
        results.append(measured.to_json())

    code = EXIT_PASS
    try:
        measure(wanted, seeds, heard, jobs=options.jobs or os.cpu_count() or 1)
    except (Interrupted, KeyboardInterrupt):  # what was found is kept
        code = EXIT_INTERRUPTED
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        show(f"mutants, seeds {options.seeds}", [_row(result) for result in results], _COLUMNS)
    for name, reason in without.items():
        say(f"not tried: {name}: {reason}", file=sys.stderr)
    if options.write and code == EXIT_PASS:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), results, options.seeds), encoding="utf-8")
    return code


def _named(mutants: Mapping[str, Any]) -> set[str]:
    """The campaigns that the mutants' own schedules name."""
    words = [word.strip(",;.") for mutant in mutants.values() for word in mutant.schedule.split()]
    return {Path(word.removesuffix(".toml")).name for word in words if word.startswith("campaigns/")}


def _row(result: Mapping[str, Any]) -> dict[str, str]:
    low, high = result["interval"]
    return {
        "mutant": f"{result['mutant']} (benign)" if result["benign"] else result["mutant"],
        "campaign": result["campaign"],
        "killed": f"{result['killed']} ({low:.0%} to {high:.0%})",
        "of runs": str(result["runs"]),
        "by": ", ".join(f"{name} {count}" for name, count in result["by"].items()) or "nothing",
        "simulated": f"{result['simulated_s']:g} s",
        "processor": f"{result['cpu_s']:g} s",
    }


def with_table(page: str, results: Sequence[Mapping[str, Any]], seeds: str) -> str:
    """The page with these results in the place that is for them. Raises `UsageError` where it has no such place."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"{PAGE}: the lines {BEGIN.strip()} {END.strip()} are missing, between which the table stands")
    lines = [
        f"Seeds {seeds} of each campaign in the simulated world; killed: the analysis named an anomaly that is "
        "expected of the mutant",
        "(95 % Wilson interval); times are medians, without the analysis.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
        *(f"| {' | '.join(_row(result)[column] for column in _COLUMNS)} |" for result in results),
        "",
    ]
    return before + BEGIN + "\n".join(lines) + END + after
