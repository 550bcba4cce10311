"""Peak memory of the analysis of a run and of its page, by number of operations.

    python -m benchmarks.run_memory [OPERATIONS ...] [--partitions N] [--registers]

A stored run gets the streams of generated clients. `analyze` judges it in local processes and draws its plots,
then its page is made. Memory is the peak of the process that does both, and of its largest worker, libraries included.
The journal names other clients, so the verdict is unknown and no certificate is written: its memory is a figure of
`benchmarks.log_scaling`. With `--registers`, the run has the records of two clients on keys of 37 operations each, and
the verdict is a pass with a certificate. The CPU time is that of the analysis without the page.
"""

import argparse
import multiprocessing
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

from analysis.pipeline import analyze
from analysis.report import render_run
from benchmarks.ingest import record
from tests.analysis_pipeline.stored_registers import ROUNDS, StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", type=float, default=[1e6, 4e6])
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--registers", action="store_true", help="operations on registers in place of logs")
    parser.add_argument("--scratch", type=Path, help="a directory on a large disk")
    options = parser.parse_args()
    for operations in map(int, options.operations):
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            run = Path(scratch) / "run"
            if options.registers:
                operations = _apart(_write_registers, run, operations)
            else:
                _apart(_write, run, operations, options.partitions)
            cpu_s, analyzed, whole, worker = _apart(_measure, run, operations)
        print(
            f"{operations:>11,} operations: analysis with plots {analyzed / 1e6:.2f} GB, with the page "
            f"{whole / 1e6:.2f} GB, largest worker {worker / 1e6:.2f} GB, {cpu_s:.1f} CPU s",
            flush=True,
        )


def _apart(do: Callable[..., T], *arguments: object) -> T:
    """The result of a function in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(do, *arguments).result()


def _write(run: Path, operations: int, partitions: int) -> None:
    StoredRun(run).write()
    for name in ("history/operations", "nodes"):
        shutil.rmtree(run / name)
    (run / "history" / "operations").mkdir()
    record(run / "history" / "operations", operations, partitions)


def _write_registers(run: Path, operations: int) -> int:
    """The number of operations that were written."""
    each = 3 * ROUNDS + 1
    keys = tuple(f"key-{number:07d}" for number in range(max(1, operations // each)))
    StoredRegisters(run, keys=keys).write()
    return each * len(keys)


def _measure(run: Path, operations: int) -> tuple[float, int, int, int]:
    """CPU seconds of the analysis, and peak memory in kB after it, after the page, and of the largest worker."""
    verdict = analyze(run, engine="in-process")
    counted, cpu_s = verdict.stats, sum(os.times()[:4])
    if counted["operations"] - counted["unfinished"] != operations:
        raise SystemExit(f"{counted['operations']} operations were analyzed: the benchmark measures something else")
    analyzed = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    render_run(run)
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return cpu_s, analyzed, whole, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


if __name__ == "__main__":
    main()
