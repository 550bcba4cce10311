"""One virtual machine: its process, its disks, its clock, and the SSH connection to it."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import time
from pathlib import Path

from nemeses.ports import HostError, HostUnreachableError
from orchestrator.errors import WorldError
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.services import end_of_log
from orchestrator.worlds.vagrant.disks import MachineDisks
from orchestrator.worlds.vagrant.hypervisor import Hypervisor

BOOT_DEADLINE_S = 45.0
RESTORE_DEADLINE_S = 20.0
"""Both are multiplied by the lab's time scale."""

CLOCK_TOLERANCE_S = 0.1
_CLOCK_TRIES = 3
_LOOKS = 4
_LOOK_S = 0.1
_CONNECT_S = 0.5
# Polling too often makes an emulated machine start further SSH servers, which slows all of them down.
_GREETING_S = 10.0
_SECOND_CONNECTION_S = 5.0
_DEATH_DEADLINE_S = 10.0
_LAST_LINES = 8
# QEMU stops a machine when its writes find no space, instead of failing the disk.
_IO_ERROR = "paused (I/O error)"
# The kernel prints its name before anything else.
_SILENCE = (
    "its console printed nothing, so its processor did not reach the kernel's first line: the hypervisor "
    "does not run it, or this machine is overloaded (BROWNOUT_DRIVER=qemu runs without KVM)"
)
_PID_FILES = Path("/run/libvirt/qemu")


class BootError(WorldError):
    """Machines do not boot; the message names one, with the end of its console output."""


