"""Analyzes the runs of an invocation while the next ones are made.

Theory of operation. One process of the lowest priority analyzes the runs, one after the other. It has the engine: with
Spark it starts the session, and the Java virtual machine inherits the priority. So the load of the next run gets every
processor that it asks for, and the analysis uses what is left. The kernel ends this process first if memory is short.

Invariants. Results are in the order of the runs. The lock of a run is held by the invocation's process until its result
is there. An interrupt ends the process at once; `unjudged` are the runs that then have no verdict, or an unknown one. A
process that ends unexpectedly makes only the run unknown that it analyzed; the next runs get another process.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analysis.engines.processor_time import tree_of
from installation.commands import command
from orchestrator.campaign.engine import Engine, judge
from orchestrator.campaign.store import RunDirectory
from orchestrator.running.worker_processes import begin_process

if TYPE_CHECKING:
    from analysis.verdict import Verdict

LOWEST: Final = 19
"""The niceness of the process."""
_FIRST_TO_END: Final = "1000"
"""The adjustment of the kernel's choice when memory is short."""


@dataclass
class _Waiting:
    run: RunDirectory
    lock: contextlib.ExitStack
    result: Future[Verdict]


class BackgroundAnalysis:
    """The runs that wait for their verdict, and the process that analyzes them."""

    def __init__(self, engine: Engine, *, niceness: int = LOWEST) -> None:
        """`engine`: not started here; the process has its own copy."""
        self._engine = engine
        self._niceness = niceness
        self._waiting: deque[_Waiting] = deque()
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> None:
        """Start the process and its session, unless they were started before."""
        self._started()

    def add(self, run: RunDirectory, lock: contextlib.ExitStack) -> None:
        """Analyze a run after those that were added before. `lock`: its lock, which is released with the result."""
        self._waiting.append(_Waiting(run, lock, self._started().submit(_judge, run.path)))

    def ended(self) -> Iterator[Verdict]:
        """The verdicts that are there, up to the first run that has none yet."""
        while self._waiting and self._waiting[0].result.done():
            yield self._next()

    def rest(self) -> Iterator[Verdict]:
        """All verdicts that were not returned before; waits for them."""
        while self._waiting:
            yield self._next()

    def hurry(self) -> None:
        """No load is left that the analysis could disturb: give it the priority of this process, if permitted."""
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        for process in multiprocessing.active_children():
            for each in tree_of(process.pid or 0):
                with contextlib.suppress(OSError):  # it has ended, or only root may do this
                    for thread in os.listdir(f"/proc/{each}/task"):
                        os.setpriority(os.PRIO_PROCESS, int(thread), usual)

    @property
    def unjudged(self) -> list[Path]:
        """The runs whose verdict was not returned."""
        return [each.run.path for each in self._waiting]

    def close(self) -> None:
        """End the process when the runs that were added have their verdicts."""
        if self._pool is not None:
            with contextlib.suppress(BrokenProcessPool):
                self._pool.submit(_stop).result()
            self._pool.shutdown()

    def abandon(self) -> None:
        """End the process at once; the run that it was analyzing stays unknown."""
        if self._pool is not None:
            for process in multiprocessing.active_children():
                process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            gc.collect()  # ends its semaphores, which Python otherwise reports as leaked

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(self._engine, self._niceness)
            )
            self._pool.submit(_start)
        return self._pool

    def _next(self) -> Verdict:
        first = self._waiting[0]
        try:
            verdict = first.result.result()
        except BrokenProcessPool:
            verdict = _ended_unexpectedly(first.run.path)
            self._pool = None
            for later in list(self._waiting)[1:]:
                later.result = self._started().submit(_judge, later.run.path)
        self._waiting.popleft().lock.close()
        return verdict


def _ended_unexpectedly(run: Path) -> Verdict:
    from analysis.doubt import ANALYSIS_BROKEN
    from analysis.placeholder_verdict import undecided

    again = command("analyze", str(run))
    return undecided(
        run,
        f"the process that analyzed it ended unexpectedly, possibly for lack of memory; analyze it: {again}",
        ANALYSIS_BROKEN,
    )


_own_engine: Engine
"""The engine of this process, which analyzes runs."""


def _begin(engine: Engine, niceness: int) -> None:
    global _own_engine
    os.setpriority(os.PRIO_PROCESS, 0, niceness)  # before anything heavy is imported
    begin_process()
    with contextlib.suppress(OSError):  # not on every system
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END, encoding="ascii")
    _own_engine = engine


def _start() -> None:
    _own_engine.start()


def _judge(run: Path) -> Verdict:
    return judge(run, _own_engine)


def _stop() -> None:
    _own_engine.stop()
