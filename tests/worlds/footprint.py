"""The traces of a sandbox on the machine: processes, and every resource that outlives processes."""

import contextlib
import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.machine import cgroups

_LOOP_GET_STATUS64 = 0x4C05


def machine_wide() -> dict[str, set[str]]:
    """What every process of the machine would see: mounts, network devices and named network namespaces."""
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "mounts": set(Path("/proc/self/mounts").read_text().splitlines()),
        "links": {line.split()[0] for line in links.splitlines()},
        "network namespaces": set(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else set(),
    }


class Footprint:
    """One sandbox's traces, by its outer parent's pid. Look once while it runs; then wait until all of them are gone.

    The kernel reuses the numbers of namespaces, also for other sandboxes: a process that started later counts only in
    this one's control group.
    """

    def __init__(self, outer: int, run_id: str) -> None:
        self._run_id = run_id
        self._namespaces = {each for pid in descendants(outer) for each in _namespaces(pid)} - _namespaces(os.getpid())
        self._group = _group_of(outer)
        self._looked = float(Path("/proc/uptime").read_text().split()[0])

    def present(self) -> dict[str, object]:
        """What is there now, by kind; empty when nothing is."""
        found = {
            "processes": sorted(set(self._processes())),
            "loop devices": sorted(loop_devices(self._run_id)),
            "control group": str(self._group) if self._group is not None and self._group.exists() else None,
        }
        return {kind: value for kind, value in found.items() if value}

    def wait_gone(self, timeout_s: float = 300.0) -> dict[str, object]:
        """Wait until nothing is left; what is left after all. A busy machine takes its time to end processes."""
        deadline = time.monotonic() + timeout_s
        while (left := self.present()) and time.monotonic() < deadline:
            time.sleep(0.005)
        return left

    def _processes(self) -> Iterator[int]:
        return (pid for pid in filter(_lives, _pids()) if _namespaces(pid) & self._namespaces and self._is_its(pid))

    def _is_its(self, pid: int) -> bool:
        try:
            ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])
            groups = Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            return False  # it has ended meanwhile
        began = ticks / os.sysconf("SC_CLK_TCK")
        return began <= self._looked or (self._group is not None and self._group.name in groups)


def descendants(pid: int) -> set[int]:
    """A process and all below it, as far as they can be seen from here."""
    parents: dict[int, int] = {}
    for each in _pids():
        try:
            parents[each] = int(Path(f"/proc/{each}/stat").read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def children(pid: int) -> list[int]:
    """Direct children, in the order of their pids."""
    return sorted(int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _lives(pid: int) -> bool:
    """Whether it still runs. One that has ended stays listed until its parent asks, which is the machine's own init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def _namespaces(pid: int) -> set[str]:
    """The namespaces that a process is in; fewer, or none, when it ends meanwhile."""
    found = set()
    for kind in ("pid", "net", "mnt"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return found


def _group_of(outer: int) -> Path | None:
    """The sandbox's control group, found by the descriptor with which its outer parent holds the lock."""
    root = cgroups.find_root()
    for name in os.listdir(f"/proc/{outer}/fd"):
        target = os.readlink(f"/proc/{outer}/fd/{name}")
        if target.startswith(f"{root}/{cgroups.PREFIX}"):
            return Path(target)
    return None


def loop_devices(run_id: str) -> Iterator[str]:
    """The loop devices of one run's disks, by the label that each has."""
    for block in Path("/sys/block").glob("loop*/loop/backing_file"):
        device = f"/dev/{block.parents[1].name}"
        status = bytearray(232)
        try:
            with open(device, "rb") as opened:
                fcntl.ioctl(opened, _LOOP_GET_STATUS64, status)
        except OSError:
            continue  # it was detached meanwhile
        (label,) = struct.unpack_from("64s", status, 56)
        if label.rstrip(b"\0").decode().startswith(f"brownout {run_id} "):
            yield device
