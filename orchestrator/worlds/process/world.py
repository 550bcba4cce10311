"""The process world: what is possible without privileges."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from installation.plain_paths import PlainPath
from nemeses import Host, Result, Site, injectable
from nemeses.kind import Need
from orchestrator.cleanup import clean_up, on_failure
from orchestrator.errors import WorldError
from orchestrator.machine.locks import RunLock
from orchestrator.world_kinds import WORLDS
from orchestrator.worlds.base import Node, Progress, WorldSpec, no_progress
from orchestrator.worlds.node_collection import EARLIER, copy_data, copy_records, keep_configuration
from orchestrator.worlds.process.host import LocalHost, Supervisor
from orchestrator.worlds.services import ServicesOnHosts
from orchestrator.worlds.shared_directory import SHARED, make_shared
from systems.local_ports import ADDRESS, LocalPorts, NoPortError

_SCRATCH = "world"
_OFFERS: tuple[Need, ...] = ("store",)


class ProcessWorld(ServicesOnHosts):
    """Brokers as plain processes of this user, on loopback, each on its own port."""

    name = "process"
    capabilities: frozenset[str] = injectable(_OFFERS)
    needs_sandbox = False
    time_scale = 1.0
    power = None
    network = None

    def __init__(self, spec: WorldSpec) -> None:
        self.limits = list(WORLDS[self.name].limits)
        self._spec = spec
        self._ports = LocalPorts(spec.run_id)
        try:
            self._plain_run_dir = PlainPath(spec.run_dir)
            self._nodes = [self._node(number) for number in range(1, spec.node_count + 1)]
        except NoPortError as error:
            raise WorldError(f"{error}; end the process that listens there") from error
        except OSError as error:
            raise WorldError(f"the process world cannot be made: {error}") from error
        self._hosts: dict[str, LocalHost] = {}
        self._supervisor: Supervisor | None = None
        self._lock = RunLock(spec.run_dir)

    @property
    def site(self) -> Site:
        return self.site_of()

    def up(self, on_progress: Progress = no_progress) -> None:
        self._lock.take()
        with on_failure(self.down):
            try:
                self._supervisor = Supervisor()
                services = [self.service(node) for node in self._nodes]
                make_shared(self._spec.run_dir, services, self._nodes[0].shared_dir)
                for node in self._nodes:
                    self._make(node, self._supervisor)
                    on_progress(f"{node.name} is ready at {node.address}:{node.port}")
            except OSError as error:
                raise WorldError(f"the process world cannot be made: {error}") from error

    def _make(self, node: Node, supervisor: Supervisor) -> None:
        Path(node.data_dir).mkdir(parents=True, exist_ok=True)
        node.record_dir.mkdir(parents=True, exist_ok=True)
        service = self.service(node)
        keep_configuration(node.record_dir, node.etc_dir, service.files)
        self._hosts[node.name] = LocalHost(node, service, supervisor)

    def down(self) -> None:
        clean_up(
            self._end_supervisor,
            lambda: shutil.rmtree(self._scratch, ignore_errors=True),
            self._plain_run_dir.close,
            self._ports.release,
            self._lock.release,
        )

    def _end_supervisor(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None

    def _run_to_prepare(self, host: Host, command: str, timeout_s: float) -> Result:
        """Started by the supervisor, so that nothing of it outlives the run."""
        return self._hosts[host.name].prepare(command, timeout_s)

    def dump(self, node: Node) -> bool:
        try:
            directory, patterns = self.deployment.collected
            copy_data(Path(node.data_dir, directory), patterns, node.record_dir, EARLIER)
        except OSError as error:
            raise WorldError(f"{node.name}: its files cannot be read: {error}") from error
        return True

    def collect(self, node: Node, destination: Path) -> None:
        try:
            directory, patterns = self.deployment.collected
            copy_data(Path(node.data_dir, directory), patterns, destination)
            copy_records(node.record_dir, destination)
        except OSError as error:
            raise WorldError(f"{node.name}: its logs cannot be collected: {error}") from error

    def shell(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """A shell, or a command, in the node's directory, since the node has no separate environment."""
        directory = next(node.data_dir for node in self._nodes if node.name == name)
        script = [" ".join(command)] if command else []  # as ssh does
        return ["/bin/sh", "-c", 'cd "$0" && exec "${SHELL:-/bin/sh}" ${1+-c "$1"}', directory, *script]

    @property
    def _scratch(self) -> Path:
        return self._spec.run_dir / _SCRATCH

    def _node(self, number: int) -> Node:
        name = f"n{number}"
        # A system's configuration contains these paths: they must be free of characters that a program would parse.
        seen = Path(self._plain_run_dir.path)
        return Node(
            name=name,
            id=number,
            address=ADDRESS,
            ports={port: self._ports.take() for port in self._spec.deployment.ports(number)},
            data_dir=str(seen / _SCRATCH / name),
            etc_dir=str(seen / "nodes" / name),
            var_dir=str(seen / "nodes" / name),
            record_dir=self._spec.run_dir / "nodes" / name,
            files_dir=self._spec.deployment.files_dir,
            shared_dir=str(seen / SHARED),
        )
