"""The root filesystem of nodes: this machine's own, or the nodes' image. Neither is ever changed."""

from __future__ import annotations

import os
import sys
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
class RootFilesystem:
    """A root filesystem, and how to start sshd and Python on it.

    `python`: the interpreter with Brownout's packages, with `python_path`; `binds`: what nodes need in addition to the
    root filesystem.
    """

    lower: Path
    sshd: str
    python: str
    python_path: str
    binds: tuple[Bind, ...]


def choose_root(rootfs: Path | None) -> RootFilesystem:
    """The root of nodes that run on this directory tree; None: on the machine's own root filesystem."""
    return _machine() if rootfs is None else _image(rootfs)


def _machine() -> RootFilesystem:
    return RootFilesystem(
        lower=Path("/"),
        sshd=find_program("sshd") or "/usr/sbin/sshd",
        python=sys.executable,
        python_path=str(PROJECT_ROOT),
        binds=_visible(),
    )


def _image(rootfs: Path) -> RootFilesystem:
    """Contains nothing of the machine except the broker's package."""
    return RootFilesystem(
        lower=rootfs,
        sshd="/usr/sbin/sshd",
        python="/usr/bin/python3",
        python_path=f"{_IMAGE_APP}:{_IMAGE_SITE}",
        binds=(Bind(str(PROJECT_ROOT / "broker"), f"{_IMAGE_APP}/broker"),),
    )


def _visible() -> tuple[Bind, ...]:
    """Directories that services need and that may not be on the root filesystem: Python, its environment, this
    project."""
    directories = dict.fromkeys(
        path
        for place in (sys.base_prefix, sys.prefix, str(PROJECT_ROOT))
        for path in (place, os.path.realpath(place))
        if path != "/usr"
    )
    # An overlay over `/` does not contain other filesystems.
    root = os.stat("/").st_dev
    elsewhere = [path for path in ("/usr", "/opt") if os.path.isdir(path) and os.stat(path).st_dev != root]
    # Parents first: otherwise they would hide their children.
    return tuple(Bind(path, path) for path in sorted([*directories, *elsewhere], key=len))
