"""Processor time of this process and of process trees."""

import os
import resource
from pathlib import Path


def own_cpu_s() -> float:
    """User and system time of this process and of its descendants that have ended, in seconds."""
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def cpu_of_tree_s(root: int) -> float:
    """User and system time of a process and of its living and ended descendants, in seconds; 0 without
    /proc."""
    ticks = 0
    for pid in tree_of(root):
        fields = _stat(pid)
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def tree_of(root: int) -> list[int]:
    """A process and the living processes that it started, directly or not."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return [root]
    parents = {pid: int(fields[1]) for pid in pids if (fields := _stat(pid))}
    tree = [root]
    for ancestor in tree:
        tree += [pid for pid, parent in parents.items() if parent == ancestor]
    return tree


def _stat(pid: int) -> list[str]:
    """The fields of a process from its state on; none of one that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
