"""Applies a function to tasks: in this process, in worker processes, or on Spark. Engines differ in nothing else."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from analysis.analysis_revision import require_revision, revision
from analysis.engines.spark_address import reach
from analysis.engines.spark_errors import cause_of, is_remote
from history.arrow import without_pandas
from installation.counted import counted
from installation.files import PROJECT_ARCHIVE
from installation.sanitize import visible_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

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

    The tasks that share one are a row of a DataFrame, and the row a partition. Tasks and results are pickled, because
    their types are Python's own. `cores`: those of all workers. `purpose`: what the tasks are for, in Spark's pages and
    logs. Raises RuntimeError with the cause when a task raises or its worker ends."""

    session: SparkSession
    master: str
    cores: int
    purpose: str = "tasks"

    @classmethod
    def over(cls, session: SparkSession, master: str, cores: int) -> SparkTasks:
        """The map over a session, whose settings change."""
        session.conf.set(_PARTITIONS, str(1 << 20))  # of a DataFrame of this many rows or fewer, one for each row
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
        return cls(session, master, cores)

    def __call__(
        self, function: Callable[[T], R], tasks: Sequence[T], weights: Sequence[int] | None = None, /
    ) -> list[R]:
        if not tasks:
            return []
        shares = bundles(weights or [1] * len(tasks), TASKS_PER_CORE * self.cores)
        rows = pickled([(number, tasks[number]) for number in share] for share in shares)
        counts = f"{counted(len(tasks), 'task')} in {counted(len(shares), 'partition')}"
        try:
            if is_remote(self.master):  # each call to a server that is lost would be tried for many seconds
                reach(self.master, 0)
            with described(self.session, f"{self.purpose}: {_title(function)}, {counts}"):
                done = self.session.createDataFrame(rows).mapInArrow(portable(_work(function)), PICKLED).toArrow()
        except Exception as error:
            raise RuntimeError(f"a task on Spark failed: {cause_of(error, self.master)}") from error
        except BaseException:  # Ctrl-C
            self.cancel()
            raise
        results = dict(pair for row in done["pickled"] for pair in pickle.loads(row.as_py()))
        return [results[number] for number in range(len(tasks))]

    def of(self, purpose: str) -> SparkTasks:
        """The same map for this purpose."""
        return replace(self, purpose=purpose)

    def cancel(self) -> None:
        """Cancel what the session does."""
        with contextlib.suppress(Exception):  # of a session that has ended
            self.session.interruptAll()


@contextmanager
def described(session: SparkSession, work: str) -> Iterator[None]:
    """Jobs that this thread starts here have a description in Spark's pages and logs, and a tag with the same text. The
    description is the session's: threads that use a session at the same time give the same one."""
    text = visible_line(f"brownout {work}")
    session.conf.set(_DESCRIPTION, text)
    with tagged(session, text):
        yield


@contextmanager
def tagged(session: SparkSession, text: str) -> Iterator[None]:
    """Jobs that this thread starts here have this tag."""
    tag = visible_line(text).replace(",", ";")  # Spark separates tags by commas
    with contextlib.suppress(Exception):  # of a session that has ended: its job raises
        session.addTag(tag)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            session.removeTag(tag)


def _title(function: Callable[[T], R]) -> str:
    """The module and the name of a function in words."""
    inner: object = function
    while isinstance(inner, partial):
        inner = inner.func
    names = [str(getattr(inner, name, type(inner).__name__)) for name in ("__module__", "__qualname__")]
    return ": ".join(name.rpartition(".")[2].replace("_", " ").strip() for name in names)


ArrowFunction: TypeAlias = "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]"
PICKLED: Final = "pickled binary"
"""The columns of a DataFrame of Python objects."""
_DESCRIPTION: Final = "spark.job.description"
"""Spark copies the settings of a session to the properties of its jobs. This one is their description."""
_PARTITIONS: Final = "spark.sql.leafNodeDefaultParallelism"
_MOST_CORES: Final = 1 << 14


def default_parallelism(session: SparkSession) -> int:
    """The processors of a session's workers; at least 2 of a cluster, and the processors that a setting states. One
    task is done on each."""
    session.conf.unset(_PARTITIONS)
    with described(session, "start: one task for each processor"):
        return int(session.range(_MOST_CORES).mapInArrow(portable(_one_row), PICKLED).toArrow().num_rows)


def _one_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row for a partition."""
    for _ in batches:
        continue
    yield from pickled([None]).to_batches()


def portable(function: ArrowFunction) -> ArrowFunction:
    """The same function for workers that may have the project only as an archive in their working directory."""
    from pyspark import cloudpickle

    by_name, archive = cloudpickle.dumps(function), PROJECT_ARCHIVE  # type: ignore[no-untyped-call]

    def by_value(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import pickle
        import sys

        project = os.path.abspath(archive)
        if os.path.isdir(project) and project not in sys.path:
            sys.path.insert(0, project)
        yield from pickle.loads(by_name)(batches)

    return by_value


def pickled(objects: Iterable[object]) -> pa.Table:
    """One row for each object, as PICKLED states."""
    import pyarrow as pa

    return pa.table({"pickled": pa.array(map(pickle.dumps, objects), pa.binary())})


def _work(function: Callable[[T], R]) -> ArrowFunction:
    """The function that Spark's workers apply to a share of the tasks."""
    expected = revision()

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        require_revision(expected)
        without_pandas()
        for batch in batches:
            for row in batch["pickled"]:
                share = pickle.loads(row.as_py())
                yield from pickled([[(number, function(task)) for number, task in share]]).to_batches()

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


def task_map(spark: SparkTasks | None, rows: int = 0) -> TaskMap:
    """Spark's workers if there is a session. Else this process, or one for each core if there are many `rows`."""
    if spark is not None:
        return spark
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return WorkerProcesses(cores) if rows >= ROWS_FOR_PROCESSES and cores > 1 else in_sequence


ROWS_FOR_PROCESSES: Final = 1 << 23
"""Two seconds of work; a process takes one second to start."""
