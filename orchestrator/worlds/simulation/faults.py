"""The power and the network of a simulated cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import Any

from nemeses.ports import PacketCount
from orchestrator.worlds.simulation.host import SimulatedHost
from simulator.cluster import SimulatedCluster

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
