"""Idempotent producers through many simulated kills, power cuts and partitions: `--seeds 10` runs of twelve faults.

    python -m tests.endurance.idempotent_producers [--seeds N] [--first SEED] [--leaders]

With `--leaders` each fault is a kill or a power cut of a machine that leads; there are ten in a run. Exits with 1 when
a record was lost, is there twice or out of order. The same seed gives the same run.
"""

import argparse
from collections import Counter

from tests.simulator.idempotence import FAULTS, KINDS, LEADER_KINDS, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="how many runs (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first run's seed (default: %(default)s)")
    parser.add_argument("--leaders", action="store_true", help="kill leaders, and cut their power, and nothing else")
    arguments = parser.parse_args()
    kinds, count = (LEADER_KINDS, 10) if arguments.leaders else (KINDS, FAULTS)
    faults: Counter[str] = Counter()
    acknowledged, violations = 0, 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = run(seed, kinds=kinds, faults=count)
        faults += outcome.faults
        acknowledged += outcome.acknowledged
        violations += len(outcome.violations)
        print(f"seed {seed}: {outcome.acknowledged} acknowledged, {outcome.faults.total()} faults", flush=True)
        for violation in outcome.violations:
            print(f"  {violation}")
    counts = ", ".join(f"{number} {kind}" for kind, number in sorted(faults.items()))
    print(f"{acknowledged} acknowledged through {faults.total()} faults ({counts}): {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
