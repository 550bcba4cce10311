"""Where a lab of virtual machines keeps what it needs: made in memory where that suffices, and gone with the lab."""

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
"""For all that runs in the sandbox: sockets must have short paths, and QEMU's options plain ones."""

# What a node's disks and its saved state take at first; as much again is for what its runs write.
_SAVED_BYTES = 512 << 20
_FAILED = cache_directory() / "vagrant-failed"
_LOGS = ("vagrant.log", "libvirtd.log", "log", "ansible")


def make(directory: Path, nodes: int, memory_mb: int) -> None:
    """In memory if there is enough, where it goes with the sandbox and is fastest; else in `directory`. Raises
    `WorldError` where there is no room either, `OSError`."""
    needed = 2 * nodes * max(_SAVED_BYTES, memory_mb << 20)
    if _memory_suffices(needed + nodes * (memory_mb << 20), needed):
        PLACE.mkdir()
        return
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise WorldError(
            f"{directory} has {free >> 20} MB free, and {nodes} virtual machines need {needed >> 20} MB; free some, or "
            "have runs kept elsewhere: --store DIR"
        )
    PLACE.symlink_to(directory)


def remove() -> None:
    """Nothing is left in it. A directory that was given stays, for it may be locked by its owner."""
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
    """Give Vagrant and libvirt's storage pool the image as if they had it already, so that neither makes a copy: it is
    never written.

    Vagrant keeps boxes in this layout; its libvirt provider uploads the disk unless the pool has it by this name."""
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
    """Keep what a lab that could not be made has said, until the next such one; `words`, which name its logs, with
    where these are now."""
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
    """Whether so many bytes are free, and as many as are kept in files find room in the sandbox's own memory."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    return available > wanted and shutil.disk_usage(PRIVATE_ROOT).free > kept
