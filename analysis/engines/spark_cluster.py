"""A standalone Spark cluster before it gets work: a master that answers, workers, and the project on each of them.

Theory of operation. Spark itself waits: for a master one minute, for workers without a limit. So the driver first
connects to the master; its own address on that connection is the one under which workers find it. When the first worker
has offered its processors, and no further ones were offered for as long as the first one took (at least `SETTLED_S`), a
stage of barrier tasks fills all of them at the same time. So each worker proves that it can import the project, that
its analysis has the same code, and that it sees the files. A worker that lacks something is found even if another
worker is faster. A worker that joins after this stage is checked by its own tasks: each task compares the code first.
"""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from analysis.analysis_revision import revision
from analysis.engines.spark_errors import SparkUnavailableError, cause_of, needs_of_workers
from analysis.engines.task_map import (
    PICKLED,
    ArrowFunction,
    SparkTasks,
    default_parallelism,
    described,
    pickled,
    portable,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")

OF_OTHER_MANAGERS: Final = ("yarn", "k8s://")
"""The start of the address of a master that Spark itself must reach."""
WORKERS_S: Final = 120.0
SETTLED_S = 3.0
"""Workers of a cluster start their processes at the same time. The slowest takes seconds longer, and on a busy host a
multiple of the time of the first."""
_POLL_S: Final = 0.2
_LEAST_STATED: Final = 2
"""The default parallelism of a cluster with fewer processors."""
_TOO_FEW: Final = "requires more slots than the total number of slots"
SETTINGS: Final = {
    "spark.barrier.sync.timeout": "120",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "3",
}


def require_workers(session: SparkSession, master: str) -> int:
    """Wait for the workers; then each must have this project. Returns their processors. Raises
    `SparkUnavailableError`."""
    cores = _await_cores(session, master)
    for host, worker_revision in on_each_worker(session, master, cores, _revisions, "compare the code"):
        if worker_revision != revision():
            raise SparkUnavailableError(
                f"the worker at {host} has other code of the analysis ({worker_revision}, here {revision()}); "
                f"{needs_of_workers(master)}"
            )
    return cores


def _await_cores(session: SparkSession, master: str) -> int:
    """The processors of the workers, once no further ones are offered. Raises `SparkUnavailableError`."""
    late = threading.Event()

    def give_up() -> None:
        late.set()
        session.interruptAll()

    timer = threading.Timer(WORKERS_S, give_up)
    timer.start()
    began = time.monotonic()
    try:
        with described(session, "start: wait for a worker"):
            session.range(0, 1, 1, 1).collect()  # needs a worker, and none of its Python, whose start is not counted
        timer.cancel()
        cores, since = default_parallelism(session), time.monotonic()
        settled_s = max(SETTLED_S, since - began)
        while time.monotonic() < since + settled_s:
            time.sleep(_POLL_S)
            if (now := default_parallelism(session)) != cores:
                cores, since = now, time.monotonic()
    except Exception as error:
        if late.is_set():
            raise SparkUnavailableError(
                f"no worker of {master} offered a processor and 1 GiB of memory within {WORKERS_S:.0f} s; "
                "start workers, or end the applications that use them"
            ) from error
        raise SparkUnavailableError(f"a worker of {master} failed: {cause_of(error, master)}") from error
    finally:
        timer.cancel()
    return cores


def require_visible(tasks: SparkTasks, paths: Sequence[Path]) -> None:
    """Each worker must see these directories. Raises `SparkUnavailableError`."""
    unseen = partial(_unseen, paths)
    for host, path in on_each_worker(tasks.session, tasks.master, tasks.cores, unseen, "see the store"):
        raise SparkUnavailableError(
            f"the worker at {host} does not see {path}: keep the store on a file system that all workers have mounted "
            "at the same path as this machine"
        )


def on_each_worker(
    session: SparkSession, master: str, slots: int, work: Callable[[], Iterator[T]], purpose: str
) -> list[T]:
    """What `work` yields in each of the workers' processes, all at the same time. Raises `SparkUnavailableError`."""
    try:
        with described(session, f"start: {purpose} on each worker"):
            answers = session.range(0, slots, 1, slots).mapInArrow(_barrier_task(work), PICKLED, barrier=True).toArrow()
    except Exception as error:
        if slots == _LEAST_STATED and _TOO_FEW in str(error):  # of a cluster with one processor
            return on_each_worker(session, master, 1, work, purpose)
        raise SparkUnavailableError(f"a worker of {master} failed: {cause_of(error, master)}") from error
    return [answer for row in answers["pickled"] for answer in pickle.loads(row.as_py())]


def _barrier_task(work: Callable[[], Iterator[T]]) -> ArrowFunction:
    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            continue
        yield from pickled([list(work())]).to_batches()

    return portable(answer)


def _revisions() -> Iterator[tuple[str, str]]:
    yield socket.gethostname(), revision()


def _unseen(paths: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    for path in paths:
        if not path.is_dir():
            yield socket.gethostname(), path
