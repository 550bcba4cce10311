"""One node's simulated hardware: can be booted, cut from power, and booted again.

Finds data that is only in memory, and lets a power cut write part of it to the disk.

A kernel writes pages back in any order. Writing a random subset back just before the cut, with or without the metadata
that makes them part of a file, leaves the same as real disks: clean prefixes, holes of zeros, torn records.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import socket
import stat
import subprocess
import time
import uuid
from collections.abc import Iterator
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

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Torn:
    """What was done before the cut. `dropped`: None if the kernel cannot report it (before Linux 6.5)."""

    written_back: int
    dropped: int | None
    journal_flushed: bool


def tear(root: Path, rng: Random | None) -> Torn:
    """Write back a random part of the dirty pages below `root` (none without `rng`), and count the rest."""
    written = left = 0
    try:
        for descriptor, size in _files(root):
            pages = list(dirty_pages(descriptor, size))
            chosen = _choose(pages, rng) if rng is not None else []
            for page in chosen:
                syscalls.write_back(descriptor, page * PAGE, PAGE)
            written += len(chosen)
            left += syscalls.dirty_pages(descriptor, 0, _whole(size)) if chosen else len(pages)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return Torn(0, None, False)
    # Written pages belong to a file only if the journal, with its length and extents, is written, too.
    return Torn(written, left, rng is not None and rng.random() < 2 / 3)


def dirty_pages(descriptor: int, size: int) -> Iterator[int]:
    """The numbers of a file's dirty pages, found by bisection. Raises `OSError` (ENOSYS before Linux 6.5)."""
    pending = [(0, _whole(size) // PAGE)]
    while pending:
        first, count = pending.pop()
        dirty = syscalls.dirty_pages(descriptor, first * PAGE, count * PAGE) if count else 0
        if dirty == count:
            yield from range(first, first + count)
        elif dirty:
            half = count // 2
            pending += [(first + half, count - half), (first, half)]


def _whole(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _choose(pages: list[int], rng: Random) -> list[int]:
    """None, few, half or all: different cases break logs."""
    count = rng.choice((0, 1, 2, len(pages) // 2, len(pages)))
    return sorted(rng.sample(pages, min(count, len(pages))))


def _files(root: Path) -> Iterator[tuple[int, int]]:
    """Every regular file on the filesystem of `root`, open, with its size, in the order of their paths; a file with
    several names once. Links, pipes, sockets and devices have no pages here. Files may disappear meanwhile."""
    top, seen = os.stat(root), set[int]()
    for _, names, files, directory in os.fwalk(root):
        names[:] = [name for name in sorted(names) if _is_on(top.st_dev, name, directory)]
        for name in sorted(files):
            with contextlib.suppress(FileNotFoundError, _OtherKindError):
                descriptor = _open_regular(name, directory)
                try:
                    status = os.fstat(descriptor)
                    if status.st_dev == top.st_dev and status.st_ino not in seen:
                        seen.add(status.st_ino)
                        yield descriptor, status.st_size
                finally:
                    os.close(descriptor)


class _OtherKindError(Exception):
    """The name belongs to something else than a regular file."""


def _open_regular(name: str, directory: int) -> int:
    """Open a regular file of a directory. The kind is read before the opening, because a pipe would block
    and a device may react, and after it, because the name may belong to another file by then."""
    if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        raise _OtherKindError
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOATIME | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a socket, since a moment ago
            raise _OtherKindError from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _OtherKindError
    return descriptor


def _is_on(device: int, name: str, directory: int) -> bool:
    """Whether a directory belongs to this filesystem: another one that is mounted in it is not cut."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_dev == device
    return False


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
