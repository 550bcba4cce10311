"""Renders all templates of a run's system for nodes that do not exist yet, before any node starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from systems.system import Deployed


@dataclass(frozen=True)
class _StandIn:
    """A node with the values of the namespace world."""

    name: str
    id: int
    address: str
    ports: Mapping[str, int]
    data_dir: str = "/data"
    etc_dir: str = "/etc/brownout"
    var_dir: str = "/var/lib/brownout"
    files_dir: str = "/opt/brownout/files"
    shared_dir: str = "/brownout-shared"
    python: str = "/usr/bin/python3"
    python_path: str = "/opt/brownout/app"
    is_local: bool = True


def rehearse(deployed: Deployed) -> None:
    """Raises `InputError` naming file and line of a template that cannot be filled in for one of the nodes."""
    numbers = range(1, len(deployed.roles) + 1)
    nodes = [_StandIn(f"n{number}", number, f"127.0.0.{number}", deployed.ports(number)) for number in numbers]
    for node in nodes:
        deployed.service(node, nodes)
