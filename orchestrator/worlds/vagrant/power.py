"""The power switch of virtual machines: QEMU is killed, and the data disk loses the content of its cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, TypeVar

from orchestrator.worlds.vagrant.machine import BOOT_DEADLINE_S, VirtualMachine, kill_all

T = TypeVar("T")


class VirtualPower:
    """Cuts and restores the power of virtual machines."""

    def __init__(self, machines: Mapping[str, VirtualMachine], time_scale: float) -> None:
        self._machines = machines
        self._deadline_s = BOOT_DEADLINE_S * time_scale

    def is_on(self, name: str) -> bool:
        return self._machines[name].pid() is not None

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        affected = [self._machines[name] for name in names if self.is_on(name)]
        started = time.monotonic()
        # A machine that does not execute sends nothing: nodes that share this kernel, in contrast, may close
        # connections.
        kill_all(affected)
        killed_ms = _ms(started)
        details = _each(affected, lambda machine: _lose(machine, tear))
        return {name: {"killed_ms": killed_ms, **detail} for name, detail in details.items()}

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return _each([self._machines[name] for name in names if not self.is_on(name)], self._boot)

    def _boot(self, machine: VirtualMachine) -> dict[str, Any]:
        started = time.monotonic()
        machine.start()
        ahead_s = machine.wait_until_ready(self._deadline_s)
        return {"booted_s": round(time.monotonic() - started, 2), "clock_was_ahead_s": round(ahead_s, 3)}


def _lose(machine: VirtualMachine, tear: int | None) -> dict[str, Any]:
    started = time.monotonic()
    machine.lose_connection()
    replayed = machine.disks.lose_power(None if tear is None else Random(f"{tear}:{machine.name}"))
    return {
        "writes_logged": replayed.writes,
        "writes_lost": replayed.lost,
        "flushes": replayed.flushes,
        "log_gaps": replayed.gaps,
        "replay_ms": _ms(started),
    }


def _each(machines: list[VirtualMachine], action: Callable[[VirtualMachine], T]) -> dict[str, T]:
    """By name, the result of an action on each machine, in parallel. Raises the first failure, once all have ended."""
    if not machines:
        return {}
    with ThreadPoolExecutor(len(machines), thread_name_prefix="power") as pool:
        return dict(zip((machine.name for machine in machines), pool.map(action, machines), strict=True))


def _ms(since: float) -> float:
    return round((time.monotonic() - since) * 1e3, 1)
