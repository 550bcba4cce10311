"""The namespaces world: real processes, sockets, kernel and filesystems on one machine. Nothing outlives a run.

The order of the power switch makes it a power cut: first the network of all cut nodes is disconnected, then some dirty
pages may reach the disks, then the filesystems stop, then the processes are killed, and only then is anything taken
down.

A machine is one node's simulated hardware: can be booted, cut from power, and booted again. A power cut finds data that
is only in memory, and may write part of it to the disk. A kernel writes pages back in any order. Writing a random
subset back just before the cut, with or without the metadata that makes them part of a file, leaves the same as real
disks: clean prefixes, holes of zeros, torn records.
"""

import contextlib
import errno
import importlib
import marshal
import os
import shutil
import socket
import stat
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, Final

from installation.programs import run_program
from nemeses import HostError, injectable
from nemeses.scheduling import for_each, results_by_name
from orchestrator.cleanup import clean_up, described, on_failure
from orchestrator.errors import WorldError
from orchestrator.machine import cgroups, links, syscalls
from orchestrator.machine.cgroups import Cgroup
from orchestrator.machine.pair_filter import PairFilter
from orchestrator.machine.programs import program
from orchestrator.machine.requirement import Requirement
from orchestrator.machine.sandbox import PRIVATE_ROOT, current_sandbox
from orchestrator.machine.ssh import ScriptUnit, SshHost
from orchestrator.worlds.base import Node, Progress, World, WorldSpec, make_shared, no_progress
from orchestrator.worlds.lab import PerRunLab
from orchestrator.worlds.namespaces import filesystems, requirements
from orchestrator.worlds.namespaces.filesystems import (
    Attached,
    Bind,
    DataDisk,
    DataDiskError,
    RootFilesystem,
    choose_root,
)
from orchestrator.worlds.node_collection import keep_configuration

# ---- The network of a sandbox: a bridge, a cable per node, and a filter between them.

BRIDGE = "br0"
GATEWAY = "10.77.0.1"
PREFIX_LENGTH = 24
MAX_NODES = 200
_BRIDGE_MAC = "02:62:6f:00:01:00"


def node_address(number: int) -> str:
    """The address of the node with this number (from 1), the same in every sandbox."""
    return f"10.77.0.{10 + number}"


def node_mac(number: int) -> str:
    """Fixed, so that neighbour caches stay valid when a node is rebooted."""
    return f"02:62:6f:00:00:{number:02x}"


