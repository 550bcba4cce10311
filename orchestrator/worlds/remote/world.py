"""One run's world on existing machines: configures them, copies their services' output, collects their files.

Copies a node's trace and log line by line, while the service writes them.

A node keeps both in memory, so a power cut takes what was not copied by then, as on any machine. Nothing else is lost:
a broken connection is made again and continues at the same position.
"""

import contextlib
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from nemeses.mechanisms.service import kill_service
from nemeses.ports import HostError, Site
from nemeses.scheduling import for_each
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.errors import WorldError
from orchestrator.machine.ssh import FollowedOutput, SshHost, put_script
from orchestrator.worlds.base import Node, Progress, World, WorldSpec, no_progress
from orchestrator.worlds.node_collection import copy_records, keep_configuration
from orchestrator.worlds.remote import paths
from orchestrator.worlds.remote.machines import Machines
from systems.service import Service

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PAUSE_S = 0.2
_POLL_S = 0.02


class MirroredFile:
    """One file of one host, copied to `target` as it grows.

    `stamped`: the file has one JSON object per line; each gets `seen`, this machine's wall clock at arrival in
    nanoseconds."""

    def __init__(self, host: SshHost, path: str, target: Path, *, stamped: bool) -> None:
        self._host = host
        self._path = path
        self._target = target
        self._stamped = stamped
        self._boot: bytes | None = None
        self._position = 0
        self._following: FollowedOutput | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"mirror-{host.name}-{target.name}", daemon=True)

    def begin(self) -> None:
        self._target.touch()
        self._thread.start()

    def end(self) -> None:
        """Stop copying; what has arrived is written."""
        self._ending.set()
        following = self._following
        if following is not None:
            following.close()
        if self._thread.ident is not None:
            self._thread.join()

    def settle(self, timeout_s: float) -> str | None:
        """Wait until everything that the file contains now has arrived; returns the problem, if that takes too long.

        Raises `HostError` when the host does not answer."""
        done = self._host.run(f"cat {BOOT_ID}; stat -c %s {shlex.quote(self._path)} 2>/dev/null || echo 0")
        answer = done.stdout.split()
        if len(answer) != 2:  # a host that cannot start programs prints less
            raise HostError(f"{self._host.name}: its boot and {self._path} cannot be read: {done.stderr.strip()}")
        boot, size = answer
        give_up = time.monotonic() + timeout_s
        while (have := self._received(boot.encode())) < int(size):
            if time.monotonic() > give_up:
                return f"{self._host.name}: only {have} of {size} bytes of {self._path} came within {timeout_s:g} s"
            time.sleep(_POLL_S)
        return None

    def _received(self, boot: bytes) -> int:
        """The number of bytes of the file that have arrived, including an incomplete last line."""
        following = self._following
        if boot != self._boot:
            return 0
        return self._position + (0 if following is None else len(following.unfinished))

    def _work(self) -> None:
        with self._target.open("ab", buffering=0) as target:
            while not self._ending.is_set():
                with contextlib.suppress(HostError):
                    self._follow(target)
                self._ending.wait(_PAUSE_S)

    def _follow(self, target: BinaryIO) -> None:
        """Copy until the connection is lost. The first line is the boot id."""
        first = True

        def take(line: bytes) -> None:
            nonlocal first
            if first:
                first = False
                if line != self._boot:  # after a boot the file is a new one
                    self._boot, self._position = line, 0
                return
            target.write((_stamp(line) if self._stamped else line) + b"\n")
            self._position += len(line) + 1

        following = self._host.follow(_tail(self._path, self._boot or b"none", self._position), take)
        self._following = following
        try:
            if not self._ending.is_set():
                following.wait()
        finally:
            following.close()


def _tail(path: str, boot: bytes, position: int) -> str:
    """Print the boot id, then the file from `position` on if the boot id is still the same, else from its start."""
    directory = shlex.quote(path.rpartition("/")[0])
    return f"""b=$(cat {BOOT_ID}); echo "$b"; start=1
[ "$b" = {boot.decode()} ] && start={position + 1}
[ -d {directory} ] || mkdir -p {directory}
exec tail -s 0.5 --pid=$$ -c +$start -F {shlex.quote(path)} 2>/dev/null"""


def _stamp(line: bytes) -> bytes:
    """A JSON object with one more field; other lines (cut short by a kill) unchanged."""
    if line.startswith(b"{") and line.endswith(b"}") and len(line) > 2:
        return b'%s,"seen":%d}' % (line[:-1], time.time_ns())
    return line


class Mirror:
    """The trace and the log of every node, copied into its `record_dir`."""

    def __init__(self, nodes: Sequence[Node], hosts: Mapping[str, SshHost]) -> None:
        self._hosts = hosts
        self._files = {
            node.name: (
                MirroredFile(hosts[node.name], node.trace_path, node.record_dir / "events.jsonl", stamped=True),
                MirroredFile(hosts[node.name], node.service_log, node.record_dir / "service.log", stamped=False),
            )
            for node in nodes
        }

    def begin(self) -> None:
        for files in self._files.values():
            for file in files:
                file.begin()

    def settle(self, name: str, timeout_s: float) -> list[str]:
        """Wait until everything that a node has written by now has arrived; returns complaints about what has not.

        Raises `HostError` when the node does not answer."""
        return [complaint for file in self._files[name] if (complaint := file.settle(timeout_s)) is not None]

    def end(self) -> None:
        """Stop copying. Can be called twice."""
        for host in self._hosts.values():
            host.unfollow()
        for_each([file for files in self._files.values() for file in files], MirroredFile.end)


