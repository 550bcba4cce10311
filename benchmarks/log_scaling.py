"""CPU time and memory of the log check, the certificate and its verification, by number of operations.

    python -m benchmarks.log_scaling [OPERATIONS ...] [--partitions N] [--acks all|1] [--workers N | --spark N]

A generated history is written as tables, a piece of 2^20 operations after another, so its size is bounded by the disk
only. The generator is a process, and the driver is another one, so the driver's memory is its own. With one worker the
driver does the work; with more, or with Spark, worker processes do. CPU time is user and system time of the driver and
its workers; memory is the peak of the driver, and the peak of the largest worker.
"""

import argparse
import multiprocessing
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.engines.log import LogPlan, check_ranges, write_certificate
from analysis.engines.processor_time import cpu_of_tree_s, tree_of
from analysis.engines.spark import SparkHandle
from analysis.engines.task_map import TaskMap, WorkerProcesses, in_sequence
from analysis.verifiers.log import verify
from benchmarks.log_histories import history
from history.record.operation_tables import IndexedGroup, write_index, write_operations
from history.record.schemas import APPEND, INF, OPERATIONS
from history.record.shapes import LOG
from history.record.values import SESSION_SHIFT

PIECE: Final = 1 << 20
PAUSE_NS: Final = 10**7
"""Between pieces, so that no operation of one overlaps with one of the next."""

I64 = npt.NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", type=float, default=[1e6, 1e7])
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--acks", choices=("all", "1"), default="all")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--spark", type=int, default=0, help="Spark's workers on this machine")
    parser.add_argument("--scratch", type=Path, help="a directory on a large disk")
    options = parser.parse_args()
    for operations in map(int, options.operations):
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            run = Path(scratch)
            in_a_process(write_history, run / "tables", operations, options.partitions, options.acks)
            in_a_process(drive, run, operations, options.workers, options.spark)


def in_a_process(function: Callable[..., None], *arguments: Any) -> None:
    """Calls a function in a new process, whose memory has nothing of this one."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{function.__name__} failed with exit code {process.exitcode}")


def drive(run: Path, operations: int, workers: int, spark: int) -> None:
    """Prints the figures of one history, with this process as the driver."""
    if spark:
        handle = SparkHandle.start_in_background(master=f"local[{spark}]")
        measure(run, operations, handle.tasks())
        handle.stop()
    else:
        measure(run, operations, WorkerProcesses(workers) if workers > 1 else in_sequence)


def measure(run: Path, operations: int, spread: TaskMap) -> None:
    """Prints the figures of one history."""
    use = Use()
    plan = LogPlan.of(run / "tables")
    checked = check_ranges(plan, spread, "strict")
    if any(each.findings for each in checked.conclusions.values()):
        raise SystemExit("the generated history was judged wrong: the benchmark measures nothing")
    check_s = use.cpu_s()
    write_certificate(run / "certificate", run, plan, checked, spread, upper_bound="strict")
    linearize_s = use.cpu_s()
    verify(run / "certificate", run, spread=spread)
    verify_s = use.cpu_s()
    own, (worker, java) = peak_kb(os.getpid()), use.largest()
    print(
        f"{operations:>11,} operations: check {check_s:.1f}, linearize {linearize_s:.1f}, verify {verify_s:.1f} CPU s; "
        f"{len(plan.tasks)} tasks; driver {own / 1e6:.2f} GB, largest worker {worker / 1e6:.2f} GB"
        + (f", Java virtual machine {java / 1e6:.2f} GB" if java else "")
    )


@dataclass
class Use:
    """What this process and its descendants use; the time since the last look."""

    before: float = field(default_factory=lambda: cpu_of_tree_s(os.getpid()))

    def cpu_s(self) -> float:
        now = cpu_of_tree_s(os.getpid())
        took, self.before = now - self.before, now
        return took

    def largest(self) -> tuple[int, int]:
        """Peak memory in kB of the largest worker, ended or living, and of the Java virtual machine."""
        living = [pid for pid in tree_of(os.getpid()) if pid != os.getpid()]
        java = [pid for pid in living if _status(pid).get("Name") == "java"]
        ended = 0 if java else resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # it has no names
        workers = [peak_kb(pid) for pid in living if pid not in java]
        return max([ended, *workers]), max([0, *map(peak_kb, java)])


def peak_kb(pid: int) -> int:
    return int(_status(pid).get("VmHWM", "0").split()[0])


def _status(pid: int) -> dict[str, str]:
    lines = (line.partition(":")[::2] for line in _read(pid, "status").splitlines())
    return {name: value.strip() for name, value in lines}


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return ""


def write_history(tables: Path, operations: int, partitions: int, acks: str) -> None:
    """Writes a generated history, one piece after another."""
    groups: list[IndexedGroup] = []
    for number, rows in enumerate(_pieces(operations, partitions, acks)):
        groups += write_operations(LOG, rows, tables, f"client-1-{number}")
    write_index(LOG, groups, tables)


def _pieces(operations: int, partitions: int, acks: str) -> Iterator[pa.Table]:
    """Histories of at most PIECE operations, each a continuation of the last one."""
    length = np.zeros(partitions, np.int64)
    for number, start in enumerate(range(0, operations, PIECE)):
        rows = history(min(PIECE, operations - start), partitions=partitions, seed=number)
        if acks == "1":
            rows = replaced(rows, "acks", np.ones(rows.num_rows, np.int8))
        yield continued(rows, length, number)
        length += lengths(rows, partitions)


def lengths(rows: pa.Table, partitions: int) -> I64:
    """The records of each partition that these operations show."""
    part, is_append = rows["partition"].to_numpy(), rows["f"].to_numpy() == APPEND
    shown = np.zeros(partitions, np.int64)
    np.maximum.at(shown, part[is_append], rows["offset"].to_numpy()[is_append] + 1)
    np.maximum.at(shown, part, rows["lo"].to_numpy())
    return shown


def continued(rows: pa.Table, length: I64, number: int) -> pa.Table:
    """The history of a piece after others that left the partitions with these lengths."""
    later, base = number * (PIECE * 100 + PAUSE_NS), length[rows["partition"].to_numpy()]
    for name in ("offset", "lo", "hi"):
        column = rows[name].to_numpy()
        rows = replaced(rows, name, np.where(column >= 0, column + base, column))
    inv, ret, value = (rows[name].to_numpy() for name in ("inv", "ret", "value"))
    session = number << SESSION_SHIFT
    rows = replaced(rows, "inv", inv + later)
    rows = replaced(rows, "ret", np.where(ret < INF, ret + later, ret))
    rows = replaced(rows, "value", np.where(value >= 0, value + session, value))
    for name, more in (("offsets", None), ("values", session)):
        lists = rows[name].combine_chunks()
        items = lists.values.to_numpy()
        items = items + (np.repeat(base, np.diff(lists.offsets.to_numpy())) if more is None else more)
        rows = replaced(rows, name, pa.ListArray.from_arrays(lists.offsets, pa.array(items), type=lists.type))
    return rows


def replaced(rows: pa.Table, name: str, column: Any) -> pa.Table:
    return rows.set_column(OPERATIONS.get_field_index(name), OPERATIONS.field(name), pa.array(column))


if __name__ == "__main__":
    main()
