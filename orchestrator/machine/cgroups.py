"""Control groups: every process of a node is in one, so that all can be frozen or killed at once.

Uses only the core interface of version 2 (`cgroup.kill`, `cgroup.freeze`, `cgroup.events`), which needs no controller.
It exists on pure version 2 machines and, under `unified`, on hybrid ones. Standard library only.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path

PREFIX = "brownout-"
# A younger group may be one that its maker is about to lock.
_LEAST_AGE_S = 5.0
_USUAL_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


class Cgroup:
    """One version 2 control group, by its directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> "Cgroup":
        self.path.mkdir(parents=True, exist_ok=True)
        return self

    def child(self, name: str) -> "Cgroup":
        return Cgroup(self.path / name)

    def adopt(self, pid: int) -> None:
        """Move a process here (0: the caller)."""
        (self.path / "cgroup.procs").write_text(str(pid), encoding="utf-8")

    def freeze(self, frozen: bool) -> None:
        """Request that all processes are frozen or thawed; returns before they are."""
        (self.path / "cgroup.freeze").write_text("1" if frozen else "0", encoding="utf-8")

    def populated(self) -> bool:
        return "populated 1" in (self.path / "cgroup.events").read_text(encoding="utf-8")

    def oom_kills(self) -> int:
        """How many processes in this group and below the kernel has killed for lack of memory. If only an ancestor
        counts them, the ancestor's count; 0 if no group counts."""
        for path in (self.path, *self.path.parents):
            with contextlib.suppress(OSError, StopIteration, ValueError):
                lines = (path / "memory.events").read_text(encoding="utf-8").splitlines()
                return int(next(line.split()[1] for line in lines if line.startswith("oom_kill ")))
        return 0

    def kill(self, timeout_s: float = 60.0) -> None:
        """Kill every process in this group and below, also frozen ones, and wait until all are gone. Raises
        `TimeoutError`."""
        with contextlib.suppress(FileNotFoundError):
            (self.path / "cgroup.kill").write_text("1", encoding="utf-8")
            self.wait_empty(timeout_s)

    def wait_empty(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self.populated():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path}: processes are still there {timeout_s:g} s after they were killed")
            time.sleep(0.0005)

    def remove(self, timeout_s: float = 60.0) -> None:
        """Kill all remaining processes and remove this group and all below it. No error if it does not exist."""
        self.kill(timeout_s)
        for directory, _, _ in os.walk(self.path, topdown=False):
            _remove_directory(directory, timeout_s)

    def try_lock(self) -> int | None:
        """Mark the group as used while the returned descriptor (or a copy of it) is open; None if it is used
        already."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor


def _remove_directory(directory: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            os.rmdir(directory)
            return
        except FileNotFoundError:
            return
        except OSError:
            # EBUSY: the last process is dead but not yet gone from the group.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def find_root() -> Path | None:
    """The mount point of version 2, on pure and hybrid machines; None if it is not mounted."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        mounted = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
    mounted.sort(key=lambda path: path not in _USUAL_MOUNTS)
    return Path(mounted[0]) if mounted else None


def sandbox_group(sandbox_id: str) -> Cgroup:
    """The group of one sandbox. Raises `FileNotFoundError` if version 2 is not mounted."""
    root = find_root()
    if root is None:
        raise FileNotFoundError("cgroup version 2 is not mounted; see `brownout doctor`")
    return Cgroup(root / f"{PREFIX}{sandbox_id}")


def reap_leftovers() -> list[str]:
    """Kill and remove the groups of sandboxes whose processes are all gone; returns their names. Used groups stay."""
    root = find_root()
    reaped = []
    for path in sorted(root.glob(f"{PREFIX}*")) if root is not None else []:
        group = Cgroup(path)
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < _LEAST_AGE_S:
                continue
            descriptor = group.try_lock()
            if descriptor is not None:
                group.remove()
                os.close(descriptor)
                reaped.append(path.name)
    return reaped
