"""How many runs guided and random explorations need until they have been in all of a set of deep states.

    python -m benchmarks.guided_exploration [--starts 20] [--most 400] [--first 1] [--jobs 2] [--json FILE]

A start is a range of seeds of its own; both ways of choosing begin with the same ones. Runs are counted, not seconds:
so other work on the machine changes nothing, and the same starts give the same figures. A start that has not been in
all of them after `--most` runs counts as having needed so many, for random that is too few. What is compared is the
median of the starts; below it, for each state, that of the first run that was in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from analysis.verdict import UNKNOWN
from orchestrator.campaign.parser import load
from orchestrator.search.coverage import DEEP
from orchestrator.search.exploring import GUIDED, RANDOM, Arm, ExploredCell, explore
from orchestrator.search.task import Attempted, attempt

CAMPAIGN: Final = Path(__file__).with_name("guided-exploration.toml")
GOAL: Final = 1.87
STATES: Final = tuple(name for name in DEEP if name not in ("two faults at once", "two leaders"))
"""Those that seeds of the campaign come to, too: a random schedule has one fault at a time, and a leader's lease has
ended before there is another."""


@dataclass(frozen=True)
class Start:
    """One exploration: by deep state the number of the run, from 1, that was the first in it."""

    arm: str
    first: int
    runs: int
    reached: dict[str, int]
    unknown: int
    failed: int

    @property
    def needed(self) -> int:
        """Runs until all were reached; all that were made when one never was."""
        return max(self.reached.get(state, self.runs) for state in STATES)


def start(first: int, most: int) -> list[Start]:
    """Explore both ways until all states are reached; what a seed came to is known to the second way, too."""
    campaign, known = load(CAMPAIGN), dict[int, Attempted]()
    source = ExploredCell(campaign, campaign.cells[0], first)
    return [_explored(Arm(name, source), most, known) for name in (GUIDED, RANDOM)]


def _explored(way: Arm, most: int, known: dict[int, Attempted]) -> Start:
    reached: dict[str, int] = {}
    made: list[Attempted] = []
    with tempfile.TemporaryDirectory(prefix="brownout-guided-") as directory:
        tried = explore(way, most, lambda tasks: (attempt(it, Path(directory)) for it in tasks), known=known, kept={})
        for each in tried:
            made.append(each)
            for state in each.deep:
                reached.setdefault(state, len(made))
            if reached.keys() >= set(STATES):
                break
    unknown, failed = sum(it.verdict == UNKNOWN for it in made), sum(bool(it.anomalies) for it in made)
    return Start(way.name, way.source.first, len(made), reached, unknown, failed)


def starts(firsts: Sequence[int], most: int, jobs: int) -> Iterator[list[Start]]:
    """Both ways from each start, in the starts' order."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(partial(start, most=most), firsts)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--most", type=int, default=400)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="the figures of each start; those it has are not made again")
    options = parser.parse_args()
    began_s, found = time.monotonic(), list[Start]()
    if options.json and options.json.exists():
        found = [Start(**it) for it in json.loads(options.json.read_text(encoding="utf-8"))]
    firsts = range(options.first, options.first + options.starts * options.most, options.most)
    todo = [first for first in firsts if first not in {it.first for it in found}]
    for both in starts(todo, options.most, options.jobs):
        found += both
        for each in both:
            print(
                f"[{time.monotonic() - began_s:7.1f} s] from seed {each.first:5}: {each.arm} {each.needed:4} runs"
                f" ({len(each.reached)} states; {each.unknown} unknown, {each.failed} with an anomaly)",
                flush=True,
            )
        if options.json:
            options.json.write_text(json.dumps([asdict(it) for it in found], indent=1) + "\n", encoding="utf-8")
    guided, random = ([it for it in found if it.arm == arm] for arm in (GUIDED, RANDOM))
    for state in STATES:
        one, other = (statistics.median(it.reached.get(state, it.runs) for it in its) for its in (guided, random))
        print(f"{state:60} guided {one:6.1f}  random {other:6.1f}")
    one, other = (statistics.median(it.needed for it in its) for its in (guided, random))
    print(f"{'all of them':60} guided {one:6.1f}  random {other:6.1f}: 1/{other / one:.2f} (goal 1/{GOAL})")


if __name__ == "__main__":
    main()
