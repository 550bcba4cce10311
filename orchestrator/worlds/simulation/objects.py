"""The faults of the simulated object store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster
from simulator.object_store import StoreFaults
from simulator.store_probe import PREFIX, probe, shows_new


class SimulatedObjects:
    """The object store of a simulated cluster; a `nemeses.ports.Objects`."""

    def __init__(self, cluster: SimulatedCluster, scheduler: VirtualScheduler) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._probes = 0

    @property
    def _faults(self) -> StoreFaults:
        return self._cluster.objects.faults

    def slow_down(self, by_s: float) -> None:
        self._faults.slow_s = by_s

    def hang(self) -> None:
        self._faults.hung = True

    def fail(self, operations: Collection[str], reason: str) -> None:
        self._faults.failing = dict.fromkeys(sorted(operations), reason)

    def keep_part(self, reason: str) -> None:
        self._faults.partial = 1.0
        self._faults.failing_midway = reason

    def show_old(self, age_s: float) -> None:
        self._faults.stale_s = age_s

    def work(self) -> None:
        self._cluster.objects.faults = StoreFaults()

    def probe(self, operation: str, seconds: float) -> tuple[str, float | None]:
        began_s, wanted = self._cluster.loop.now, probe(self._cluster.objects, operation, self._name())
        try:
            result = self._scheduler.run(asyncio.wait_for(wanted, seconds))
        except TimeoutError:
            return "silent", None
        return result, self._cluster.loop.now - began_s

    def shows_new(self, seconds: float) -> bool:
        return self._scheduler.run(asyncio.wait_for(shows_new(self._cluster.objects, self._name()), seconds))

    def _name(self) -> str:
        self._probes += 1
        return f"{PREFIX}{self._probes}"
