"""The share of changes that a baseline of the gate finds, by the number of runs, for a spread of the runs.

    python -m benchmarks.detectable_changes [--spread 0.15] [--campaigns 100] [--figures 1]

The figures of both sides are drawn from a log-normal distribution, whose standard deviation is the spread; those of one
side are larger by the change. Of `--figures` figures the first has changed.
"""

from __future__ import annotations

import argparse
import random
from typing import Final

from orchestrator.campaign.comparison import compare, decide

RUNS: Final = (3, 4, 6, 10, 20)
CHANGES: Final = (0.0, 0.1, 0.2, 0.3, 0.5)


def found(rng: random.Random, runs: int, change: float, spread: float, figures: int) -> bool:
    """Whether a drawn campaign with `runs` runs a side has a figure that is called worse."""
    seen = [
        compare(
            {
                "main": (
                    [rng.lognormvariate(0, spread) for _ in range(runs)],
                    [(1 + change * (not number)) * rng.lognormvariate(0, spread) for _ in range(runs)],
                )
            },
            larger_is_worse=True,
        )
        for number in range(figures)
    ]
    return any(each.worse for each in decide(seen))


def main() -> None:
    """Print a row for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spread", type=float, default=0.15)
    parser.add_argument("--campaigns", type=int, default=100)
    parser.add_argument("--figures", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(1)
    print("runs a side " + "".join(f"{change:+8.0%}" for change in CHANGES))
    for runs in RUNS:
        shares = [
            sum(found(rng, runs, change, options.spread, options.figures) for _ in range(options.campaigns))
            / options.campaigns
            for change in CHANGES
        ]
        print(f"{runs:11} " + "".join(f"{share:8.0%}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
