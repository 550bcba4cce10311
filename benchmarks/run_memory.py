"""Peak memory of the analysis of a run and of its page, by number of operations.

    python -m benchmarks.run_memory [OPERATIONS ...] [--partitions N]

The streams of generated clients stand in a stored run, which `analyze` judges in this machine's processes and
draws, and whose page is then made. Memory is the peak of the process that does both, and of its largest worker,
libraries included. The journal names other clients, so the verdict is unknown and no certificate is written: its memory
is a figure of `benchmarks.log_scaling`.
"""

from __future__ import annotations

import argparse
import multiprocessing
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
from tests.analysis_pipeline.stored_run import StoredRun

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", type=float, default=[1e6, 4e6])
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--scratch", type=Path, help="a directory on a large disk")
    options = parser.parse_args()
    for operations in map(int, options.operations):
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            run = Path(scratch) / "run"
            _apart(_write, run, operations, options.partitions)
            analyzed, whole, worker = _apart(_measure, run, operations)
        print(
            f"{operations:>11,} operations: analysis with plots {analyzed / 1e6:.2f} GB, with the page "
            f"{whole / 1e6:.2f} GB, largest worker {worker / 1e6:.2f} GB",
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


def _measure(run: Path, operations: int) -> tuple[int, int, int]:
    """Peak memory in kB after the analysis, after the page, and of the largest worker."""
    counted = analyze(run, engine="in-process").stats
    if counted["operations"] - counted["unfinished"] != operations:
        raise SystemExit(f"{counted['operations']} operations were analyzed: the benchmark measures something else")
    analyzed = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    render_run(run)
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return analyzed, whole, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


if __name__ == "__main__":
    main()
