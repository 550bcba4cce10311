"""A group of 6 consumers over 12 partitions through 20 simulated kills of random brokers: `--seeds 5` such runs.

    python -m tests.endurance.consumer_groups [--seeds N] [--first SEED]

Exits with 1 when an acknowledged commit was lost, or a record below a committed offset was passed over. The same seed
gives the same run.
"""

from __future__ import annotations

import argparse

from tests.simulator.test_group_chaos import FAULTS, GroupChaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="how many runs (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first run's seed (default: %(default)s)")
    arguments = parser.parse_args()
    anomalies = missing = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = GroupChaos(seed).run()
        anomalies += len(outcome.anomalies)
        missing += outcome.given < outcome.records
        print(
            f"seed {seed}: {FAULTS} kills, {outcome.commits} commits acknowledged, {outcome.generations} generations, "
            f"{outcome.records} records, given {outcome.given} times: {len(outcome.anomalies)} anomalies",
            flush=True,
        )
        for anomaly in outcome.anomalies:
            print(f"  {anomaly.sentence}")
    return 1 if anomalies or missing else 0


if __name__ == "__main__":
    raise SystemExit(main())
