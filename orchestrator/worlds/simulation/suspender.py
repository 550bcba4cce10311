"""Suspends and resumes simulated machines, and changes the rate of their clocks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from nemeses.ports import MachineState
from simulator.cluster import SimulatedCluster

_BY = {"by": "the simulator"}


class SimulatedSuspender:
    """Suspends whole machines."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def stall(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._suspend(names, frozen=False)

    def freeze(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._suspend(names, frozen=True)

    def resume(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        for name in names:
            self._cluster.resume(name)
        return {name: dict(_BY) for name in names}

    def state(self, name: str) -> MachineState:
        machine = self._cluster.machines[name]
        return "running" if not machine.suspended else "frozen" if machine.clock.frozen else "stalled"

    def _suspend(self, names: Collection[str], *, frozen: bool) -> dict[str, dict[str, Any]]:
        for name in names:
            self._cluster.suspend(name, frozen=frozen)
        return {name: dict(_BY) for name in names}


class SimulatedOscillators:
    """The rate of clocks."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def drift(self, name: str, gain: float) -> None:
        self._cluster.let_drift(name, gain)
