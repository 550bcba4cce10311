"""A lab's virtual machines as the machines of a run: restored from their saved state, collected by playbook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nemeses.scheduling import for_each
from orchestrator.errors import WorldError
from orchestrator.machine.pair_filter import PairFilter
from orchestrator.machine.playbooks import Played, Target, play
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.base import Progress
from orchestrator.worlds.remote import collection
from orchestrator.worlds.remote.world import RemoteEndpoint
from orchestrator.worlds.vagrant.hypervisor import Hypervisor
from orchestrator.worlds.vagrant.machine import RESTORE_DEADLINE_S, VirtualMachine
from orchestrator.worlds.vagrant.network import BRIDGES, DATA, data_address
from orchestrator.worlds.vagrant.power import VirtualPower
from orchestrator.worlds.vagrant.suspender import VirtualSuspender


class VirtualMachines:
    """Booted and provisioned machines. `directory` is for Ansible's output."""

    def __init__(
        self,
        machines: Mapping[str, VirtualMachine],
        hypervisor: Hypervisor,
        targets: Mapping[str, Target],
        directory: Path,
        time_scale: float,
    ) -> None:
        self._machines = machines
        self._targets = targets
        self._directory = directory
        self._restore_deadline_s = RESTORE_DEADLINE_S * time_scale
        self.hosts: Mapping[str, SshHost] = {name: machine.host for name, machine in machines.items()}
        self.power = VirtualPower(machines, time_scale)
        self.suspender = VirtualSuspender(machines, hypervisor)
        self.network = PairFilter({name: host.address for name, host in self.hosts.items()}, BRIDGES[DATA])

    def endpoint(self, name: str) -> RemoteEndpoint:
        number = int(name[1:])
        return RemoteEndpoint(number, data_address(number))

    def save(self) -> None:
        """Save every machine's current state for `reset`; the machines are off afterwards. Raises `WorldError`."""
        for_each(self._machines.values(), VirtualMachine.save)

    def reset(self, on_progress: Progress) -> None:
        self.network.heal()
        self.suspender.forget()
        for_each(self._machines.values(), self._restore)
        on_progress(f"{', '.join(self._machines)} are restored to the state after provisioning")

    def collect(self, destinations: Mapping[str, Path], wanted: collection.Collected) -> None:
        try:
            for name, destination in destinations.items():
                destination.mkdir(parents=True, exist_ok=True)
                self._machines[name].write_console(destination / "console.log")
        except OSError as error:
            raise WorldError(f"the console output cannot be stored: {error}") from error
        collection.collect(self._targets, destinations, wanted, self._directory)

    def play(self, playbook: str, on_progress: Progress) -> Played:
        """Run a playbook on all machines. Raises `PlaybookError`."""
        return play(playbook, list(self._targets.values()), self._directory, on_progress=on_progress)

    def _restore(self, machine: VirtualMachine) -> None:
        machine.lose_connection()
        machine.restore()
        machine.wait_until_ready(self._restore_deadline_s, was_up=True)