SETTLE_S = 10.0
LAST_WORDS_S = 2.0


class RemoteWorld(World):
    """Brokers on a lab's machines, for one run."""

    needs_sandbox = False  # a sandbox that the machines need was entered by their lab

    def __init__(
        self,
        spec: WorldSpec,
        name: str,
        machines: Machines,
        capabilities: frozenset[str],
        limits: Sequence[str],
        time_scale: float,
    ) -> None:
        self.name = name
        super().__init__(spec)
        self.capabilities = capabilities
        self.limits = [*limits, *self.limits]
        self.time_scale = time_scale
        self._machines, self._hosts = machines, machines.hosts
        self.power, self.network, self.suspender = machines.power, machines.network, machines.suspender
        self._nodes = [self._node(host) for host in machines.hosts]
        self._mirror: Mirror | None = None

    @property
    def site(self) -> Site:
        hosts = self._machines.hosts
        return replace(
            super().site,
            answers=lambda host: hosts[host.name].answers(),
            first_word_s=lambda host, patience_s: hosts[host.name].first_word_s(patience_s),
        )

    def up(self, on_progress: Progress = no_progress) -> None:
        self._lock.take()
        with on_failure(self.down):
            try:
                self._make_ready(on_progress)
            except (HostError, OSError) as error:
                raise WorldError(f"the {self.name} world cannot be made ready: {error}") from error

    def _make_ready(self, on_progress: Progress) -> None:
        self._machines.reset(on_progress)
        for node in self._nodes:
            node.record_dir.mkdir(parents=True, exist_ok=True)
        for_each(self._nodes, self._configure)
        self._mirror = Mirror(self._nodes, self._machines.hosts)
        self._mirror.begin()

    def down(self) -> None:
        if self._mirror is None and not self._lock.held:
            return
        clean_up(lambda: for_each(self._nodes, self._silence), self._end_mirror, self._lock.release)

    def _end_mirror(self) -> None:
        if self._mirror is not None:
            self._mirror.end()
            self._mirror = None

    def last_words(self, node: Node) -> str:
        if self._mirror is not None:
            with contextlib.suppress(HostError):
                self._mirror.settle(node.name, LAST_WORDS_S * self.time_scale)
        return super().last_words(node)

    def dump(self, node: Node) -> bool:
        """Not supported: over the network it would take longer than the state lasts."""
        del node
        return False

    def collect(self, node: Node, destination: Path) -> None:
        self._collect({node: destination})

    def collect_all(self) -> None:
        self._collect({node: node.record_dir for node in self._nodes})

    def _collect(self, destinations: Mapping[Node, Path]) -> None:
        complaints = [self._settled(node) for node in destinations]
        try:
            named = {node.name: destination for node, destination in destinations.items()}
            self._machines.collect(named, self.deployment.collected)
        except HostError as error:
            complaints.append(str(error))
        for node, destination in destinations.items():
            copy_records(node.record_dir, destination)
        if any(complaints):
            raise WorldError("; ".join(filter(None, complaints)))

    def _settled(self, node: Node) -> str:
        """Wait until everything that the node wrote has arrived; returns the problem, if any."""
        if self._mirror is None:
            return ""
        try:
            return "; ".join(self._mirror.settle(node.name, SETTLE_S * self.time_scale))
        except HostError as error:
            return f"{node.name}: the end of its records may be missing: {error}"

    def _node(self, name: str) -> Node:
        host, number = self._machines.hosts[name], int(name[1:])
        ports = dict(self._spec.deployment.ports(number))
        if name in self._machines.ports:
            ports[next(iter(ports))] = self._machines.ports[name]
        return Node(
            name=name,
            id=number,
            address=host.address,
            ports=ports,
            data_dir=host.data_dir,
            etc_dir=paths.ETC,
            var_dir=paths.RUNTIME,
            record_dir=self._spec.run_dir / "nodes" / name,
            files_dir=f"{paths.FILES}/{self.deployment.files_name}",
            python="python3",
            python_path=paths.PYTHON_PATH,
            is_local=False,
        )

    def _configure(self, node: Node) -> None:
        host, service = self._machines.hosts[node.name], self.service(node)
        host.port = node.port
        steps = [
            *(put_script(path, text) for path, text in service.files.items()),
            put_script(paths.SERVICE, service_script(service, node.data_dir)),
            put_script(paths.SERVICE_PORT, f"{node.port}\n"),
            f"rm -f {node.trace_path} {node.service_log}",  # an earlier run in the same boot may have left these files
        ]
        done = host.run(" && ".join(steps))
        if not done.ok:
            raise WorldError(f"{node.name}: its service cannot be configured: {done.stderr.strip()}")
        keep_configuration(node.record_dir, node.etc_dir, service.files)

    def _prepare_words(self, node: Node, service: Service, command: Sequence[str]) -> list[str]:
        """In the service's environment, so that the files belong to the service's user."""
        return [paths.LAUNCHER, *super()._prepare_words(node, service, command)]

    def _silence(self, node: Node) -> None:
        """Kill a service that still runs on a reachable machine."""
        with contextlib.suppress(HostError):
            kill_service(self._machines.hosts[node.name])


def service_script(service: Service, directory: str) -> str:
    """The script that becomes a service in this directory."""
    variables = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in service.environment.items())
    change_directory = f"cd {shlex.quote(directory)} || exit 1\n"
    return f"#!/bin/sh\nexport {paths.MARK}=1\n{variables}{change_directory}exec {shlex.join(service.command)}\n"
