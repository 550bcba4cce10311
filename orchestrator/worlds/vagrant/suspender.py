"""Suspends virtual machines from outside: with their clocks (QEMU's stop) or without (the process is stopped)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from nemeses.ports import MachineState
from nemeses.scheduling import results_by_name
from orchestrator.errors import WorldError
from orchestrator.worlds.vagrant.hypervisor import Hypervisor
from orchestrator.worlds.vagrant.machine import VirtualMachine, process_state

_DEADLINE_S = 5.0


class VirtualSuspender:
    """Stalls, freezes and resumes virtual machines.

    A stalled QEMU does not answer, not even libvirt: requests to libvirt about that machine hang until it is resumed. A
    freeze flushes the machine's disks, because QEMU flushes whenever it stops: the guest's writes are then durable.
    """

    def __init__(self, machines: Mapping[str, VirtualMachine], hypervisor: Hypervisor) -> None:
        self._machines = machines
        self._hypervisor = hypervisor
        self._frozen: set[str] = set()

    def stall(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return {name: self._signal(name, signal.SIGSTOP, "stalled") for name in names}

    def freeze(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        # Recorded first: if a command fails halfway, the machine must still be resumed.
        self._frozen |= set(names)
        return self._ask(names, "suspend")

    def resume(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        stalled = [name for name in names if self.state(name) == "stalled"]
        said = {name: self._signal(name, signal.SIGCONT, "running") for name in stalled}
        frozen = [name for name in names if name in self._frozen]
        said |= self._ask(frozen, "resume")
        self._frozen -= set(frozen)
        return said

    def state(self, name: str) -> MachineState:
        """By the kernel's state of the process, and libvirt's state of the machine."""
        pid = self._machines[name].pid()
        if pid is not None and process_state(pid) in "Tt":
            return "stalled"
        if name in self._frozen and self._hypervisor.virsh("domstate", self._machines[name].domain).strip() == "paused":
            return "frozen"
        return "running"

    def forget(self) -> None:
        """Reset: all machines are new and running."""
        self._frozen.clear()

    def _signal(self, name: str, number: signal.Signals, wanted: MachineState) -> dict[str, Any]:
        pid = self._machines[name].pid()
        if pid is None:
            raise WorldError(f"{name}: it has no power and cannot be {wanted}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        self._wait(name, lambda: (process_state(pid) in "Tt") == (wanted == "stalled"), wanted)
        return {"qemu_pid": pid}

    def _ask(self, names: Collection[str], command: str) -> dict[str, dict[str, Any]]:
        def one(name: str) -> dict[str, Any]:
            started = time.monotonic()
            self._hypervisor.virsh(command, self._machines[name].domain)
            return {"took_ms": round((time.monotonic() - started) * 1e3, 1)}

        return results_by_name(names, one)

    def _wait(self, name: str, done: Callable[[], bool], wanted: MachineState) -> None:
        give_up = time.monotonic() + _DEADLINE_S
        while not done():
            if time.monotonic() > give_up:
                raise WorldError(f"{name}: not {wanted} {_DEADLINE_S:g} s after it was asked to be")
            time.sleep(0.001)
