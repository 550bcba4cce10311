"""The machines of a lab: their switches, playbooks on them, and the collection of data, kernel logs and journals."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nemeses.ports import Network, PowerSwitch, Suspender
from orchestrator.errors import WorldError
from orchestrator.machine import playbooks
from orchestrator.machine.ssh import SshHost
from orchestrator.worlds.base import Progress, no_progress

Collected = tuple[str, tuple[str, ...]]
"""A directory below a node's data directory, and globs of the files in it."""

_COLLECTED = ("data", "kernel.log", "journal.log")


class Machines:
    """The machines that a lab provides for the world of one run. The lab owns them."""

    hosts: Mapping[str, SshHost]
    """By node name (n1, n2, ...), in the nodes' order; connected or connectable."""
    ports: Mapping[str, int] = {}
    """By node name: the clients' port in place of the service's default."""
    power: PowerSwitch | None = None
    network: Network | None = None
    suspender: Suspender | None = None

    def __init__(self, targets: Mapping[str, playbooks.Target], directory: Path) -> None:
        """`targets`: the machines as playbooks take them, by node name; `directory`: for Ansible's output."""
        self._targets = targets
        self._directory = directory

    def play(self, playbook: str, on_progress: Progress) -> playbooks.Played:
        """Run a playbook on all machines. Raises `PlaybookError`."""
        return playbooks.play(playbook, list(self._targets.values()), self._directory, on_progress=on_progress)

    def reset(self, on_progress: Progress) -> None:
        """Bring every machine into the state after its provisioning: reachable, without data, service or fault. Raises
        `WorldError`."""
        raise NotImplementedError

    def collect(self, destinations: Mapping[str, Path], collected: Collected) -> None:
        """Collect from the nodes named in `destinations`, each into its own directory: `data` (as in
        `orchestrator.worlds.node_collection`), `kernel.log` and `journal.log`. Raises `WorldError`; what was collected
        from other nodes is kept."""
        chosen = {name: self._targets[name] for name in destinations}
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory, prefix="collect-") as scratch:
            source, patterns = collected
            variables = {
                "brownout_collect_to": scratch,
                "brownout_collect_directory": source,
                "brownout_collect_files": list(patterns),
            }
            try:
                playbooks.play(
                    "collect", list(chosen.values()), self._directory, variables=variables, on_progress=no_progress
                )
            finally:
                for name, target in chosen.items():
                    _move(Path(scratch, target.name), destinations[name])


def _move(source: Path, destination: Path) -> None:
    try:
        destination.mkdir(parents=True, exist_ok=True)
        for name in _COLLECTED:
            if not (source / name).exists():
                continue
            target = destination / name
            if target.is_dir():
                shutil.rmtree(target)
            # Via a temporary name if it is another filesystem: a partial replica must not look complete.
            draft = destination / f"{name}.partial"
            shutil.move(source / name, draft)
            draft.replace(target)
    except OSError as error:
        raise WorldError(f"what was collected cannot be kept in {destination}: {error}") from error
