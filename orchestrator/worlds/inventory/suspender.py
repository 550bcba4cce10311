"""Suspends whole machines from outside, with commands of the inventory, usually a hypervisor's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from nemeses.ports import MachineState
from nemeses.scheduling import results_by_name
from orchestrator.errors import WorldError
from orchestrator.worlds.inventory.access import HostAccess
from orchestrator.worlds.inventory.hosts import InventoryHost
from orchestrator.worlds.inventory.power import run_command


class HostsSuspender:
    """`on_back` gets the names of resumed hosts before `resume` returns."""

    def __init__(
        self,
        inventory: Mapping[str, InventoryHost],
        accesses: Mapping[str, HostAccess],
        on_back: Callable[[Collection[str]], None],
    ) -> None:
        self._inventory = inventory
        self._accesses = accesses
        self._on_back = on_back
        self._states: dict[str, MachineState] = {}

    def state(self, name: str) -> MachineState:
        """A host that accepts connections is running, whatever was requested."""
        asked = self.asked(name)
        return "running" if asked == "running" or self._accesses[name].is_reachable() else asked

    def asked(self, name: str) -> MachineState:
        """The last requested state of a machine; takes no time."""
        return self._states.get(name, "running")

    def stall(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._suspend(names, "stalled")

    def freeze(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return self._suspend(names, "frozen")

    def resume(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        stopped = [name for name in names if self.asked(name) != "running"]
        said = self._run(stopped, "brownout_suspend_resume")
        for name in stopped:
            self._states.pop(name, None)
        if stopped:
            self._on_back(stopped)
        return said

    def _suspend(self, names: Collection[str], state: MachineState) -> dict[str, dict[str, Any]]:
        running = [name for name in names if self.asked(name) == "running"]
        # Recorded first: if a command fails halfway, the machine must still be resumed.
        self._states.update(dict.fromkeys(running, state))
        return self._run(running, "brownout_suspend_stall" if state == "stalled" else "brownout_suspend_freeze")

    def _run(self, names: Collection[str], variable: str) -> dict[str, dict[str, Any]]:
        return results_by_name(names, lambda name: self._one(name, variable))

    def _one(self, name: str, variable: str) -> dict[str, Any]:
        host = self._inventory[name]
        command = {
            "brownout_suspend_stall": host.stall,
            "brownout_suspend_freeze": host.freeze,
            "brownout_suspend_resume": host.resume,
        }[variable]
        if command is None:
            raise WorldError(f"{host.title}: the inventory has no {variable} for it")
        return run_command(host, variable, command)
