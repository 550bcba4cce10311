"""The power switch of virtual machines: QEMU is killed, and the data disk loses the content of its cache."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from random import Random
from typing import Any

from nemeses.scheduling import results_by_name
from orchestrator.worlds.vagrant.machine import BOOT_DEADLINE_S, VirtualMachine, kill_all


class VirtualPower:
    """Cuts and restores the power of virtual machines."""

    def __init__(self, machines: Mapping[str, VirtualMachine], time_scale: float) -> None:
        self._machines = machines
        self._deadline_s = BOOT_DEADLINE_S * time_scale

    def is_on(self, name: str) -> bool:
        return self._machines[name].pid() is not None

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        affected = {name: self._machines[name] for name in names if self.is_on(name)}
        started = time.monotonic()
        # A machine that does not execute sends nothing: nodes that share this kernel, in contrast, may close
        # connections.
        kill_all(list(affected.values()))
        killed_ms = _ms(started)
        details = results_by_name(affected, lambda name: _lose(affected[name], tear))
        return {name: {"killed_ms": killed_ms, **detail} for name, detail in details.items()}

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return results_by_name([name for name in names if not self.is_on(name)], self._boot)

    def _boot(self, name: str) -> dict[str, Any]:
        machine, started = self._machines[name], time.monotonic()
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


def _ms(since: float) -> float:
    return round((time.monotonic() - since) * 1e3, 1)
