"""The filesystems of a node: its data disk and its root.

A data disk is a file behind a loop device, with its own filesystem. The file has no name, and the loop device is
detached with its last user: both disappear with the processes that hold them, however those ended.

The root filesystem is this machine's own, or that of the nodes' image. Neither is ever changed.
"""

import errno
import fcntl
import os
import stat
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from installation.files import PROJECT_ROOT
from installation.programs import run_program
from orchestrator.machine.programs import find_program
from orchestrator.machine.sandbox import PRIVATE_ROOT

_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_LO_FLAGS_AUTOCLEAR = 4
_LOOP_MAJOR = 7
_NAME_BYTES = 64

_MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
}
FILESYSTEMS = tuple(_MKFS)


class DataDiskError(Exception):
    """A disk cannot be made or attached; the message has the disk and the cause."""


class DataDisk:
    """One node's data disk: `create` once, `attach` at each boot, `close` at the end."""

    def __init__(self, name: str, backing: Path, size: int, filesystem: str) -> None:
        self.name = name
        self.filesystem = filesystem
        self._backing = backing
        self._size = size
        self._file = -1

    def create(self) -> None:
        """Make an empty filesystem. Raises `DataDiskError`."""
        self._file = _nameless_file(self._backing)
        os.ftruncate(self._file, self._size)
        command = [*_MKFS[self.filesystem], f"/proc/self/fd/{self._file}"]
        mkfs = run_program(command, pass_fds=[self._file])
        if mkfs.returncode:
            raise DataDiskError(f"{self.name}: {command[0]} failed: {mkfs.stderr.strip() or mkfs.returncode}")

    def attach(self) -> "Attached":
        """Attach the disk to a free loop device. Raises `DataDiskError`."""
        for _ in range(64):
            number = _free_loop()
            device = _device_path(number)
            descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _LOOP_CONFIGURE, self._configuration())
                return Attached(device, number, descriptor)
            except OSError as error:
                os.close(descriptor)
                if error.errno != errno.EBUSY:  # another process took the device first
                    raise DataDiskError(f"{self.name}: {device} cannot be set up: {error.strerror}") from error
        raise DataDiskError(f"{self.name}: no loop device stayed free long enough; see `losetup --list`")

    def close(self) -> None:
        """Free the file's space, once the loop device is detached, too."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _configuration(self) -> bytes:
        """`struct loop_config`: the backing file, the block size (0: default), `struct loop_info64`, reserved words."""
        label = f"brownout {self.name}".encode()[: _NAME_BYTES - 1]
        info = struct.pack("5Q4I64s64s32s2Q", 0, 0, 0, 0, 0, 0, 0, 0, _LO_FLAGS_AUTOCLEAR, label, b"", b"", 0, 0)
        return struct.pack("II", self._file, 0) + info + bytes(64)


class Attached:
    """A disk behind its loop device. It stays attached while it is mounted or held."""

    def __init__(self, device: str, number: int, descriptor: int) -> None:
        self.device = device
        self._descriptor = descriptor
        self._backing_file = Path(f"/sys/block/loop{number}/loop/backing_file")
        self._backing = self._read_backing()

    def release(self) -> None:
        """Release: from now on the device lives as long as its mount."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def wait_detached(self, timeout_s: float = 60.0) -> None:
        """Wait until the device has no file: proof that no process has the filesystem mounted any more.

        Raises `DataDiskError`. Does not open the device, because that would keep it attached."""
        self.release()
        deadline = time.monotonic() + timeout_s
        while self._read_backing() == self._backing:  # with another file, the device is used by another process already
            if time.monotonic() > deadline:
                raise DataDiskError(
                    f"{self.device} is still in use {timeout_s:g} s after its node's last process ended"
                )
            time.sleep(0.0005)

    def _read_backing(self) -> str | None:
        try:
            return self._backing_file.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None


def _nameless_file(directory: Path) -> int:
    try:
        return os.open(directory, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
    path = directory / f".disk-{os.getpid()}-{os.urandom(4).hex()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    path.unlink()
    return descriptor


def _free_loop() -> int:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
    finally:
        os.close(control)


def _device_path(number: int) -> str:
    device = f"/dev/loop{number}"
    if os.path.exists(device):
        return device
    # A container's /dev may lack devices that the kernel's own devtmpfs has.
    private = str(PRIVATE_ROOT / f"loop{number}")
    if not os.path.exists(private):
        os.mknod(private, stat.S_IFBLK | 0o600, os.makedev(_LOOP_MAJOR, number))
    return private


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
