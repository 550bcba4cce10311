"""The hosts of an inventory as the machines of a run: wiped for each run, collected by playbook."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from nemeses import Need
from nemeses.mechanisms.service import kill_service
from nemeses.scheduling import for_each
from orchestrator.cleanup import clean_up
from orchestrator.machine import playbooks
from orchestrator.worlds.base import Progress
from orchestrator.worlds.inventory.checks import CheckedHost
from orchestrator.worlds.inventory.host_lock import HostLocks
from orchestrator.worlds.inventory.network import HostsNetwork
from orchestrator.worlds.inventory.power import HostsPower
from orchestrator.worlds.inventory.suspender import HostsSuspender
from orchestrator.worlds.remote import collection, paths
from orchestrator.worlds.remote.world import RemoteEndpoint


class HostMachines:
    """Checked hosts: connections, switches and playbooks. `directory` is for Ansible's output.

    The available switches depend on what the hosts support. `targets`: the hosts as playbooks take them, by node.
    """

    def __init__(
        self,
        checked: Sequence[CheckedHost],
        offers: frozenset[Need],
        targets: Mapping[str, playbooks.Target],
        directory: Path,
        known_hosts: Path,
    ) -> None:
        self._checked = {each.host.node: each for each in checked}
        self._targets = targets
        self._directory = directory
        self.hosts = {name: each.connection(known_hosts) for name, each in self._checked.items()}
        inventory = {name: each.host for name, each in self._checked.items()}
        accesses = {name: each.access for name, each in self._checked.items()}
        scale = max(each.host.time_scale for each in checked)
        self._claims = HostLocks(
            {name: each.connection(known_hosts) for name, each in self._checked.items()},
            {name: each.host.title for name, each in self._checked.items()},
            scale,
        )
        self.power: HostsPower | None = HostsPower(inventory, self.hosts, accesses, self._after_boot, scale)
        self.suspender: HostsSuspender | None = HostsSuspender(inventory, accesses, self._after_resume)
        self.network: HostsNetwork | None = HostsNetwork(self.hosts, self._answers)
        self.restrict(offers)

    def restrict(self, offers: frozenset[Need]) -> None:
        """Drop the switches that the hosts do not support."""
        if "power" not in offers:
            self.power = None
        if not offers & {"stall", "freeze"}:
            self.suspender = None
        if "network" not in offers:
            self.network = None

    def claim(self) -> None:
        """Lock the hosts against other campaigns, and end what a killed one left. Raises `HostError` when one is in
        use."""
        self._claims.take(list(self.hosts))
        for_each(self.hosts, self._kill_lost_service)
        if self.network is not None:
            self.network.remove(self._claims.held)  # otherwise its cuts would be reported as a firewall

    def endpoint(self, name: str) -> RemoteEndpoint:
        each = self._checked[name]
        return RemoteEndpoint(int(name[1:]), each.address, each.host.port, each.host.data_dir)

    def reset(self, on_progress: Progress) -> None:
        self.revive()
        for_each(self.hosts.values(), kill_service)  # SIGKILL: a killed run may have left it suspended
        self.play("wipe", on_progress)
        if self.network is not None:
            self.network.build()
        for_each(self.hosts.values(), lambda host: host.connect())

    def collect(self, destinations: Mapping[str, Path], wanted: collection.Collected) -> None:
        collection.collect(self._targets, destinations, wanted, self._directory)

    def revive(self) -> None:
        """Resume every machine that a fault suspended. Raises `HostError`."""
        if self.suspender is not None:
            self.suspender.resume(list(self.hosts))
        if self.power is not None:
            self.power.restore(list(self.hosts))

    def release(self) -> None:
        """Remove what only campaigns need and release the hosts; installed software stays."""
        network = self.network
        clean_up(
            self.revive,
            *(() if network is None else (lambda: network.remove(self._claims.held),)),
            self._claims.release,
            *(host.disconnect for host in self.hosts.values()),
        )

    def play(self, playbook: str, on_progress: Progress) -> playbooks.Played:
        """Run a playbook on all hosts. Raises `PlaybookError`."""
        return playbooks.play(playbook, list(self._targets.values()), self._directory, on_progress=on_progress)

    def _answers(self, name: str) -> bool:
        has_power = self.power is None or self.power.is_on(name)
        return has_power and (self.suspender is None or self.suspender.asked(name) == "running")

    def _after_boot(self, names: Collection[str]) -> None:
        self._claims.take(names)
        if self.network is not None:
            self.network.refresh(names)

    def _after_resume(self, names: Collection[str]) -> None:
        for name in names:
            self.hosts[name].disconnect()
        self._after_boot(names)

    def _kill_lost_service(self, name: str) -> None:
        """Kill a service of an earlier run that listens on one of the ports and is in no pid file."""
        for pid in {int(listener["pid"]) for listener in self._checked[name].facts["listeners"]} - {0}:
            self.hosts[name].run(f"grep -qa {paths.MARK}= /proc/{pid}/environ && kill -9 {pid}")
