"""Analyzes many runs on the workers of a Spark session: one task for each run, in process inside the task.

Theory of operation. The driver has one thread for each core of the session. A thread takes the next run and submits a
job of one task, so a task that fails, or whose worker dies, concerns its run only; Spark repeats a task whose worker
was lost, where the master is a cluster. A task reads and writes files in the run's directory, which all workers see
under the same path, and sends nothing back. The driver holds the locks of the runs meanwhile.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.engines.task_map import tagged
from orchestrator.running.engine import IN_PROCESS, Engine, judge

if TYPE_CHECKING:
    from analysis.engines.task_map import SparkTasks

_POLL_S: Final = 0.2
"""A wait without a limit cannot be interrupted."""


def judge_here(run: str) -> None:
    """Analyze a run in this process, a worker's."""
    path = Path(run)
    judge(path, Engine(IN_PROCESS))


def judge_each(
    runs: Sequence[Path], tasks: SparkTasks, work: Callable[[str], None] = judge_here
) -> Generator[tuple[Path, str], None, None]:
    """Analyzes the runs concurrently. Yields each when it is done, with the reason if its task failed, else an empty
    text. `work` is called in the workers; closing the iterator cancels what is under way."""
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Path, str]] = queue.SimpleQueue()
    for run in runs:
        waiting.put(run)

    def work_through() -> None:
        while True:
            try:
                run = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                with tagged(tasks.session, f"{run.parent.name}/{run.name}"):  # the threads share a description
                    tasks(work, [str(run)])
                done.put((run, ""))
            except Exception as error:  # also of a session that was stopped
                done.put((run, str(error)))

    for _ in range(min(len(runs), tasks.cores)):
        threading.Thread(target=work_through, daemon=True).start()
    count = 0
    try:
        while count < len(runs):
            try:
                found = done.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            count += 1
            yield found
    finally:
        if count < len(runs):
            while not waiting.empty():
                waiting.get()
            tasks.cancel()
