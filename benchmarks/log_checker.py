"""Duration of the log check: python -m benchmarks.log_checker [OPERATIONS ...] [--partitions N]"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import pyarrow as pa

from analysis.core.logcheck import check, check_in_blocks
from benchmarks.log_histories import history

CHUNK = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operations", nargs="*", type=float, default=[1e5, 1e6, 1e7])
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--upper-bound", default="strict")
    parser.add_argument(
        "--blocks", action="store_true", help="also measure the variant that is distributed over workers"
    )
    parser.add_argument("--cpu", action="store_true", help="CPU time instead of wall time, for a shared machine")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    for operations in map(int, options.operations):
        table = history(operations, partitions=options.partitions)
        first, best = timed(lambda t=table: check(t, upper_bound=options.upper_bound).ok, options.repeat, clock)  # type: ignore[misc]
        rate = operations / best / 1e6
        print(f"{operations:>9} operations: first {first:.4f} s, best of {options.repeat} {best:.4f} s, {rate:.1f} M/s")
        if options.blocks:
            chunks = [table.slice(at, CHUNK) for at in range(0, operations, CHUNK)]
            _, best = timed(lambda c=chunks: in_blocks(c, options.upper_bound), 2, clock)  # type: ignore[misc]
            print(f"{'':>9} in blocks, one after another: {best:.4f} s")
        print(f"{'':>9} peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def in_blocks(chunks: list[pa.Table], upper_bound: str) -> bool:
    return check_in_blocks(chunks, upper_bound=upper_bound).ok


def timed(judge: Callable[[], bool], repeat: int, clock: Callable[[], float]) -> tuple[float, float]:
    times = []
    for _ in range(repeat):
        start = clock()
        assert judge(), "the generated history is linearizable"
        times.append(clock() - start)
    return times[0], min(times)


if __name__ == "__main__":
    main()
