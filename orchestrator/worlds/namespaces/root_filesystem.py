"""What nodes run on: this machine's own root filesystem, or the one of the nodes' image. Neither is ever changed."""

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
    """A root filesystem, and how sshd and Python are started on it.

    `python` is the interpreter that has our packages, with `python_path`; `binds` is what nodes need beyond the root
    filesystem.
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
    """Nothing of the machine is in it but the broker's package."""
    return RootFilesystem(
        lower=rootfs,
        sshd="/usr/sbin/sshd",
        python="/usr/bin/python3",
        python_path=f"{_IMAGE_APP}:{_IMAGE_SITE}",
        binds=(Bind(str(PROJECT_ROOT / "broker"), f"{_IMAGE_APP}/broker"),),
    )


def _visible() -> tuple[Bind, ...]:
    """What services need to run and may not find on the root filesystem: Python, its environment and this project."""
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
