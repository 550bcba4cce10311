"""Linux system calls that Python does not offer. Standard library only, so that programs that use them start fast.

Every function raises `OSError` with the kernel's error number and the attempted operation.
"""

import ctypes
import fcntl
import os
import platform
import signal
import struct
from collections.abc import Collection

CLONE_NEWTIME = 0x80
CLONE_NEWNS = 0x20000
CLONE_NEWUTS = 0x4000000
CLONE_NEWIPC = 0x8000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SYNC_FILE_RANGE_WAIT_WRITE_WAIT = 7
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CACHESTAT = 451  # the same number on every architecture; Linux 6.5

# _IOR('X', 125, __u32): shut a filesystem down. ext4 and xfs support it (f2fs and others, too).
_FS_IOC_SHUTDOWN = 0x8004587D
SHUTDOWN_AFTER_LOG_FLUSH = 1
SHUTDOWN_AT_ONCE = 2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def signal_descriptor(numbers: Collection[int]) -> int:
    """A descriptor that reports these signals from now on, in place of handlers: see `read_signal`.

    A Python handler runs between two instructions of the interpreter, so a signal that arrives just before a blocking
    system call is handled when the call returns, which may be never. A descriptor that is polled has no such gap.
    """
    blocked = struct.pack("=Q120x", sum(1 << (number - 1) for number in set(numbers)))  # sigset_t
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    return _check(_libc.signalfd(ctypes.c_int(-1), blocked, ctypes.c_int(os.O_CLOEXEC)), "signalfd")


def read_signal(descriptor: int) -> tuple[int, bool]:
    """Take a signal from a descriptor; waits for one. Returns its number, and whether a process sent it, not the
    kernel (as for a terminal's Ctrl-C)."""
    number, _error, code = struct.unpack_from("=Iii", os.read(descriptor, 128))
    return number, code <= 0


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare(0x{flags:x})")


def enter_network(namespace: int) -> None:
    """Move the calling thread into the network namespace of this descriptor."""
    _check(_libc.setns(ctypes.c_int(namespace), ctypes.c_int(CLONE_NEWNET)), "setns")


def mount(source: str, target: str, filesystem: str = "", flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        filesystem.encode() or None,
        ctypes.c_ulong(flags),
        os.fsencode(options) or None,
    )
    _check(result, f"mount {source} on {target}")


def mount_overlay(target: str, *, lower: str, upper: str, work: str) -> None:
    """Show the tree `lower` at `target`; changes are stored in `upper`. The names may contain any character."""
    places = {"lowerdir": lower, "upperdir": upper, "workdir": work}
    mount("overlay", target, "overlay", 0, ",".join(f"{key}={_escaped(path)}" for key, path in places.items()))


def _escaped(path: str) -> str:
    """A path as overlayfs expects it among its options."""
    return "".join(f"\\{character}" if character in "\\:," else character for character in path)


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Show the tree at `source` at `target`, too, without the mounts below it."""
    mount(source, target, flags=MS_BIND)
    if read_only:
        # The flags of a bind mount are ignored when it is made; a remount sets them.
        mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def unmount(target: str, flags: int = 0) -> None:
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(flags)), f"unmount {target}")


def pivot_root(new_root: str) -> None:
    """Make `new_root`, a mount point, the root, and detach the old root from this mount namespace."""
    os.chdir(new_root)
    # With "." twice, the old root is stacked on the new one, where it can be detached without a separate directory.
    _check(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), f"pivot_root {new_root}")
    unmount(".", MNT_DETACH)
    os.chdir("/")


def set_hostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), f"sethostname {name}")


def die_with_parent(signal_number: int) -> None:
    """Request this signal for the end of the thread that forked this process. Survives exec."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, as init does."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def shut_filesystem_down(descriptor: int, how: int) -> None:
    """Stop a filesystem immediately, like a power cut: nothing more reaches the disk. `how`: `SHUTDOWN_...`."""
    fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, struct.pack("I", how))


def dirty_pages(descriptor: int, offset: int, length: int) -> int:
    """How many pages of a file's range are only in memory. ENOSYS on kernels before 6.5."""
    span = ctypes.create_string_buffer(struct.pack("QQ", offset, length))
    counts = ctypes.create_string_buffer(40)
    _check(_libc.syscall(_CACHESTAT, ctypes.c_uint(descriptor), span, counts, ctypes.c_uint(0)), "cachestat")
    _, dirty, writeback, _, _ = struct.unpack("5Q", counts.raw)
    return int(dirty) + int(writeback)


def write_back(descriptor: int, offset: int, length: int) -> None:
    """Write a range's dirty pages to the disk and wait for them; metadata, such as the length, is not written."""
    result = _libc.sync_file_range(
        ctypes.c_int(descriptor),
        ctypes.c_int64(offset),
        ctypes.c_int64(length),
        ctypes.c_uint(_SYNC_FILE_RANGE_WAIT_WRITE_WAIT),
    )
    _check(result, "sync_file_range")
