"""What nodes run on: this machine's own root filesystem, or the one of the nodes' image. Neither is ever changed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from installation.files import PROJECT_ROOT
from orchestrator.machine.programs import find_program

_IMAGE_APP = "/opt/brownout/app"
_IMAGE_SITE = "/opt/brownout/site"


@dataclass(frozen=True)
class Bind:
    """A directory of the machine, shown in the node at `target`."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Root:
    """A root filesystem, and how sshd and the broker are started on it.

    `python` is the interpreter that runs the broker, in `directory` and with `environment`; `binds` is what it needs
    beyond the root filesystem.
    """

    lower: Path
    sshd: str
    python: str
    directory: str
    environment: Mapping[str, str]
    binds: tuple[Bind, ...]

    def command(self, broker: list[str]) -> tuple[str, ...]:
        """A broker's command, as it is here: by this root's interpreter."""
        return (self.python, *broker[1:]) if broker[0] == sys.executable else tuple(broker)


def choose_root(rootfs: Path | None) -> Root:
    """The root of nodes that run on this directory tree; None: on the machine's own root filesystem."""
    return _machine() if rootfs is None else _image(rootfs)


def _machine() -> Root:
    return Root(
        lower=Path("/"),
        sshd=find_program("sshd") or "/usr/sbin/sshd",
        python=sys.executable,
        directory=str(PROJECT_ROOT),
        environment=_environment(str(PROJECT_ROOT)),
        binds=_visible(),
    )


def _image(rootfs: Path) -> Root:
    """Nothing of the machine is in it but the broker's package."""
    return Root(
        lower=rootfs,
        sshd="/usr/sbin/sshd",
        python="/usr/bin/python3",
        directory=_IMAGE_APP,
        environment=_environment(f"{_IMAGE_APP}:{_IMAGE_SITE}"),
        binds=(Bind(str(PROJECT_ROOT / "broker"), f"{_IMAGE_APP}/broker"),),
    )


def _environment(path: str) -> dict[str, str]:
    return {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _visible() -> tuple[Bind, ...]:
    """What a broker needs to run and may not find on the root filesystem: Python, its environment and this project."""
    wanted = dict.fromkeys(
        path
        for given in (sys.base_prefix, sys.prefix, str(PROJECT_ROOT))
        for path in (given, os.path.realpath(given))
        if path != "/usr"
    )
    # Other filesystems than the root's are not in an overlay over `/`.
    root = os.stat("/").st_dev
    elsewhere = [path for path in ("/usr", "/opt") if os.path.isdir(path) and os.stat(path).st_dev != root]
    # A parent goes before its children, or it would hide them.
    return tuple(Bind(path, path) for path in sorted([*wanted, *elsewhere], key=len))
