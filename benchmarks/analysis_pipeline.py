"""Duration of the log analysis from Parquet to verdict: in process, and on a warm Spark session.

    python -m benchmarks.analysis_pipeline [OPERATIONS ...] [--partitions N] [--repeat N]

The start of the session is reported separately; in a campaign it overlaps with the load.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from analysis.engines.log import LogPlan
from analysis.engines.spark import SparkHandle
from analysis.engines.task_map import TaskMap, in_sequence
from benchmarks.log_histories import history
from history.record.arrow_stream import SEGMENT_ROWS
from history.record.operation_tables import IndexedGroup, write_index, write_operations
from history.record.shapes import LOG
from tests.analysis.log_checks import check_log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", type=float, default=[1e6])
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        handle = SparkHandle.start_in_background()
        try:
            tasks = handle.tasks()
            print(f"Spark from start to its first result: {handle.ready_after_s:.1f} s, {handle.new_cpu_s():.1f} CPU s")
            for operations in map(int, options.operations):
                tables = _written(operations, options.partitions, Path(scratch))
                in_process = _median(tables, in_sequence, options.repeat)
                spark = _median(tables, tasks, options.repeat)
                print(f"{operations:>10,} operations: in process {in_process:.2f} s, on Spark {spark:.2f} s (medians)")
        finally:
            handle.stop()


def _written(operations: int, partitions: int, directory: Path) -> Path:
    run = directory / str(operations)
    began = time.perf_counter()
    record = history(operations, partitions=partitions)
    groups: list[IndexedGroup] = []
    for number, start in enumerate(range(0, operations, SEGMENT_ROWS)):
        groups += write_operations(LOG, record.slice(start, SEGMENT_ROWS), run / "tables", f"client-1-{number}")
    write_index(LOG, groups, run / "tables")
    print(f"{operations:>10,} operations made and written in {time.perf_counter() - began:.1f} s")
    return run / "tables"


def _median(tables: Path, spread: TaskMap, repeat: int) -> float:
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        if not check_log(LogPlan.of(tables), spread, upper_bound="strict").ok:
            raise SystemExit("the generated history was judged wrong: the benchmark measures nothing")
        times.append(time.perf_counter() - began)
    return statistics.median(times)


if __name__ == "__main__":
    main()
