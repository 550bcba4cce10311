"""One node's simulated hardware: can be booted, cut from power, and booted again."""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from orchestrator.cleanup import clean_up, described
from orchestrator.errors import WorldError
from orchestrator.machine import links, syscalls
from orchestrator.machine.cgroups import Cgroup
from orchestrator.machine.programs import program
from orchestrator.worlds.base import Node
from orchestrator.worlds.namespaces.disks import Attached, DataDisk, DataDiskError
from orchestrator.worlds.namespaces.network import BRIDGE, PREFIX_LENGTH, node_mac
from orchestrator.worlds.namespaces.root_filesystem import Bind, RootFilesystem
from orchestrator.worlds.namespaces.tearing import Torn, tear

_BOOT_DEADLINE_S = 30.0
_SSH_DEADLINE_S = 30.0
SSH_PORT = 22


@dataclass(frozen=True)
class Boot:
    """One boot: from power on to power off. The boot id is unique; the kernel reuses namespace numbers."""

    pid: int
    boot_id: str
    pid_namespace: int


class Machine:
    """A node's cable, disk and processes. `scratch` keeps its root filesystem's changes between boots; `binds` are
    shown in it in addition to those of every node on `root`."""

    def __init__(
        self, node: Node, group: Cgroup, disk: DataDisk, scratch: Path, root: RootFilesystem, *binds: Bind
    ) -> None:
        self.node = node
        self.link = f"veth-{node.name}"
        self.boot: Boot | None = None
        self._group = group
        self._disk = disk
        self._attached: Attached | None = None
        self._scratch = scratch
        self._root = root
        self._binds = (*root.binds, *binds)

    @property
    def etc(self) -> Path:
        """The files in the node's /etc that differ from the machine's."""
        return self._scratch / "upper" / "etc"

    @property
    def data(self) -> Path:
        """The node's data directory, seen from the sandbox while the node is on."""
        if self.boot is None:
            raise WorldError(f"{self.node.name} is off; restore its power first")
        return Path(f"/proc/{self.boot.pid}/root{self.node.data_dir}")

    def create(self) -> None:
        """Make everything that outlives a boot. Raises `WorldError`."""
        for name in ("root", "upper/etc", "work"):
            (self._scratch / name).mkdir(parents=True, exist_ok=True)
        self._group.create()
        try:
            self._disk.create()
        except (OSError, DataDiskError) as error:
            raise WorldError(f"{self.node.name}: its disk cannot be made: {error}") from error

    def power_on(self) -> Boot:
        """Boot and wait until sshd answers. Raises `WorldError`; the machine is then off."""
        boot_id = str(uuid.uuid4())
        try:
            if self._attached is not None:
                self.halt()  # the last one did not end: its disk must not be attached twice
            self._attached = self._disk.attach()
            pid = self._launch(boot_id, self._attached.device)
            namespace = os.stat(f"/proc/{pid}/ns/pid").st_ino
            self._attached.release()
            _await_banner(self.node)
        except (OSError, DataDiskError, WorldError, subprocess.TimeoutExpired) as error:
            clean_up(self.halt, cause=error)
            raise WorldError(f"{self.node.name} does not boot: {described(error)}") from error
        self.boot = Boot(pid, boot_id, namespace)
        return self.boot

    def unplug(self) -> None:
        """Start of a power cut: from now on no other node sees anything from this one."""
        links.set_down(self.link)
        self._group.freeze(True)

    def plug_in(self) -> None:
        """Take `unplug` back: the machine continues as if nothing had happened. Raises `OSError`."""
        clean_up(lambda: links.set_up(self.link), self._thaw)

    def lose_power(self, rng: Random | None) -> Torn:
        """The rest of a power cut: unsynced data is lost. `rng` chooses what is still written back; None: nothing.

        Raises `OSError` and `WorldError`. If the filesystem cannot be shut down, nothing is lost, and the machine
        continues. After every other error the power is off, also if the data could not be torn."""
        torn, problem = Torn(0, None, False), None
        mount = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                torn = tear(self.data, rng)
            except OSError as error:
                problem = error
            how = syscalls.SHUTDOWN_AFTER_LOG_FLUSH if torn.journal_flushed else syscalls.SHUTDOWN_AT_ONCE
            syscalls.shut_filesystem_down(mount, how)
        except OSError as error:
            clean_up(self.plug_in, cause=error)
            raise
        finally:
            os.close(mount)
        self.halt()
        if problem is not None:
            raise problem
        return torn

    def discard(self) -> None:
        """End the machine: its data is not needed any more, so it is not written back."""
        if self.boot is not None:
            try:
                mount = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                syscalls.shut_filesystem_down(mount, syscalls.SHUTDOWN_AT_ONCE)
                os.close(mount)
            except OSError:
                pass  # then writing it back only takes longer
        clean_up(self.halt, self._disk.close, self._group.remove)

    def halt(self) -> None:
        """Kill every process, and wait until filesystem, loop device and cable are gone. Raises `WorldError`; the power
        is off all the same."""
        try:
            clean_up(
                self._group.kill,
                self._thaw,
                # Explicitly: the kernel removes the namespace asynchronously, and its name is needed again.
                lambda: links.delete(self.link),
                self._await_detached,
            )
        except (OSError, DataDiskError) as error:
            raise WorldError(f"{self.node.name}: {error}") from error
        finally:
            self.boot = None

    def _thaw(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # the group was not made yet
            self._group.freeze(False)

    def _await_detached(self) -> None:
        if self._attached is not None:
            self._attached.wait_detached()
            self._attached = None

    def _launch(self, boot_id: str, device: str) -> int:
        started = subprocess.run(
            program("orchestrator.worlds.namespaces.node_init"),
            input=marshal.dumps(self._boot_plan(boot_id, device)),
            capture_output=True,
            timeout=_BOOT_DEADLINE_S,
            check=False,
        )
        verdict, _, rest = started.stdout.decode().strip().partition(" ")
        if verdict != "ok":
            raise WorldError(
                rest or started.stderr.decode().strip() or f"its first process ended with {started.returncode}"
            )
        return int(rest)

    def _boot_plan(self, boot_id: str, device: str) -> dict[str, Any]:
        return {
            "hostname": self.node.name,
            "boot_id": boot_id,
            "cgroup": str(self._group.path),
            "mac": node_mac(self.node.id),
            "link": self.link,
            "address": self.node.address,
            "prefix_length": PREFIX_LENGTH,
            "bridge": BRIDGE,
            "lower": str(self._root.lower),
            "root": str(self._scratch / "root"),
            "upper": str(self._scratch / "upper"),
            "work": str(self._scratch / "work"),
            "device": device,
            "filesystem": self._disk.filesystem,
            "data_dir": self.node.data_dir,
            "binds": [[bind.source, bind.target, bind.read_only] for bind in self._binds],
            "console": f"{Path(self.node.service_log).parent}/console.log",
            "start": [self._root.sshd, "-D", "-e", "-f", "/etc/brownout/sshd_config"],
        }


def _await_banner(node: Node) -> None:
    """Wait until the node's sshd sends its banner. Raises `WorldError`."""
    deadline = time.monotonic() + _SSH_DEADLINE_S
    while True:
        try:
            # Short: TCP repeats a lost SYN only after a second; a new connection sends one immediately.
            with socket.create_connection((node.address, SSH_PORT), timeout=0.03) as channel:
                channel.settimeout(1.0)
                if channel.recv(4) == b"SSH-":
                    return
        except OSError as error:
            if time.monotonic() > deadline:
                raise WorldError(
                    f"sshd does not answer at {node.address}:{SSH_PORT} ({error}); see {node.record_dir}/console.log"
                ) from error
        time.sleep(0.002)
