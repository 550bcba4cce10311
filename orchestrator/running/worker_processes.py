"""Processes that make simulated runs side by side.

A simulated run takes over signals, the clock and garbage collection of its process, so each is made by a process of its
own. The workers ignore signals: the parent handles them, and decides what becomes of the runs. They end with it.
"""

import contextlib
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from orchestrator.cleanup import always
from orchestrator.errors import STOPPING, RunError
from orchestrator.machine import syscalls
from orchestrator.running.interrupts import Interrupts


@contextlib.contextmanager
def worker_processes(jobs: int, interrupts: Interrupts) -> Iterator[ProcessPoolExecutor]:
    """A pool of `jobs` processes. At the end, tasks that have not started are dropped and the others end first. Raises
    `RunError` when one of the processes ends unexpectedly."""
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=begin_process)
    with always(lambda: pool.shutdown(cancel_futures=True), shield=interrupts.shielded):
        try:
            yield pool
        except BrokenProcessPool as error:
            raise RunError(
                f"a process that made runs ended unexpectedly, possibly for lack of memory; --jobs {jobs - 1} makes "
                "fewer at the same time"
            ) from error


def begin_process() -> None:
    """Ignore signals, which the parent handles, and end when the parent ends."""
    syscalls.die_with_parent(signal.SIGKILL)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
