"""The share of changes that a baseline of the gate finds, by the number of runs, for a spread of the runs.

    python -m benchmarks.detectable_changes [--spread 0.15] [--campaigns 1000] [--figures 1] [--cells 1] [--effect 0.1]
                                            [--changes 0,0.1,0.2]

The figures of both sides are drawn from a log-normal distribution, whose standard deviation is the spread; those of one
side are larger by the change. Of `--figures` figures the first has changed, and of its `--cells` cells the first one.
`--effect`: the allowed worsening.
"""

import argparse
import random
from typing import Final

from orchestrator.store.comparison import EFFECT, compare, decide

RUNS: Final = (3, 4, 6, 10, 20)
CHANGES: Final = "0,0.1,0.2,0.3,0.5"


def found(rng: random.Random, runs: int, change: float, options: argparse.Namespace) -> bool:
    """Whether a drawn campaign with `runs` runs a side and cell has a figure that is called worse."""

    def drawn(factor: float) -> list[float]:
        return [factor * rng.lognormvariate(0, options.spread) for _ in range(runs)]

    seen = [
        compare(
            {
                str(cell): (drawn(1), drawn(1 + change if (figure, cell) == (0, 0) else 1))
                for cell in range(options.cells)
            },
            larger_is_worse=True,
        )
        for figure in range(options.figures)
    ]
    return any(each.worse for each in decide(seen, effect=options.effect))


def main() -> None:
    """Print a row for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spread", type=float, default=0.15)
    parser.add_argument("--campaigns", type=int, default=1_000)
    parser.add_argument("--figures", type=int, default=1)
    parser.add_argument("--cells", type=int, default=1)
    parser.add_argument("--effect", type=float, default=EFFECT)
    parser.add_argument("--changes", default=CHANGES)
    options = parser.parse_args()
    changes = [float(change) for change in options.changes.split(",")]
    rng = random.Random(1)
    print("runs a side " + "".join(f"{change:+8.0%}" for change in changes))
    for runs in RUNS:
        shares = [
            sum(found(rng, runs, change, options) for _ in range(options.campaigns)) / options.campaigns
            for change in changes
        ]
        print(f"{runs:11} " + "".join(f"{share:8.1%}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
