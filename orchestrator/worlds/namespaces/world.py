"""The namespaces world: real processes, sockets, kernel and filesystems on one machine; starts in 0.3 s.

The power switch of the namespaces world.

The order makes it a power cut: first the network of all cut nodes is disconnected, then some dirty pages may reach the
disks, then the filesystems stop, then the processes are killed, and only then is anything taken down.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

from nemeses import HostError, Network, PowerSwitch, Site, injectable
from nemeses.scheduling import for_each, results_by_name
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.errors import WorldError
from orchestrator.machine import cgroups
from orchestrator.machine.locks import RunLock
from orchestrator.machine.sandbox import PRIVATE_ROOT, current_sandbox
from orchestrator.machine.ssh import ScriptUnit, SshHost
from orchestrator.world_kinds import WORLDS
from orchestrator.worlds.base import Node, Progress, WorldSpec, no_progress
from orchestrator.worlds.namespaces import disks
from orchestrator.worlds.namespaces.machine import Machine
from orchestrator.worlds.namespaces.network import MAX_NODES, BridgeNetwork, node_address
from orchestrator.worlds.namespaces.root_filesystem import Bind, choose_root
from orchestrator.worlds.node_collection import EARLIER, copy_data, copy_records, keep_configuration
from orchestrator.worlds.services import ServicesOnHosts
from orchestrator.worlds.shared_directory import make_shared


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
        own = etc / "brownout"
        own.mkdir(exist_ok=True)
        _make_key(own / "host_key", node.name)
        (own / "sshd_config").write_text(_SSHD_CONFIG.format(address=node.address), encoding="utf-8")
        (own / "authorized_keys").write_text(
            self.key_file.with_suffix(".pub").read_text(encoding="utf-8"), encoding="utf-8"
        )
        (etc / "hostname").write_text(f"{node.name}\n", encoding="utf-8")
        (etc / "hosts").write_text(hosts, encoding="utf-8")
        shadow = etc / "shadow"
        shadow.touch(mode=0o600)
        shadow.write_text(_SHADOW, encoding="utf-8")

    def trust(self, nodes: Iterable[tuple[Node, Path]]) -> None:
        """Write the host keys of all nodes, and an `ssh -F` configuration for logins by hand."""
        known, config = [], []
        for node, etc in nodes:
            kind, key = (etc / "brownout" / "host_key.pub").read_text(encoding="utf-8").split()[:2]
            known.append(f"{node.address} {kind} {key}\n")
            config.append(
                f"Host {node.name}\n  HostName {node.address}\n  User root\n  IdentityFile {self.key_file}\n"
                f"  UserKnownHostsFile {self.known_hosts}\n"
            )
        self.known_hosts.write_text("".join(known), encoding="utf-8")
        (self.directory / "config").write_text("".join(config), encoding="utf-8")


def hosts_file(nodes: Iterable[Node]) -> str:
    return "127.0.0.1 localhost\n" + "".join(f"{node.address} {node.name}\n" for node in nodes)


def _make_key(path: Path, comment: str) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    try:
        made = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise WorldError(f"ssh-keygen cannot be run: {error.strerror}; install openssh-client") from error
    if made.returncode:
        raise WorldError(f"ssh-keygen: {made.stderr.strip()}")


_ETC = "/etc/brownout"
_VAR = "/var/brownout"
_SHARED = "/brownout-shared"


class NamespaceWorld(ServicesOnHosts):
    """Nodes as namespaces. Needs a sandbox (`sandbox.enter_sandbox`) with one world at a time."""

    name = "namespaces"
    capabilities: frozenset[str] = injectable(("power", "network", "store", "mounts"))
    needs_sandbox = True
    time_scale = 1.0

    def __init__(self, spec: WorldSpec) -> None:
        if spec.filesystem not in disks.FILESYSTEMS:
            raise WorldError(f"filesystem {spec.filesystem!r} is not one of: {', '.join(disks.FILESYSTEMS)}")
        if not 1 <= spec.node_count <= MAX_NODES:
            raise WorldError(f"{spec.node_count} nodes: the namespace world takes 1 to {MAX_NODES}")
        self.limits = list(WORLDS[self.name].limits)
        self._spec = spec
        self._root = choose_root(spec.rootfs)
        self._nodes = [self._node(number) for number in range(1, spec.node_count + 1)]
        self._by_name = {node.name: node for node in self._nodes}
        self._scratch = PRIVATE_ROOT / spec.run_id
        self._access = Access(self._scratch / "ssh")
        self._hosts: dict[str, SshHost] = {node.name: self._host(node) for node in self._nodes}
        self._network = BridgeNetwork(self._nodes)
        self._machines: dict[str, Machine] = {}
        self._power = NamespacePower(self._machines, self._forget, self._greet)
        self._group: cgroups.Cgroup | None = None
        self._oom_kills = 0
        self._lock = RunLock(spec.run_dir)

    @property
    def power(self) -> PowerSwitch:
        return self._power

    @property
    def network(self) -> Network:
        return self._network

    @property
    def site(self) -> Site:
        return self.site_of(self._power, self._network)

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
            clean_up(self._group.remove, self._network.remove)
            self._group = None

    def dump(self, node: Node) -> bool:
        try:
            directory, patterns = self.deployment.collected
            copy_data(self._machines[node.name].data / directory, patterns, node.record_dir, EARLIER)
        except OSError as error:
            raise WorldError(f"{node.name}: its files cannot be read: {error}") from error
        return True

    def kernel_words(self, name: str, pid: int) -> str:
        """The kernel's log has other pids than the node, so only the counts of its control groups are available."""
        del name, pid
        count = 0 if self._group is None else self._group.oom_kills()
        fresh, self._oom_kills = count - self._oom_kills, count
        return f"oom_kill in memory.events rose by {fresh}" if fresh > 0 else ""

    def collect(self, node: Node, destination: Path) -> None:
        """Reads the node's disk directly, through the mount of its first process; the node must be on."""
        try:
            directory, patterns = self.deployment.collected
            copy_data(self._machines[node.name].data / directory, patterns, destination)
            copy_records(node.record_dir, destination)
        except OSError as error:
            raise WorldError(f"{node.name}: its logs cannot be collected: {error}") from error

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
        self._network.build()
        group.create()
        backing = self._disk_directory()
        shared = make_shared(self._spec.run_dir, [self.service(node) for node in self._nodes], _SHARED)
        for node in self._nodes:
            node.record_dir.mkdir(parents=True, exist_ok=True)
            disk = disks.DataDisk(
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

    def _forget(self, name: str) -> None:
        self._hosts[name].disconnect()

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
