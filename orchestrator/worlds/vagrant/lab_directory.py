"""The directory of a lab of virtual machines: in memory if there is enough, removed with the lab."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

from installation.files import cache_directory
from nodeimage import Image
from orchestrator.errors import WorldError
from orchestrator.machine.sandbox import PRIVATE_ROOT

PLACE = PRIVATE_ROOT / "lab"
"""The path within the sandbox: sockets need short paths, and QEMU's options plain ones."""

# The initial size of a node's disks and saved state; the same again is reserved for its runs.
_SAVED_BYTES = 512 << 20
_FAILED = cache_directory() / "vagrant-failed"
_LOGS = ("vagrant.log", "libvirtd.log", "log", "ansible")


def make(directory: Path, nodes: int, memory_mb: int) -> None:
    """Make it in memory if there is enough, where it is fastest and removed with the sandbox; else in `directory`.
    Raises `WorldError` without enough space in either, `OSError`."""
    needed = 2 * nodes * max(_SAVED_BYTES, memory_mb << 20)
    if _memory_suffices(needed + nodes * (memory_mb << 20), needed):
        PLACE.mkdir()
        return
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise WorldError(
            f"{directory} has {free >> 20} MB free, and {nodes} virtual machines need {needed >> 20} MB; free some, or "
            "use another place: --store DIR"
        )
    PLACE.symlink_to(directory)


def remove() -> None:
    """Empty it. A given directory itself stays, because its owner may have locked it."""
    if not PLACE.is_symlink():
        shutil.rmtree(PLACE, ignore_errors=True)
        return
    with contextlib.suppress(FileNotFoundError):
        for path in PLACE.resolve().iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    PLACE.unlink()


def link_box(image: Image, pool: Path) -> None:
    """Give Vagrant and libvirt's storage pool the image as if they had it already, so that neither copies it: it is
    never written.

    This is Vagrant's layout of boxes; its libvirt provider uploads the disk unless the pool has it under this name."""
    name = f"brownout-VAGRANTSLASH-node-{image.key}"
    box = PLACE / "home" / "boxes" / name / "0" / "libvirt"
    box.mkdir(parents=True)
    with tarfile.open(image.box) as archive:
        for member in ("metadata.json", "Vagrantfile"):
            archive.extract(member, box)
    disk = box / "box.img"
    disk.symlink_to(image.disk)
    changed = int(disk.stat().st_mtime)
    (pool / f"{name}_vagrant_box_image_0_{changed}_box.img").symlink_to(image.disk)


def keep_logs(machines: Iterable[str], words: str) -> str:
    """Keep the logs of a lab that could not be made, until the next such lab. Returns the message `words`, with the
    logs' new paths in place of the old ones."""
    with contextlib.suppress(OSError):
        shutil.rmtree(_FAILED, ignore_errors=True)
        _FAILED.mkdir(parents=True)
        for log in (*_LOGS, *(f"{name}/console.log" for name in machines)):
            source, target = PLACE / log, _FAILED / log
            target.parent.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                shutil.copyfile(source, target)
    return words.replace(str(PLACE), str(_FAILED))


def _memory_suffices(wanted: int, kept: int) -> bool:
    """Whether this number of bytes is free, and the sandbox's memory filesystem has room for the files."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    return available > wanted and shutil.disk_usage(PRIVATE_ROOT).free > kept
