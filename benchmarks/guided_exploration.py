"""Number of runs that guided and random explorations need to reach all of a set of deep states.

    python -m benchmarks.guided_exploration [--starts 20] [--most 400] [--first 1] [--jobs 2] [--json FILE]

A start is a range of seeds; both explorations use the same starts. The unit is runs, not seconds, so that other work on
the machine has no effect and the same starts give the same figures. A start that has not reached all states after
`--most` runs counts as `--most` runs; for random explorations that understates the number. The output has the median of
the starts, and for each state the median of the first run that reached it.
"""

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
"""The deep states that random seeds of the campaign can reach: a random schedule has one fault at a time, and a
leader's lease ends before another leader exists."""


@dataclass(frozen=True)
class Start:
    """One exploration: for each deep state the number of the first run that reached it, counted from 1."""

    arm: str
    first: int
    runs: int
    reached: dict[str, int]
    unknown: int
    failed: int

    @property
    def needed(self) -> int:
        """Runs until all states were reached; the number of all runs if a state never was."""
        return max(self.reached.get(state, self.runs) for state in STATES)


def start(first: int, most: int) -> list[Start]:
    """Explore in both ways until all states are reached. The second way reuses the results of the first one's seeds."""
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
    """The results of both ways for each start, in the order of the starts."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(partial(start, most=most), firsts)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--most", type=int, default=400)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--json", type=Path, help="file for the results of each start; starts that it has are not repeated"
    )
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
