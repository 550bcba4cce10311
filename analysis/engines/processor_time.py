"""Processor time of this process and of process trees.

Living processes count with what `/proc` says, because Spark's processes outlive the analysis of a run. A session that
several runs share is measured between calls, so its start belongs to the first of them. Workers on other machines are
not measured.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from analysis.engines.task_map import TaskMap


def own_cpu_s() -> float:
    """User and system time of this process and of its descendants that have ended, in seconds."""
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def cpu_of_tree_s(root: int) -> float:
    """User and system time of a process and of its living and ended descendants, in seconds; 0 without
    /proc."""
    ticks = 0
    for pid in tree_of(root):
        fields = _stat(pid)
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def tree_of(root: int) -> list[int]:
    """A process and the living processes that it started, directly or not."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return [root]
    parents = {pid: int(fields[1]) for pid in pids if (fields := _stat(pid))}
    tree = [root]
    for ancestor in tree:
        tree += [pid for pid, parent in parents.items() if parent == ancestor]
    return tree


def _stat(pid: int) -> list[str]:
    """The fields of a process from its state on; none of one that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


# ---- Measures what an analysis uses: processor time of all its processes, time, and the number of tasks.

T = TypeVar("T")
R = TypeVar("R")


class Meter:
    """Measures from its creation on. `tasks`: how many the maps that it counts were given."""

    def __init__(self) -> None:
        self.tasks = 0
        self._began_s = time.monotonic()
        self._cpu_before_s = own_cpu_s()

    def counted(self, spread: TaskMap) -> TaskMap:
        """The same map; its tasks count."""

        def spread_and_count(
            function: Callable[[T], R], tasks: Sequence[T], weights: Sequence[int] | None = None, /
        ) -> list[R]:
            self.tasks += len(tasks)
            return spread(function, tasks, weights)

        return spread_and_count

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def cpu_s(self) -> float:
        """User and system time of this process and of those that it started and that have ended."""
        return own_cpu_s() - self._cpu_before_s
