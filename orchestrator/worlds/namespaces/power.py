"""The power switch of the namespaces world.

The order makes it a power cut: first the network of all cut nodes is disconnected, then some dirty pages may reach the
disks, then the filesystems stop, then the processes are killed, and only then is anything taken down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from random import Random
from typing import Any

from nemeses.scheduling import results_by_name
from orchestrator.cleanup import clean_up
from orchestrator.errors import WorldError
from orchestrator.worlds.namespaces.machine import Machine


class NamespacePower:
    """Cuts and restores the power of machines; `on_cut` and `on_boot` get each name afterwards."""

    def __init__(
        self,
        machines: Mapping[str, Machine],
        on_cut: Callable[[str], None],
        on_boot: Callable[[str], None],
    ) -> None:
        self._machines = machines
        self._on_cut = on_cut
        self._on_boot = on_boot

    def is_on(self, name: str) -> bool:
        return self._machines[name].boot is not None

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        affected = {name: self._machines[name] for name in names if self.is_on(name)}
        try:
            for machine in affected.values():
                machine.unplug()
        except OSError as error:
            clean_up(*(machine.plug_in for machine in affected.values()), cause=error)
            raise WorldError(f"the power of {', '.join(affected)} cannot be cut: {error}; it stays on") from error
        return results_by_name(affected, lambda name: self._cut_one(name, tear))

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        return results_by_name([name for name in names if not self.is_on(name)], self._restore_one)

    def _cut_one(self, name: str, tear: int | None) -> dict[str, Any]:
        machine = self._machines[name]
        before = machine.boot
        assert before is not None, "only machines that are on are cut"
        started = time.monotonic()
        try:
            torn = machine.lose_power(None if tear is None else Random(f"{tear}:{name}"))
        except (OSError, WorldError) as error:
            state = "stays on" if self.is_on(name) else "is off"
            raise WorldError(f"{name}: the power cut failed, the power {state}: {error}") from error
        finally:
            if not self.is_on(name):
                self._on_cut(name)
        return {
            "boot_id": before.boot_id,
            "pid_namespace": before.pid_namespace,
            "pages_written_back": torn.written_back,
            "pages_dropped": torn.dropped,
            "journal_flushed": torn.journal_flushed,
            "took_ms": round((time.monotonic() - started) * 1e3, 1),
        }

    def _restore_one(self, name: str) -> dict[str, Any]:
        started = time.monotonic()
        boot = self._machines[name].power_on()
        self._on_boot(name)
        return {**asdict(boot), "took_ms": round((time.monotonic() - started) * 1e3, 1)}
