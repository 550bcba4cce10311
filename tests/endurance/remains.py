"""The remains of a killed orchestrator on the machine, distinguished from the state of other runs."""

import contextlib
import os
import re
import time
from pathlib import Path

from orchestrator.machine import cgroups
from tests.worlds.footprint import descendants, loop_devices, machine_wide

_LEAST_AGE_S = 6.0  # a younger control group may belong to a sandbox that is just being made


class Remains:
    """The traces of one orchestrator. What it starts has `mark` in its environment, or `store` in its arguments.

    Take it before the orchestrator starts, call `look` just before it is killed, and `wait_gone` afterwards.
    """

    def __init__(self, mark: str, store: Path) -> None:
        self._mark = mark.encode()
        self._store = str(store).encode()
        self._store_name = re.escape(str(store))
        self._before = machine_wide()
        self._namespaces: set[str] = set()
        self._groups: set[Path] = set()
        self._looked_ticks = 0.0

    def look(self, orchestrator: int) -> None:
        """Note the namespaces and control groups of the orchestrator and of all below it."""
        self._looked_ticks = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        for pid in descendants(orchestrator):
            self._namespaces |= _namespaces(pid)
            self._groups |= _groups(pid)
        self._namespaces -= _namespaces(os.getpid())

    def present(self, run_ids: list[str]) -> dict[str, list[str]]:
        """What is there now, by kind; empty when nothing is."""
        now = machine_wide()
        found = {
            "processes": self._processes(),
            "loop devices": [device for run_id in run_ids for device in loop_devices(run_id)],
            "control groups": [str(group) for group in self._groups if group.exists()],
            **{kind: sorted(now[kind] - self._before[kind]) for kind in now},
        }
        # Others may mount things meanwhile; a sandbox's own mounts name its directories, its disks or the store.
        found["mounts"] = [
            line for line in found["mounts"] if re.search(f"brownout|/dev/loop|{self._store_name}", line)
        ]
        return {kind: sorted(left) for kind, left in found.items() if left}

    def wait_gone(self, run_ids: list[str], timeout_s: float = 5.0) -> dict[str, list[str]]:
        """Wait until nothing is left; what is left after all."""
        deadline = time.monotonic() + timeout_s
        while (left := self.present(run_ids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def _processes(self) -> list[str]:
        found = []
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            with contextlib.suppress(OSError):
                state, started_ticks = _state(pid)
                if state in "ZX" or pid == os.getpid():  # one that has ended stays listed until its parent asks
                    continue
                directory = Path(f"/proc/{pid}")
                arguments = (directory / "cmdline").read_bytes()
                ours = self._store in arguments or self._mark in (directory / "environ").read_bytes()
                # The kernel reuses the numbers of namespaces: a process that started later belongs to another sandbox.
                before = started_ticks <= self._looked_ticks
                if ours or (before and _namespaces(pid) & self._namespaces):
                    found.append(f"{pid} {arguments.replace(bytes(1), b' ').decode(errors='replace')[:80]}")
        return found


def orphaned_groups() -> list[str]:
    """Control groups of sandboxes whose every process is gone: what the next run's janitor has to remove."""
    root = cgroups.find_root()
    found = []
    for path in sorted(root.glob(f"{cgroups.PREFIX}*")) if root is not None else []:
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < _LEAST_AGE_S:
                continue
            descriptor = cgroups.Cgroup(path).try_lock()
            if descriptor is not None:
                os.close(descriptor)
                found.append(str(path))
    return found


def _state(pid: int) -> tuple[str, int]:
    """A process's state, and its start time in clock ticks since boot."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return fields[0], int(fields[19])


def _namespaces(pid: int) -> set[str]:
    found = set()
    for kind in ("pid", "net", "mnt"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return found


def _groups(pid: int) -> set[Path]:
    """The control groups that a process holds locked: an outer parent its sandbox's."""
    prefix = f"{cgroups.find_root()}/{cgroups.PREFIX}"
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith(prefix):
                    found.add(Path(target))
    return found
