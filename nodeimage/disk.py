"""Makes a disk of the root filesystem, and a Vagrant box of the disk."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import nodeimage.recipe as recipe
from nodeimage.programs import run


def make(rootfs: Path, disk: Path) -> None:
    """Make one ext4 filesystem without partitions, filled from a directory, without mounting. Raises `ImageError`."""
    raw = disk.with_suffix(".raw")
    try:
        with open(raw, "wb") as file:
            file.truncate(recipe.DISK_BYTES)
        # mkfs does now what a new filesystem postpones until its first mount: machines boot more often.
        layout = "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
        run(["mke2fs", "-q", "-t", "ext4", "-L", recipe.DISK_LABEL, "-m", "0", "-E", layout, "-d", rootfs, raw])
        run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk])
    finally:
        raw.unlink(missing_ok=True)


def make_box(disk: Path, vagrantfile: Path, box: Path) -> None:
    """The disk as a box for Vagrant's libvirt provider: uncompressed, so that Vagrant only copies it."""
    metadata = box.with_suffix(".json")
    gigabytes = -(-recipe.DISK_BYTES // (1 << 30))
    metadata.write_text(
        json.dumps({"provider": "libvirt", "format": "qcow2", "virtual_size": gigabytes}), encoding="utf-8"
    )
    try:
        with tarfile.open(box, "w") as archive:
            for path, name in ((metadata, "metadata.json"), (vagrantfile, "Vagrantfile"), (disk, "box.img")):
                archive.add(path, name)
    finally:
        metadata.unlink(missing_ok=True)
