"""The directory that all nodes of a run share: `<run>/shared`, a part of the run's evidence.

It is not on a node's disk: power cuts and full disks of nodes do not affect it, as with a store in the network.
The nodes write directly into the evidence, so a run that is killed keeps it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from systems.service import Service

SHARED: Final = "shared"
"""The directory's name below the run's."""


def make_shared(run_dir: Path, services: Iterable[Service], seen_as: str) -> Path | None:
    """Make the directory if a service names it; returns its path on this machine, None if no service does. `seen_as`:
    its path on the nodes. Raises OSError."""
    if not any(uses_shared(service, seen_as) for service in services):
        return None
    path = run_dir / SHARED
    path.mkdir(parents=True, exist_ok=True)
    return path


def uses_shared(service: Service, path: str) -> bool:
    """Whether a service's configuration, command or environment contains the path."""
    commands = (service.command, service.ready, *service.prepare, *service.after_start)
    texts = (*service.files.values(), *service.environment.values(), *sum(commands, ()))
    return any(path in text for text in texts)
