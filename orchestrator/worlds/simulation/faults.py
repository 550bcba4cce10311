"""What a nemesis acts on in a simulated cluster: power, network, suspension, rate of the clocks, object store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from random import Random
from typing import Any

from nemeses.ports import MachineState, PacketCount
from orchestrator.worlds.simulation.host import SimulatedHost
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster
from simulator.object_store import PROBE_PREFIX, SimulatedObjectStore, StoreFaults, probe, reads_own, shows_new

Pair = tuple[str, str]


class SimulatedPower:
    """The power switches of all machines."""

    def __init__(self, cluster: SimulatedCluster, hosts: Mapping[str, SimulatedHost]) -> None:
        self._cluster = cluster
        self._hosts = hosts
        self._cuts = 0

    def is_on(self, name: str) -> bool:
        return self._cluster.machines[name].powered

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        on = [name for name in names if self.is_on(name)]
        boots = {name: self._hosts[name].boot_id for name in on}
        self._cuts += 1
        chance = Random(f"{self._cluster.seed}/cut {self._cuts}/{tear}")
        # Without tearing nothing is written back first, as when a filesystem is shut down without flushing.
        self._cluster.power_loss(*on, rng=chance, commit=tear is not None) if on else None
        return {name: {"boot_id": boots[name], "journal_flushed": tear is not None} for name in on}

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        dark = [name for name in names if not self.is_on(name)]
        for name in dark:
            self._cluster.restore_power(name)
        return {name: {"boot_id": self._hosts[name].boot_id} for name in dark}


class SimulatedCables:
    """The connections between the machines, cut by directed pairs."""

    def __init__(self, cluster: SimulatedCluster, hosts: Mapping[str, SimulatedHost]) -> None:
        self._cluster = cluster
        self._names = tuple(hosts)

    def cut(self, pairs: Collection[Pair], *, reject: bool = False) -> None:
        for source, target in sorted(pairs):
            (self._cluster.reject if reject else self._cluster.cut)(source, target)

    def heal(self, pairs: Collection[Pair] | None = None) -> None:
        cut = self.cut_pairs()
        for source, target in sorted(cut if pairs is None else cut & set(pairs)):
            self._cluster.heal(source, target)

    def counters(self) -> dict[Pair, PacketCount]:
        count = self._cluster.network.counts
        return {(a, b): PacketCount(*count(a, b)) for a in self._names for b in self._names if a != b}

    def cut_pairs(self) -> set[Pair]:
        return set(self._cluster.network.cuts)


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


class SimulatedObjects:
    """The object store of a simulated cluster; a `nemeses.ports.Objects`. `reason` None: with all its faults."""

    def __init__(self, cluster: SimulatedCluster, scheduler: VirtualScheduler, reason: str | None = None) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._reason = reason
        self._probes = 0

    def under(self, reason: str) -> SimulatedObjects:
        return type(self)(self._cluster, self._scheduler, reason)

    @property
    def _faults(self) -> StoreFaults:
        store = self._cluster.objects
        return store.faults if self._reason is None else store.reasons.setdefault(self._reason, StoreFaults())

    @property
    def _met(self) -> SimulatedObjectStore:
        """The store as probes meet it."""
        store = self._cluster.objects
        return store if self._reason is None else store.with_only(store.reasons.get(self._reason, StoreFaults()))

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

    def mix_up(self) -> int:
        self._faults.mixed = True
        rng = Random(f"{self._cluster.seed}/strays {self._reason}")
        return self._scheduler.run(self._cluster.objects.put_strays(rng))

    def work(self) -> None:
        if self._reason is not None:
            self._cluster.objects.reasons.pop(self._reason, None)
            return
        self._cluster.objects.reasons.clear()
        self._cluster.objects.faults = StoreFaults()

    def probe(self, operation: str, seconds: float) -> tuple[str, float | None]:
        began_s, wanted = self._cluster.loop.now, probe(self._met, operation, self._name())
        try:
            result = self._scheduler.run(asyncio.wait_for(wanted, seconds))
        except TimeoutError:
            return "silent", None
        return result, self._cluster.loop.now - began_s

    def shows_new(self, seconds: float) -> bool:
        return self._scheduler.run(asyncio.wait_for(shows_new(self._met, self._name()), seconds))

    def reads_own(self, seconds: float) -> bool:
        reading = reads_own(self._met, (self._name(), self._name()))
        return self._scheduler.run(asyncio.wait_for(reading, seconds))

    def _name(self) -> str:
        self._probes += 1
        return f"{PROBE_PREFIX}{self._reason or ''}{self._probes}"
