"""Applies a function to tasks: in this process, in worker processes, or on Spark. Engines differ in nothing else."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

TASKS_PER_CORE: Final = 2
"""Light tasks share a Spark task, of which there are this many for each core."""

HEAVY: Final = 1 << 20
"""The rows of a task that is a Spark task of its own."""


class TaskMap(Protocol):
    """Applies a function to each task and returns the results in the order of the tasks.

    `weights`: the rows of each task. Workers receive the function and the tasks by pickle, and must see the files under
    the same paths.
    """

    def __call__(
        self, function: Callable[[T], R], tasks: Sequence[T], weights: Sequence[int] | None = None, /
    ) -> list[R]: ...


def in_sequence(function: Callable[[T], R], tasks: Sequence[T], _weights: Sequence[int] | None = None, /) -> list[R]:
    """One task after another in this process; the weights do not matter."""
    return [function(task) for task in tasks]


@dataclass(frozen=True)
class WorkerProcesses:
    """As many tasks at a time as there are `workers`, each in a process of its own. Raises BrokenProcessPool when one
    of them ends unexpectedly."""

    workers: int

    def __call__(
        self, function: Callable[[T], R], tasks: Sequence[T], _weights: Sequence[int] | None = None, /
    ) -> list[R]:
        if not tasks:
            return []
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self.workers, len(tasks)), mp_context=context) as pool:
            return list(pool.map(function, tasks))


@dataclass(frozen=True)
class SparkTasks:
    """Each heavy task is one of Spark's own, so that whichever worker is free takes the next; light ones share one."""

    session: SparkSession

    def __call__(
        self, function: Callable[[T], R], tasks: Sequence[T], weights: Sequence[int] | None = None, /
    ) -> list[R]:
        if not tasks:
            return []
        cores = self.session.sparkContext.defaultParallelism
        shares = bundles(weights or [1] * len(tasks), TASKS_PER_CORE * cores)
        numbers = self.session.range(0, len(shares), 1, len(shares))
        rows = numbers.mapInArrow(_work(function, [[(n, tasks[n]) for n in share] for share in shares]), _DDL).collect()
        found = {row.number: pickle.loads(bytes(row.payload)) for row in rows}
        return [found[number] for number in range(len(tasks))]


_DDL: Final = "number long, payload binary"


def _work(
    function: Callable[[T], R], shares: Sequence[Sequence[tuple[int, T]]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark's workers apply to batches of share numbers."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                for number, task in shares[share]:
                    payload = pickle.dumps(function(task), protocol=5)
                    columns = [pa.array([number], pa.int64()), pa.array([payload], pa.binary())]
                    yield pa.RecordBatch.from_arrays(columns, ["number", "payload"])

    return work


def bundles(weights: Sequence[int], most: int) -> list[list[int]]:
    """The tasks' numbers in bundles, in their order, each at least an equal share of the rows, or HEAVY rows."""
    least = min(HEAVY, sum(weights) / most)
    found: list[list[int]] = [[]]
    weight = 0
    for number, each in enumerate(weights):
        if found[-1] and weight >= least:
            found.append([])
            weight = 0
        found[-1].append(number)
        weight += each
    return found


def task_map(session: SparkSession | None, rows: int = 0) -> TaskMap:
    """Spark's workers if there is a session. Else this process, or one for each core if there are many `rows`."""
    if session is not None:
        return SparkTasks(session)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return WorkerProcesses(cores) if rows >= ROWS_FOR_PROCESSES and cores > 1 else in_sequence


ROWS_FOR_PROCESSES: Final = 1 << 23
"""Two seconds of work; a process takes one second to start."""
