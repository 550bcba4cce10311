"""Duration of the log check without reading files: python -m benchmarks.log_checker [OPERATIONS ...] [--partitions N]

The row groups are in memory, of the size of stored ones; the plan, the evidence and the conclusion are the engine's.
"""

import argparse
import resource
import time
from collections.abc import Callable

from analysis.core.offset_ranges import SPAN
from benchmarks.log_histories import history
from history.record.shapes import LOG
from tests.analysis.log_checks import GroupsInMemory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", type=float, default=[1e5, 1e6, 1e7])
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--upper-bound", default="strict")
    parser.add_argument("--span", type=float, default=SPAN, help="offsets per range")
    parser.add_argument("--cpu", action="store_true", help="CPU time instead of wall time, for a shared machine")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    for operations in map(int, options.operations):
        rows = GroupsInMemory.of(history(operations, partitions=options.partitions), LOG.most_rows)

        def judge(rows: GroupsInMemory = rows) -> bool:
            return rows.report(int(options.span), upper_bound=options.upper_bound).ok

        first, best = timed(judge, options.repeat, clock)
        rate = operations / best / 1e6
        print(f"{operations:>9} operations: first {first:.4f} s, best of {options.repeat} {best:.4f} s, {rate:.1f} M/s")
        print(f"{'':>9} peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def timed(judge: Callable[[], bool], repeat: int, clock: Callable[[], float]) -> tuple[float, float]:
    times = []
    for _ in range(repeat):
        start = clock()
        if not judge():
            raise SystemExit("the generated history was judged wrong: the benchmark measures nothing")
        times.append(clock() - start)
    return times[0], min(times)


if __name__ == "__main__":
    main()
