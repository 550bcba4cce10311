"""The image's root filesystem as a directory, in which the machines' programs run at this machine's full speed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from installation.files import PROJECT_ROOT
from nodeimage import Image, files_archive
from orchestrator.machine import syscalls
from orchestrator.machine.sandbox import PRIVATE_ROOT
from orchestrator.worlds.remote import paths
from systems import MachineRoot, Software

_PLACE = PRIVATE_ROOT / "image-root"
_SHOWN = ("dev", "proc")


def with_made_files(
    image: Image, software: Sequence[Software], on_progress: Callable[[str], None]
) -> tuple[Software, ...]:
    """The same software, with the files that its systems generate on machines with this image. Needs a sandbox."""
    return tuple(_with_made_files(image, each, on_progress) for each in software)


def _with_made_files(image: Image, each: Software, on_progress: Callable[[str], None]) -> Software:
    files_dir = f"{paths.FILES}/{each.name}"
    root = MachineRoot(image.key, files_dir, lambda: _opened(image, files_dir, each.files))
    return replace(each, files={**each.files, **each.make(root, on_progress)})


@contextlib.contextmanager
def _opened(image: Image, files_dir: str, files: Mapping[str, Path]) -> Iterator[Path]:
    """With these files in the same places as on the machines. Changes are in memory and discarded: the image's
    directory is never written."""
    root, changes, work = (_PLACE / name for name in ("root", "changes", "work"))
    for directory in (root, changes, work):
        directory.mkdir(parents=True)
    mounted: list[Path] = []
    try:
        syscalls.mount_overlay(str(root), lower=str(image.rootfs), upper=str(changes), work=str(work))
        mounted.append(root)
        for name in _SHOWN:
            (root / name).mkdir(exist_ok=True)
            syscalls.bind(f"/{name}", str(root / name))
            mounted.append(root / name)
        target = root / files_dir.lstrip("/")
        target.mkdir(parents=True)
        archive = files_archive(PROJECT_ROOT, files).archive
        command = ["tar", "--extract", "--no-same-owner", "--file", str(archive), "--directory", str(target)]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            check=False,
        )
        if done.returncode:
            raise OSError(f"{archive} cannot be unpacked: {done.stderr.strip()}")
        yield root
    finally:
        for path in reversed(mounted):
            with contextlib.suppress(OSError):
                syscalls.unmount(str(path), syscalls.MNT_DETACH)
        shutil.rmtree(_PLACE, ignore_errors=True)
