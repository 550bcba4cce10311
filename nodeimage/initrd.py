"""Makes the initial RAM disk: a shell script, busybox, and the drivers of virtual disks and networks, uncompressed.

An emulated machine needs eight seconds to unpack Debian's own (30 MB, compressed). This one has 3 MB.
"""

from __future__ import annotations

import io
import stat
from pathlib import Path

from nodeimage.modules import kernel_version, load_order, read_dependencies

_DIRECTORIES = ("bin", "dev", "modules", "proc", "root", "sys")
_CONSOLE = (5, 1)


def make(rootfs: Path, init: Path, modules: tuple[str, ...], destination: Path) -> None:
    """Write the initrd for the kernel of `rootfs`. Raises `ImageError`."""
    directory = rootfs / "lib" / "modules" / kernel_version(rootfs)
    order = load_order(read_dependencies((directory / "modules.dep").read_text(encoding="utf-8")), modules)
    archive = Cpio()
    for name in _DIRECTORIES:
        archive.directory(name)
    archive.device("dev/console", *_CONSOLE)
    archive.file("init", init.read_bytes(), executable=True)
    archive.file("bin/busybox", (rootfs / "bin" / "busybox").read_bytes(), executable=True)
    for path in order:
        archive.file(f"modules/{Path(path).name}", (directory / path).read_bytes())
    archive.file("modules/order", (" ".join(Path(path).name for path in order) + "\n").encode())
    destination.write_bytes(archive.finished())


class Cpio:
    """An archive in the kernel's format ("newc"). Equal entries give equal bytes."""

    def __init__(self) -> None:
        self._out = io.BytesIO()
        self._entries = 0

    def directory(self, name: str) -> None:
        self._entry(name, stat.S_IFDIR | 0o755)

    def file(self, name: str, content: bytes, *, executable: bool = False) -> None:
        self._entry(name, stat.S_IFREG | (0o755 if executable else 0o644), content)

    def device(self, name: str, major: int, minor: int) -> None:
        self._entry(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def finished(self) -> bytes:
        self._entry("TRAILER!!!", 0)
        return self._out.getvalue()

    def _entry(self, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        self._entries += 1
        encoded = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, dev (2), rdev (2), length of the name, checksum
        fields = (self._entries, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
        self._padded(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        self._padded(content)

    def _padded(self, data: bytes) -> None:
        self._out.write(data + b"\0" * (-len(data) % 4))
