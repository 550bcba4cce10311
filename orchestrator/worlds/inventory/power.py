"""Power switches of existing hosts: commands of the inventory, or a reset from inside (sysrq)."""

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from installation.programs import run_program
from nemeses.ports import HostError
from nemeses.scheduling import results_by_name
from orchestrator.errors import WorldError
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.inventory.access import HostAccess
from orchestrator.worlds.inventory.hosts import InventoryHost

COMMAND_DEADLINE_S = 120.0
_SILENCE_DEADLINE_S = 120.0
_BOOT_DEADLINE_S = 600.0
_ON, _OFF = ("on", "running", "started", "up"), ("off", "stopped", "shut", "down", "crashed", "poweroff")
_TRIGGER = "/proc/sysrq-trigger"
# The host answers first and resets a moment later, in another session: otherwise it would be gone before its answer.
_RESET = f"""[ -w {_TRIGGER} ] || exit 1
setsid sh -c 'sleep 0.2; echo b > {_TRIGGER}' </dev/null >/dev/null 2>&1 &"""


@dataclass(eq=False)
class HostsPower:
    """The power switches of hosts, each with its own commands.

    `_on_back` gets the names of booted hosts before `restore` returns. After a reset (sysrq) a host boots by itself; it
    counts as off until it is restored, because no broker runs on it until then.
    """

    _inventory: Mapping[str, InventoryHost]
    _hosts: Mapping[str, SshHost]
    _accesses: Mapping[str, HostAccess]
    _on_back: Callable[[Collection[str]], None]
    _scale: float = 1.0
    _off: set[str] = field(default_factory=set, init=False)

    def is_on(self, name: str) -> bool:
        return name not in self._off

    def cut(self, names: Collection[str], tear: int | None = None) -> dict[str, dict[str, Any]]:
        """`tear` has no effect: what a real disk does with unsynced writes cannot be chosen."""
        del tear
        targets = [name for name in names if self.is_on(name)]
        return self._on_each(targets, self._cut_one)

    def restore(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        dark = [name for name in names if not self.is_on(name)]
        booted = self._on_each(dark, self._restore_one)
        self._off.difference_update(dark)
        if dark:
            self._on_back(dark)
        return booted

    def _on_each(
        self, names: Collection[str], action: Callable[[str, threading.Barrier], dict[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        if not names:
            return {}
        start = threading.Barrier(len(names))
        return results_by_name(names, lambda name: action(name, start))

    def _cut_one(self, name: str, start: threading.Barrier) -> dict[str, Any]:
        host = self._inventory[name]
        start.wait()
        began = time.monotonic()
        self._off.add(name)
        if host.power_off is not None:
            output = run_command(host, "brownout_power_off", host.power_off)
        else:
            output = self._reset(name)
        self._hosts[name].disconnect()
        self._await_silence(host, began)
        return {**output, "silent_after_ms": round((time.monotonic() - began) * 1e3)}

    def _reset(self, name: str) -> dict[str, Any]:
        """A reset from inside. Raises `WorldError` when the host refuses it."""
        if not self._hosts[name].run(_RESET).ok:
            raise WorldError(f"{self._inventory[name].title}: {_TRIGGER} is not writable, so the host cannot be reset")
        return {"command": f"echo b > {_TRIGGER}"}

    def _await_silence(self, host: InventoryHost, began: float) -> None:
        """Wait until the host stops answering, and until its status command, if any, reports off."""
        deadline = began + _SILENCE_DEADLINE_S * self._scale
        while True:
            silent = not self._accesses[host.node].is_reachable()
            if silent and (host.power_status is None or not is_on(host, host.power_status)):
                return
            if time.monotonic() > deadline:
                state = "it still answers" if not silent else "brownout_power_status still says on"
                raise WorldError(f"{host.title}: its power was cut, and {state} after {deadline - began:g} s")
            time.sleep(0.05)

    def _restore_one(self, name: str, start: threading.Barrier) -> dict[str, Any]:
        host, reach = self._inventory[name], self._hosts[name]
        start.wait()
        began = time.monotonic()
        output = {} if host.power_on is None else run_command(host, "brownout_power_on", host.power_on)
        deadline = began + _BOOT_DEADLINE_S * self._scale
        while True:
            if self._accesses[name].is_reachable():
                with contextlib.suppress(HostError):
                    reach.connect()
                    break
            if time.monotonic() > deadline:
                raise WorldError(
                    f"{host.title}: it has power again, but is not reachable by SSH after {deadline - began:g} s; "
                    "see its console"
                )
            time.sleep(0.2)
        return {**output, "reachable_after_ms": round((time.monotonic() - began) * 1e3)}


def run_command(host: InventoryHost, variable: str, command: str) -> dict[str, Any]:
    """Run a command of the inventory on this machine; returns its relevant output. Raises `WorldError` if it fails."""
    done = _shell(host, variable, command)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-300:]
        raise WorldError(f"{host.title}: {variable} ended with exit code {done.returncode}: {command}: {output}")
    return {"command": command}


def is_on(host: InventoryHost, command: str) -> bool:
    """The state by `brownout_power_status`: the last word of its output that means on or off; without output, its exit
    code. Raises `WorldError` if that is neither."""
    done = _shell(host, "brownout_power_status", command)
    states = re.findall(r"[a-z]+", done.stdout.lower())
    for state in reversed(states):
        if state in _ON or state in _OFF:
            return state in _ON
    if not states and done.returncode in (0, 1):
        return done.returncode == 0
    raise WorldError(
        f"{host.title}: brownout_power_status says neither on nor off (exit code {done.returncode}): "
        f"{(done.stdout + done.stderr).strip()[-300:]!r}"
    )


def _shell(host: InventoryHost, variable: str, command: str) -> subprocess.CompletedProcess[str]:
    try:
        return run_program(["sh", "-c", command], timeout=COMMAND_DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise WorldError(f"{host.title}: {variable} did not end within {COMMAND_DEADLINE_S:g} s: {command}") from None
    except OSError as error:
        raise WorldError(f"{host.title}: {variable}: sh cannot be run: {error.strerror}") from error
