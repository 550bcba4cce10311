"""Applies a function to tasks: in this process, in worker processes, or on Spark. Engines differ in nothing else."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from analysis.analysis_revision import require_revision, revision
from analysis.engines.spark_errors import cause_of
from history.arrow import without_pandas

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
R = TypeVar("R")

TASKS_PER_CORE: Final = 2
"""The number of Spark tasks per core that light tasks share."""

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
        workers = min(self.workers, len(tasks))
        with ProcessPoolExecutor(workers, mp_context=context, initializer=without_pandas) as pool:
            return list(pool.map(function, tasks))


@dataclass(frozen=True)
class SparkTasks:
    """Each heavy task is one of Spark's own, so that whichever worker is free takes the next; light ones share one.

    Tasks and results are Python objects, so they travel as an RDD; Spark's SQL engine would only cost its start. Raises
    RuntimeError with the cause when a task raises or its worker ends."""

    context: SparkContext

    def __call__(
        self, function: Callable[[T], R], tasks: Sequence[T], weights: Sequence[int] | None = None, /
    ) -> list[R]:
        if not tasks:
            return []
        shares = bundles(weights or [1] * len(tasks), TASKS_PER_CORE * self.context.defaultParallelism)
        parts = self.context.parallelize(
            [[(number, tasks[number]) for number in share] for share in shares], len(shares)
        )
        try:
            results = dict(parts.flatMap(_work(function)).collect())
        except Exception as error:
            raise RuntimeError(f"a task on Spark failed: {cause_of(error, str(self.context.master))}") from error
        return [results[number] for number in range(len(tasks))]


def _work(function: Callable[[T], R]) -> Callable[[Sequence[tuple[int, T]]], list[tuple[int, R]]]:
    """The function that Spark's workers apply to a share of the tasks."""
    expected = revision()

    def work(share: Sequence[tuple[int, T]]) -> list[tuple[int, R]]:
        require_revision(expected)
        without_pandas()
        return [(number, function(task)) for number, task in share]

    return work


def bundles(weights: Sequence[int], most: int) -> list[list[int]]:
    """The tasks' numbers in bundles, in their order, each at least an equal share of the rows, or HEAVY rows."""
    least = min(HEAVY, sum(weights) / most)
    groups: list[list[int]] = [[]]
    weight = 0
    for number, rows in enumerate(weights):
        if groups[-1] and weight >= least:
            groups.append([])
            weight = 0
        groups[-1].append(number)
        weight += rows
    return groups


def task_map(context: SparkContext | None, rows: int = 0) -> TaskMap:
    """Spark's workers if there is a context. Else this process, or one for each core if there are many `rows`."""
    if context is not None:
        return SparkTasks(context)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return WorkerProcesses(cores) if rows >= ROWS_FOR_PROCESSES and cores > 1 else in_sequence


ROWS_FOR_PROCESSES: Final = 1 << 23
"""Two seconds of work; a process takes one second to start."""
