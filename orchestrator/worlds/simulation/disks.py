"""The disks of simulated machines, below their filesystems."""

from __future__ import annotations

import asyncio
from random import Random

from nemeses.ports import DiskCount, HostError
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster, SimulatedMachine

PROBE = ".brownout-probe"
METADATA, ASIDE = "__cluster_metadata", "-aside/"


class SimulatedDisks:
    """All disks and their faults."""

    def __init__(self, cluster: SimulatedCluster, scheduler: VirtualScheduler) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._copies: dict[str, list[tuple[str, bytes | None]]] = {}

    def fail_syncs(self, name: str, failing: bool) -> None:
        self._machine(name).disk.faults.failing = failing

    def leave(self, name: str, free_bytes: int | None) -> None:
        self._machine(name).disk.faults.free_bytes = free_bytes

    def slow_down(self, name: str, by_s: float) -> None:
        self._machine(name).disk.faults.slow_s = by_s

    def hang(self, name: str, hung: bool) -> None:
        disk = self._machine(name).disk
        if hung:
            disk.faults.hung = True
        else:
            disk.release()

    def flip(self, name: str, seed: int, count: int) -> list[str]:
        machine = self._stopped(name)
        chance, flips = Random(f"{self._cluster.seed}/flip/{seed}"), list[str]()
        # A voter's metadata are excluded: the quorum does not promise to survive corruption of a majority of them.
        # Files that the broker has set aside are excluded: it never reads them again.
        logs = sorted(
            path
            for path, data in machine.disk.files()
            if data and path.endswith(".log") and METADATA not in path and ASIDE not in path
        )
        for _ in range(count):
            if (flip := machine.disk.flip(chance, logs)) is None:
                break
            flips.append(str(flip))
        return flips

    def mend(self, name: str) -> int:
        return self._stopped(name).disk.mend()

    def keep_copy(self, name: str) -> int:
        self._copies[name] = self._machine(name).disk.image()
        return _count(self._copies[name])

    def replace(self, name: str, *, by_copy: bool) -> int:
        machine = self._stopped(name)
        had = _count(machine.disk.files())
        directory = self._cluster.directory_of(name)
        machine.disk.replace(self._copies[name] if by_copy else _whole_path(directory))
        return had

    def probe(self, name: str, seconds: float) -> float | None:
        disk, began_s = self._machine(name).disk, self._cluster.loop.now
        file = disk.open(PROBE, create=True)
        try:
            file.append([b"probe"])
            self._scheduler.run(asyncio.wait_for(file.sync(), seconds))
        except TimeoutError:
            return None
        finally:
            file.close()
            disk.unlink(PROBE)
        return self._cluster.loop.now - began_s

    def counts(self, name: str) -> DiskCount:
        faults = self._machine(name).disk.faults
        return DiskCount(faults.failed_syncs, faults.refused_writes)

    def _machine(self, name: str) -> SimulatedMachine:
        return self._cluster.machines[name]

    def _stopped(self, name: str) -> SimulatedMachine:
        machine = self._machine(name)
        if machine.running:
            raise HostError(f"{name}: its service still runs on this disk")
        return machine


def _count(content: list[tuple[str, bytes | None]]) -> int:
    return sum(data is not None for _, data in content)


def _whole_path(directory: str) -> list[tuple[str, bytes | None]]:
    """A directory with its parents, as on an empty disk that was prepared for a service."""
    parts = directory.split("/") if directory else []
    return [("/".join(parts[:end]), None) for end in range(1, len(parts) + 1)]
