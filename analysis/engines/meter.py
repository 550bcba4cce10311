"""Measures what an analysis uses: processor time of all its processes, time, and the number of tasks.

Living processes count with what `/proc` says, because Spark's processes outlive the analysis of a run. A session that
several runs share is measured between calls, so its start belongs to the first of them. Workers on other machines are
not measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from analysis.engines.processor_time import own_cpu_s

if TYPE_CHECKING:
    from analysis.engines.task_map import TaskMap

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
