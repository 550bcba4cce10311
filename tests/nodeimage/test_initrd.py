"""Kernel modules and the initial RAM disk."""

from pathlib import Path

import pytest

from nodeimage import ImageError, contents
from nodeimage.modules import closure, kernel_version, load_order, read_dependencies

DEPENDENCIES = """\
kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/drivers/block/virtio_blk.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/net/sched/sch_netem.ko:
kernel/fs/xfs/xfs.ko: kernel/lib/libcrc32c.ko
kernel/lib/libcrc32c.ko:
kernel/sound/loud.ko: kernel/lib/libcrc32c.ko
"""


def entries(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """What the kernel would unpack: by name, the mode and the content."""
    found: dict[str, tuple[int, bytes]] = {}
    offset = 0
    while True:
        fields = [int(archive[offset + 6 + 8 * n : offset + 14 + 8 * n], 16) for n in range(13)]
        assert archive[offset : offset + 6] == b"070701"
        name = archive[offset + 110 : offset + 109 + fields[11]].decode()
        offset += (110 + fields[11] + 3) // 4 * 4
        content = archive[offset : offset + fields[6]]
        offset += (fields[6] + 3) // 4 * 4
        if name == "TRAILER!!!":
            return found
        found[name] = (fields[1], content)


def rootfs(directory: Path) -> Path:
    modules = directory / "lib" / "modules" / "6.1.0"
    for line in DEPENDENCIES.splitlines():
        path = modules / line.partition(":")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(path.name.encode())
    (modules / "modules.dep").write_text(DEPENDENCIES)
    (directory / "bin").mkdir()
    (directory / "bin" / "busybox").write_bytes(b"busybox")
    return directory


def test_modules_are_copied_with_dependencies_and_loaded_after_them() -> None:
    dependencies = read_dependencies(DEPENDENCIES)
    assert closure(dependencies, ("fs/xfs/", "net/sched/")) == {
        "kernel/fs/xfs/xfs.ko",
        "kernel/lib/libcrc32c.ko",
        "kernel/net/sched/sch_netem.ko",
    }
    assert load_order(dependencies, ("virtio_blk", "sch_netem")) == [
        "kernel/drivers/virtio/virtio.ko",
        "kernel/drivers/virtio/virtio_ring.ko",
        "kernel/drivers/block/virtio_blk.ko",
        "kernel/net/sched/sch_netem.ko",
    ]
    with pytest.raises(ImageError, match="no module virtio_net"):
        load_order(dependencies, ("virtio_net",))


def test_the_initrd_holds_its_script_busybox_and_the_modules_in_order(tmp_path: Path) -> None:
    init = tmp_path / "init"
    init.write_text("#!/bin/busybox sh\n")
    root = rootfs(tmp_path / "rootfs")
    contents.make_initrd(root, init, ("virtio_blk",), tmp_path / "one")
    contents.make_initrd(root, init, ("virtio_blk",), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    held = entries((tmp_path / "one").read_bytes())
    assert held["init"] == (0o100755, b"#!/bin/busybox sh\n")
    assert held["bin/busybox"] == (0o100755, b"busybox")
    assert held["modules/order"][1] == b"virtio.ko virtio_ring.ko virtio_blk.ko\n"
    assert held["modules/virtio_ring.ko"][1] == b"virtio_ring.ko"
    assert held["dev/console"][0] == 0o020600
    assert held["root"][0] == 0o040755


def test_two_kernels_are_one_too_many(tmp_path: Path) -> None:
    root = rootfs(tmp_path / "rootfs")
    assert kernel_version(root) == "6.1.0"
    (root / "lib" / "modules" / "6.2.0").mkdir()
    with pytest.raises(ImageError, match="one kernel was expected"):
        kernel_version(root)
