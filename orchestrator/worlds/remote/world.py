"""One run's world on existing machines: configures them, copies their services' output, collects their files."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nemeses.mechanisms.service import kill_service
from nemeses.ports import Host, HostError, Network, PowerSwitch, Site, Suspender
from nemeses.scheduling import for_each
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.errors import WorldError
from orchestrator.machine.locks import RunLock
from orchestrator.machine.ssh import SshHost, put_script
from orchestrator.world_kinds import WORLDS
from orchestrator.worlds.base import Node, Progress, WorldSpec, no_progress
from orchestrator.worlds.node_collection import copy_records, keep_configuration
from orchestrator.worlds.remote import paths
from orchestrator.worlds.remote.collection import Collected
from orchestrator.worlds.remote.log_stream import Mirror
from orchestrator.worlds.services import ServicesOnHosts
from systems.service import Service

SETTLE_S = 10.0
LAST_WORDS_S = 2.0


@dataclass(frozen=True)
class RemoteEndpoint:
    """A machine's service address (`port`: None for its role's default) and its data directory."""

    id: int
    address: str
    port: int | None = None
    data_dir: str = paths.DATA


class Machines(Protocol):
    """The machines that a lab provides for the world of one run. The lab owns them."""

    @property
    def hosts(self) -> Mapping[str, SshHost]:
        """By node name, in the nodes' order; connected or connectable."""
        ...

    @property
    def power(self) -> PowerSwitch | None: ...

    @property
    def network(self) -> Network | None: ...

    @property
    def suspender(self) -> Suspender | None: ...

    def endpoint(self, name: str) -> RemoteEndpoint: ...

    def reset(self, on_progress: Progress) -> None:
        """Bring every machine into the state after its provisioning: reachable, without data, service or fault. Raises
        `WorldError`."""
        ...

    def collect(self, destinations: Mapping[str, Path], wanted: Collected) -> None:
        """Collect each machine's data (to `<destination>/data`, as in `orchestrator.worlds.node_collection`),
        `kernel.log` and `journal.log`. Raises `WorldError`."""
        ...


class RemoteWorld(ServicesOnHosts):
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
        self.capabilities = capabilities
        self.limits = [*limits, *WORLDS[name].limits]
        self.time_scale = time_scale
        self._spec = spec
        self._machines = machines
        self._nodes = [self._node(host) for host in machines.hosts]
        self._mirror: Mirror | None = None
        self._lock = RunLock(spec.run_dir)

    @property
    def hosts(self) -> Mapping[str, Host]:
        return self._machines.hosts

    @property
    def power(self) -> PowerSwitch | None:
        return self._machines.power

    @property
    def network(self) -> Network | None:
        return self._machines.network

    @property
    def site(self) -> Site:
        machines = self._machines
        return self.site_of(machines.power, machines.network, machines.suspender)

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
        endpoint = self._machines.endpoint(name)
        ports = dict(self._spec.deployment.ports(endpoint.id))
        if endpoint.port is not None:
            ports[next(iter(ports))] = endpoint.port
        return Node(
            name=name,
            id=endpoint.id,
            address=endpoint.address,
            ports=ports,
            data_dir=endpoint.data_dir,
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

    def _prepare_words(self, node: Node, service: Service, words: Sequence[str]) -> list[str]:
        """In the service's environment, so that the files belong to the service's user."""
        return [paths.LAUNCHER, *super()._prepare_words(node, service, words)]

    def _silence(self, node: Node) -> None:
        """Kill a service that still runs on a reachable machine."""
        with contextlib.suppress(HostError):
            kill_service(self._machines.hosts[node.name])


def service_script(service: Service, directory: str) -> str:
    """The script that becomes a service in this directory."""
    variables = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in service.environment.items())
    there = f"cd {shlex.quote(directory)} || exit 1\n"
    return f"#!/bin/sh\nexport {paths.MARK}=1\n{variables}{there}exec {shlex.join(service.command)}\n"