class VirtualMachine:
    """A machine made by `vagrant up`. `directory` has its disks and its console's output."""

    def __init__(self, host: SshHost, control_address: str, hypervisor: Hypervisor, directory: Path) -> None:
        self.host = host
        self.name = host.name
        self.domain = f"brownout_{host.name}"
        self.disks = MachineDisks(directory, hypervisor.pool / f"{self.domain}.img")
        self.console = directory / "console.log"
        self._all_consoles = directory / "consoles.log"
        self._control_address = control_address
        self._hypervisor = hypervisor
        host.condition = self.condition

    def pid(self) -> int | None:
        """Its QEMU process; None while the machine is off."""
        try:
            pid = int((_PID_FILES / f"{self.domain}.pid").read_text(encoding="utf-8"))
            # libvirt removes the file some time after the process has ended.
            named = f"guest={self.domain},".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if named else None

    def kill(self) -> None:
        """Kill it at once, without syncing its disks."""
        kill_all([self])

    def lose_connection(self) -> None:
        self.host.disconnect()

    def save(self) -> None:
        """Save memory and disks for `restore`. The machine is off afterwards. Raises `WorldError`."""
        # Otherwise installed files would be in its memory only, and the first power cut after a restore would lose
        # them.
        done = self.host.run("sync")
        if not done.ok:
            raise WorldError(f"{self.name}: its disks cannot be synced: {done.stderr.strip()}")
        self.lose_connection()
        self._hypervisor.virsh("save", self.domain, str(self.disks.memory), "--running")
        self.disks.save()

    def restore(self) -> None:
        """Restore the saved state, whatever the current state; it then runs and is reachable. Raises `WorldError`."""
        self.kill()
        self._wait_until_off()
        self.disks.restore()
        self._hypervisor.virsh("restore", str(self.disks.memory), "--running")

    def start(self) -> None:
        """Power on: boot from its disks. Raises `WorldError`."""
        self._wait_until_off()
        self.disks.resume()
        self._keep_console()
        self._hypervisor.virsh("start", self.domain)

    def wait_until_ready(self, deadline_s: float, *, was_up: bool = False) -> float:
        """Wait for its SSH server, connect, and set its clock by this machine's; returns by how many seconds it was
        ahead. Raises `BootError`, and `WorldError` for a clock that cannot be set.

        With `was_up` its SSH server runs already: waiting for its banner would cost half a second. A busy machine drops
        connections, above all the first ones: they are retried."""
        give_up = time.monotonic() + deadline_s
        greeted = was_up
        while True:
            if greeted or self._greets():
                try:
                    self.host.connect()
                    return self._set_clock()
                except WorldError:
                    raise
                except HostError as error:
                    reason, greeted = str(error), False
            else:
                reason = "its SSH server does not answer"
            if self.pid() is None:
                raise BootError(f"{self.name}: the virtual machine ended while it booted; {self.last_words()}")
            if time.monotonic() > give_up:
                raise BootError(
                    f"{self.name}: not reachable {deadline_s:g} s after its start: {reason}; {self.last_words()}"
                )
            time.sleep(_LOOK_S)

    def _set_clock(self) -> float:
        """The number of seconds by which its clock is ahead; sets the clock unless it is right. Raises `WorldError`,
        `HostError`.

        A booted machine is about a second behind, a restored one as far as its save is in the past."""
        first = ahead = self._clock_ahead()
        for _ in range(_CLOCK_TRIES):
            if abs(ahead) <= CLOCK_TOLERANCE_S:
                return first
            # Shifted, not set to a time: a command takes long to start in an emulated machine.
            now = f"time.clock_gettime(time.CLOCK_REALTIME) - {ahead!r}"
            done = self.host.run(f"python3 -I -S -c 'import time; time.clock_settime(time.CLOCK_REALTIME, {now})'")
            if not done.ok:
                raise WorldError(f"{self.name}: its clock cannot be set: {done.stderr.strip()}")
            ahead = self._clock_ahead()
        raise WorldError(f"{self.name}: its clock is {ahead:+.3f} s from this machine's and does not keep the time set")

    def last_words(self) -> str:
        """The end of its console output, for a message."""
        with contextlib.suppress(OSError):
            if self.console.stat().st_size == 0:
                return _SILENCE
        words = " | ".join(end_of_log(self.console).splitlines()[-_LAST_LINES:])
        return f"the end of its console: {words}"

    def condition(self) -> str:
        """Why it is unreachable, as far as that is visible from outside; empty if nothing is visible."""
        pid = self.pid()
        if pid is None:
            return f"its virtual machine is off; the last line of QEMU's log: {self._hypervisor.said_of(self.domain)}"
        if process_state(pid) in "Tt":
            return "its virtual machine is stalled"
        try:
            state = self._hypervisor.virsh("domstate", "--reason", self.domain).strip()
        except WorldError as error:
            return str(error)
        if state == _IO_ERROR:
            free = shutil.disk_usage(self.disks.directory).free
            full = f"{self.disks.directory.resolve()} has {free >> 20} MB left"
            return f"its virtual machine is stopped, because its disk cannot be written ({full})"
        return "" if state.startswith("running") else f"its virtual machine is {state}"

    def write_console(self, destination: Path) -> None:
        """Write its console output since the lab was opened, of all boots. Raises `OSError`."""
        with destination.open("wb") as target:
            for part in (self._all_consoles, self.console):
                if part.exists():
                    with part.open("rb") as source:
                        shutil.copyfileobj(source, target)

    def _keep_console(self) -> None:
        """QEMU truncates the console's file at each start."""
        if self.console.exists():
            with self._all_consoles.open("ab") as kept, self.console.open("rb") as source:
                shutil.copyfileobj(source, kept)
            self.console.write_bytes(b"")

    def _wait_until_off(self) -> None:
        """Wait until libvirt has noticed the end of the process."""
        give_up = time.monotonic() + _DEATH_DEADLINE_S
        while (state := self._hypervisor.virsh("domstate", self.domain).strip()) != "shut off":
            if time.monotonic() > give_up:
                raise WorldError(f"{self.name}: still {state!r} {_DEATH_DEADLINE_S:g} s after it was killed")
            time.sleep(0.02)

    def _greets(self) -> bool:
        try:
            with socket.create_connection((self._control_address, self.host.probe_port), _CONNECT_S) as channel:
                channel.settimeout(_GREETING_S)
                return channel.recv(4) == b"SSH-"
        except OSError:
            return False

    def _clock_ahead(self) -> float:
        """Measured several times by its shell: each answer is late by its transmission, so the fastest is used."""
        looks: list[float] = []

        def heard(line: bytes) -> None:
            looks.append(float(line) - time.time())
            if len(looks) == _LOOKS:
                following.close()

        looking = f"for i in {'. ' * _LOOKS}; do bash -c 'echo $EPOCHREALTIME'; done"
        following = self.host.follow(looking, heard, connect_timeout_s=_SECOND_CONNECTION_S)
        try:
            following.wait()
        finally:
            following.close()
        if not looks:
            raise HostUnreachableError(f"{self.name}: its clock cannot be read: the connection was lost")
        return max(looks)


def process_state(pid: int) -> str:
    """The kernel's letter for a process's state: T when it is stopped; X when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def kill_all(machines: list[VirtualMachine]) -> None:
    """Kill all within microseconds, and wait until they have ended. Machines that are off stay off."""
    descriptors = []
    for machine in machines:
        pid = machine.pid()
        if pid is not None:
            try:
                descriptors.append(os.pidfd_open(pid))
            except ProcessLookupError:
                continue
    try:
        for descriptor in descriptors:
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for descriptor in descriptors:
            select.select([descriptor], [], [], _DEATH_DEADLINE_S)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