class BridgeNetwork(PairFilter):
    """The cables between the nodes, and the cuts between them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__({node.name: node.address for node in nodes}, BRIDGE)
        self._nodes = nodes

    def build(self) -> None:
        """Make the bridge and the table. Raises `WorldError`."""
        try:
            links.disable_ipv6()
            links.ip_batch(
                [
                    # A fixed address: otherwise the bridge takes a port's address, which changes whenever a node is
                    # added or
                    # removed, and neighbour caches become wrong.
                    f"link add {BRIDGE} address {_BRIDGE_MAC} type bridge mcast_snooping 0",
                    f"addr add {GATEWAY}/{PREFIX_LENGTH} dev {BRIDGE}",
                    f"link set {BRIDGE} up",
                    # Address resolution on a cable that is not up yet takes a second: avoid it.
                    *(
                        f"neigh replace {node.address} lladdr {node_mac(node.id)} dev {BRIDGE} nud permanent"
                        for node in self._nodes
                    ),
                ]
            )
        except OSError as error:
            raise WorldError(f"the bridge between the nodes cannot be made: {error}") from error
        self.install()

    def remove(self) -> None:
        """Remove bridge and table; no error if they do not exist."""
        links.delete(BRIDGE)
        self.uninstall()


# ---- The nodes of a run, which start in 0.3 s.

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Torn:
    """What was done before the cut. `dropped`: None if the kernel cannot report it (before Linux 6.5)."""

    written_back: int
    dropped: int | None
    journal_flushed: bool


def tear(root: Path, rng: Random | None) -> Torn:
    """Write back a random part of the dirty pages below `root` (none without `rng`), and count the rest."""
    written = remaining = 0
    try:
        for descriptor, size in _files(root):
            pages = list(dirty_pages(descriptor, size))
            chosen = _choose(pages, rng) if rng is not None else []
            for page in chosen:
                syscalls.write_back(descriptor, page * PAGE, PAGE)
            written += len(chosen)
            remaining += syscalls.dirty_pages(descriptor, 0, _whole(size)) if chosen else len(pages)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return Torn(0, None, False)
    # Written pages belong to a file only if the journal, with its length and extents, is written, too.
    return Torn(written, remaining, rng is not None and rng.random() < 2 / 3)


def dirty_pages(descriptor: int, size: int) -> Iterator[int]:
    """The numbers of a file's dirty pages, found by bisection. Raises `OSError` (ENOSYS before Linux 6.5)."""
    pending = [(0, _whole(size) // PAGE)]
    while pending:
        start, count = pending.pop()
        dirty = syscalls.dirty_pages(descriptor, start * PAGE, count * PAGE) if count else 0
        if dirty == count:
            yield from range(start, start + count)
        elif dirty:
            half = count // 2
            pending += [(start + half, count - half), (start, half)]


def _whole(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _choose(pages: list[int], rng: Random) -> list[int]:
    """None, few, half or all: different cases break logs."""
    count = rng.choice((0, 1, 2, len(pages) // 2, len(pages)))
    return sorted(rng.sample(pages, min(count, len(pages))))


def _files(root: Path) -> Iterator[tuple[int, int]]:
    """Every regular file on the filesystem of `root`, open, with its size, in the order of their paths; a file with
    several names once. Links, pipes, sockets and devices have no pages here. Files may disappear meanwhile."""
    top, inodes = os.stat(root), set[int]()
    for _, names, files, directory in os.fwalk(root):
        names[:] = [name for name in sorted(names) if _is_on(top.st_dev, name, directory)]
        for name in sorted(files):
            with contextlib.suppress(FileNotFoundError, _OtherKindError):
                descriptor = _open_regular(name, directory)
                try:
                    status = os.fstat(descriptor)
                    if status.st_dev == top.st_dev and status.st_ino not in inodes:
                        inodes.add(status.st_ino)
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
            way = syscalls.SHUTDOWN_AFTER_LOG_FLUSH if torn.journal_flushed else syscalls.SHUTDOWN_AT_ONCE
            syscalls.shut_filesystem_down(mount, way)
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
        verdict, _, answer = started.stdout.decode().strip().partition(" ")
        if verdict != "ok":
            raise WorldError(
                answer or started.stderr.decode().strip() or f"its first process ended with {started.returncode}"
            )
        return int(answer)

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


@dataclass(eq=False)
class NamespacePower:
    """Cuts and restores the power of machines; `on_cut` and `on_boot` get each name afterwards."""

    _machines: Mapping[str, Machine]
    _on_cut: Callable[[str], None]
    _on_boot: Callable[[str], None]

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
        previous_boot = machine.boot
        assert previous_boot is not None, "only machines that are on are cut"
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
            "boot_id": previous_boot.boot_id,
            "pid_namespace": previous_boot.pid_namespace,
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


# ---- Access to nodes: keys, sshd's configuration, and the files in /etc that differ between nodes.

_SSHD_CONFIG = """\
Port 22
ListenAddress {address}
HostKey /etc/brownout/host_key
AuthorizedKeysFile /etc/brownout/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PidFile none
PrintMotd no
MaxStartups 200:30:400
MaxSessions 200
Subsystem sftp internal-sftp
"""
# `*` allows no password; `!`, which some images have, would also lock out keys.
_SHADOW = "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n"


class Access:
    """The keys of one run, in a directory that only this sandbox sees."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key_file = directory / "id_ed25519"
        self.known_hosts = directory / "known_hosts"

    def create(self) -> None:
        """Make the key for all nodes. Raises `WorldError`."""
        self.directory.mkdir(parents=True, mode=0o700)
        _make_key(self.key_file, "brownout")

    def write_files(self, node: Node, etc: Path, hosts: str) -> None:
        """Write a node's own files into its /etc. Raises `WorldError`."""
        directory = etc / "brownout"
        directory.mkdir(exist_ok=True)
        _make_key(directory / "host_key", node.name)
        (directory / "sshd_config").write_text(_SSHD_CONFIG.format(address=node.address), encoding="utf-8")
        (directory / "authorized_keys").write_text(
            self.key_file.with_suffix(".pub").read_text(encoding="utf-8"), encoding="utf-8"
        )
        (etc / "hostname").write_text(f"{node.name}\n", encoding="utf-8")
        (etc / "hosts").write_text(hosts, encoding="utf-8")
        shadow = etc / "shadow"
        shadow.touch(mode=0o600)
        shadow.write_text(_SHADOW, encoding="utf-8")

    def trust(self, nodes: Iterable[tuple[Node, Path]]) -> None:
        """Write the host keys of all nodes, and an `ssh -F` configuration for logins by hand."""
        host_keys, config = [], []
        for node, etc in nodes:
            kind, key = (etc / "brownout" / "host_key.pub").read_text(encoding="utf-8").split()[:2]
            host_keys.append(f"{node.address} {kind} {key}\n")
            config.append(
                f"Host {node.name}\n  HostName {node.address}\n  User root\n  IdentityFile {self.key_file}\n"
                f"  UserKnownHostsFile {self.known_hosts}\n"
            )
        self.known_hosts.write_text("".join(host_keys), encoding="utf-8")
        (self.directory / "config").write_text("".join(config), encoding="utf-8")


def hosts_file(nodes: Iterable[Node]) -> str:
    return "127.0.0.1 localhost\n" + "".join(f"{node.address} {node.name}\n" for node in nodes)


def _make_key(path: Path, comment: str) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    try:
        keygen = run_program(command)
    except OSError as error:
        raise WorldError(f"ssh-keygen cannot be run: {error.strerror}; install openssh-client") from error
    if keygen.returncode:
        raise WorldError(f"ssh-keygen: {keygen.stderr.strip()}")


_ETC = "/etc/brownout"
_VAR = "/var/brownout"
_SHARED = "/brownout-shared"


class NamespaceWorld(World):
    """Nodes as namespaces. Needs a sandbox (`sandbox.enter_sandbox`) with one world at a time."""

    name = "namespaces"
    capabilities: frozenset[str] = injectable(("power", "network", "store", "mounts"))
    needs_sandbox = True
    power: NamespacePower
    network: BridgeNetwork

    def __init__(self, spec: WorldSpec) -> None:
        if spec.filesystem not in filesystems.FILESYSTEMS:
            raise WorldError(f"filesystem {spec.filesystem!r} is not one of: {', '.join(filesystems.FILESYSTEMS)}")
        if not 1 <= spec.node_count <= MAX_NODES:
            raise WorldError(f"{spec.node_count} nodes: the namespace world takes 1 to {MAX_NODES}")
        super().__init__(spec)
        self._root = choose_root(spec.rootfs)
        self._nodes = [self._node(number) for number in range(1, spec.node_count + 1)]
        self._by_name = {node.name: node for node in self._nodes}
        self._scratch = PRIVATE_ROOT / spec.run_id
        self._access = Access(self._scratch / "ssh")
        self._hosts: dict[str, SshHost] = {node.name: self._host(node) for node in self._nodes}
        self.network = BridgeNetwork(self._nodes)
        self._machines: dict[str, Machine] = {}
        self.power = NamespacePower(self._machines, lambda name: self._hosts[name].disconnect(), self._greet)
        self._group: cgroups.Cgroup | None = None
        self._oom_kills = 0

    def up(self, on_progress: Progress = no_progress) -> None:
        sandbox = current_sandbox()
        if sandbox is None:
            raise WorldError("the namespace world needs a sandbox; start the command through `enter_sandbox`")
        self._lock.take()
        # Importing the SSH library takes longer than booting a node, so it is imported concurrently.
        threading.Thread(target=_import_fabric, name="import-fabric", daemon=True).start()
        self._group = cgroups.sandbox_group(sandbox).child(self._spec.run_id)
        with on_failure(self.down):
            try:
                self._build(self._group, on_progress)
                self._oom_kills = self._group.oom_kills()
            except OSError as error:
                raise WorldError(f"the namespace world cannot be made: {error}") from error

    def down(self) -> None:
        clean_up(
            *(host.disconnect for host in self._hosts.values()),
            lambda: for_each(self._machines.values(), Machine.discard),
            self._machines.clear,
            self._remove_surroundings,
            lambda: shutil.rmtree(self._scratch, ignore_errors=True),
            self._lock.release,
        )

    def _remove_surroundings(self) -> None:
        """Remove the group of all processes, and the network, if `up` has started to make them."""
        if self._group is not None:
            clean_up(self._group.remove, self.network.remove)
            self._group = None

    def kernel_words(self, name: str, pid: int) -> str:
        """The kernel's log has other pids than the node, so only the counts of its control groups are available."""
        del name, pid
        count = 0 if self._group is None else self._group.oom_kills()
        fresh, self._oom_kills = count - self._oom_kills, count
        return f"oom_kill in memory.events rose by {fresh}" if fresh > 0 else ""

    def data_of(self, node: Node) -> Path:
        """By way of the mount of the node's first process; the node must be on."""
        return self._machines[node.name].data

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """The command that opens a shell on a node, or runs a command there, from inside the sandbox."""
        return ["ssh", "-F", str(self._access.directory / "config"), name, *command]

    def _node(self, number: int) -> Node:
        name = f"n{number}"
        return Node(
            name=name,
            id=number,
            address=node_address(number),
            ports=self._spec.deployment.ports(number),
            data_dir="/data",
            etc_dir=_ETC,
            var_dir=_VAR,
            record_dir=self._spec.run_dir / "nodes" / name,
            files_dir=self._spec.deployment.files_dir,
            shared_dir=_SHARED,
            python=self._root.python,
            python_path=self._root.python_path,
        )

    def _host(self, node: Node) -> SshHost:
        service = self.service(node)
        unit = ScriptUnit(
            command=service.command,
            directory=node.data_dir,
            log=node.service_log,
            pid_file="/run/brownout/service.pid",
            environment=service.environment,
        )
        return SshHost(
            node.name,
            node.address,
            node.port,
            unit,
            data_dir=node.data_dir,
            key_file=self._access.key_file,
            known_hosts=self._access.known_hosts,
        )

    def _build(self, group: cgroups.Cgroup, on_progress: Progress) -> None:
        self._scratch.mkdir(parents=True)
        self._access.create()
        self.network.build()
        group.create()
        backing = self._disk_directory()
        shared = make_shared(self._spec.run_dir, [self.service(node) for node in self._nodes], _SHARED)
        for node in self._nodes:
            node.record_dir.mkdir(parents=True, exist_ok=True)
            disk = filesystems.DataDisk(
                f"{self._spec.run_id} {node.name}", backing, self._spec.disk_bytes, self._spec.filesystem
            )
            records = Bind(str(node.record_dir), _VAR, read_only=False)
            scratch = self._scratch / node.name
            shown = [Bind(path, path) for path in self.service(node).shows]
            shown += [] if shared is None else [Bind(str(shared), _SHARED, read_only=False)]
            self._machines[node.name] = Machine(
                node, group.child(node.name), disk, scratch, self._root, *shown, records
            )
        for_each(self._nodes, lambda node: self._prepare(node))
        self._access.trust((node, self._machines[node.name].etc) for node in self._nodes)
        for_each(self._nodes, lambda node: self._boot(node, on_progress))

    def _prepare(self, node: Node) -> None:
        machine = self._machines[node.name]
        machine.create()
        self._access.write_files(node, machine.etc, hosts_file(self._nodes))
        files = self.service(node).files
        for path, text in files.items():
            place = machine.etc / PurePosixPath(path).relative_to("/etc")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        keep_configuration(node.record_dir, node.etc_dir, files)

    def _boot(self, node: Node, on_progress: Progress) -> None:
        self._machines[node.name].power_on()
        on_progress(f"{node.name} is up at {node.address}")
        self._greet(node.name)

    def _disk_directory(self) -> Path:
        """The directory of the disks' files: in memory if twice their size is free, else in the run's directory.

        Power cuts happen in the filesystem on the disk, so what is below the disk only affects speed."""
        needed = 2 * self._spec.disk_bytes * self._spec.node_count
        return self._scratch if _available_memory() > needed else self._spec.run_dir

    def _greet(self, name: str) -> None:
        """Connect in the background, so that the first command after a boot does not wait for the handshake."""
        threading.Thread(target=_try_connect, args=(self._hosts[name],), name=f"connect-{name}", daemon=True).start()


def _available_memory() -> int:
    """Bytes that can be used without swapping."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def _import_fabric() -> None:
    with contextlib.suppress(ImportError):  # the first command imports it again and reports the error
        importlib.import_module("fabric")


def _try_connect(host: SshHost) -> None:
    with contextlib.suppress(HostError):  # the first command tries again and reports the error
        host.connect()


class NamespaceLab(PerRunLab):
    """Runs in the namespaces world."""

    kind = NamespaceWorld

    @classmethod
    def missing(cls, filesystem: str) -> list[Requirement]:
        return requirements.missing(filesystem)


LAB: Final = NamespaceLab
