"""Detects that the tester itself ran out of disk, descriptors or memory.

Theory of operation. A node may share a filesystem, a limit or the memory of this machine with the tester. When the
tester runs out of one of these, a process of the system may end, and a client may lose its record, through no fault of
the system. `OwnResources` therefore looks at the tester's own resources while the run waits, and once more before the
journal says what a process of the system did. What it finds goes into the journal (`tester_short`), with the time of
the last look that found enough. The analysis takes no anomaly for proven whose evidence is younger than that time
(`analysis.evidence.tester_shortages`). The journal keeps disk space for this (`history.reserve`).

Three kinds of evidence count:
- a look: too few free bytes or inodes on a filesystem that the run writes to, no free descriptor, a process limit that
  is too low for a run;
- an error of the orchestrator that names one of these resources;
- an error, or a SIGKILL by the kernel, that ended a client. Errors come later than the shortage: they count for the
  seconds before them, too.

A disk that a fault fills is a disk of a node: it is on none of the filesystems that are looked at.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from history.journal import Journal
from installation.counted import counted
from nemeses.scheduling import Scheduler
from orchestrator.worlds.selection import LEAST_FILES

LEAST_FREE: Final = 8 << 20
"""Bytes. Below this, a service's next write, such as a batch or a segment's index, may not fit."""
LEAST_INODES: Final = 64
BEFORE_ERROR_NS: Final = 15_000_000_000
"""How long before an error the resource may have been short: a client waits for its outcome before it ends."""

_LIMITS: Final = {
    "RLIMIT_NOFILE": ("descriptors", LEAST_FILES),
    "RLIMIT_FSIZE": ("disk", 1 << 30),
    "RLIMIT_AS": ("memory", 2 << 30),
    "RLIMIT_DATA": ("memory", 2 << 30),
    "RLIMIT_NPROC": ("processes", 256),
}
"""Process limits that local nodes inherit: the resource, and the least value for a run."""
_RESOURCE_OF: Final = {
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
    errno.EFBIG: "disk",
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.ENOMEM: "memory",
}
_CLIENT_ERROR: Final = re.compile(r"(?P<kind>\w+): (\[Errno (?P<number>\d+)\])?")
"""How a client reports the error that ended it. Answers of the system have another form."""
_EVERY_S: Final = 0.05


class OwnResources:
    """The resources of one run's tester. Call it from the main thread.

    `places`: directories that the run writes to; several on one filesystem count once.
    """

    def __init__(self, places: Sequence[Path], journal: Journal, scheduler: Scheduler) -> None:
        self._places = _one_of_each_filesystem(places)
        self._journal = journal
        self._scheduler = scheduler
        self._ample_ns = self._now_ns()
        self._oom_kills = _oom_kills()
        self._oom_ns: int | None = None
        self._recorded: set[str] = set()
        self._next_s = 0.0

    def tick(self) -> None:
        """Look, if the interval of this machine's clock is over: a simulated run waits far more often."""
        if time.monotonic() >= self._next_s:
            self.look()
            self._next_s = time.monotonic() + _EVERY_S

    def look(self) -> None:
        """Record each resource that is short, once."""
        self._look_at_memory()
        found = list(self._short())
        for name, seen in found:
            self._record(name, self._ample_ns, seen)
        if not found:
            self._ample_ns = self._now_ns()

    def failed(self, error: BaseException) -> None:
        """Record the shortage that caused this error of the orchestrator, if any."""
        self.look()
        for each in _chain(error):
            if name := _resource_of(each):
                self._record_error(name, f"the orchestrator failed: {each}")

    def client_failed(self, name: str, words: Sequence[str], exit_code: int | None) -> None:
        """Record the shortage that ended a client, if any. `words`: its error output; `exit_code`: negative for a
        signal."""
        self.look()
        for text in words:
            if short := resource_named(text):
                self._record_error(short, f"client {name} failed: {text}")
        if exit_code == -signal.SIGKILL and self._oom_ns is not None:
            seen = f"client {name} was killed, and the kernel has killed processes for lack of memory"
            self._record("memory", self._oom_ns - BEFORE_ERROR_NS, seen)

    def _now_ns(self) -> int:
        """The run's time. `Scheduler.monotonic_ns` would move the virtual clock, at moments of this machine's clock."""
        return round(self._scheduler.monotonic() * 1e9)

    def _look_at_memory(self) -> None:
        """Note when the kernel first killed a process for lack of memory; it does not report whose process it was."""
        if self._oom_ns is None and _oom_kills() > self._oom_kills:
            self._oom_ns = self._now_ns()

    def _short(self) -> Iterator[tuple[str, str]]:
        if not self._journal.has_room:
            yield "disk", "no space could be kept for the journal"
        yield from _short_disks(self._places)
        yield from _short_limits()
        if why := _no_descriptor():
            yield "descriptors", why

    def _record_error(self, name: str, seen: str) -> None:
        self._record(name, self._now_ns() - BEFORE_ERROR_NS, seen)

    def _record(self, name: str, since_ns: int, seen: str) -> None:
        if name in self._recorded:
            return
        self._recorded.add(name)
        try:
            self._journal.tester_short(name, since=since_ns, seen=seen)
        except OSError:  # even the reserve is used up: the journal then has no end, which has the same effect
            self._recorded.discard(name)


def resource_named(text: str) -> str:
    """The resource named by the error that ended a client; empty without one."""
    found = _CLIENT_ERROR.match(text)
    if found is None:
        return ""
    if found["kind"] == "MemoryError":
        return "memory"
    return _RESOURCE_OF.get(int(found["number"] or 0), "")


def _resource_of(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "memory"
    number = error.errno if isinstance(error, OSError) else None
    return _RESOURCE_OF.get(number, "") if number is not None else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and the errors that it was raised from or while handling."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _one_of_each_filesystem(places: Sequence[Path]) -> list[Path]:
    found: dict[int, Path] = {}
    for place in places:
        try:
            found.setdefault(place.stat().st_dev, place)
        except OSError:
            continue  # not present in this world
    return list(found.values())


def _short_disks(places: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for place in places:
        try:
            state = os.statvfs(place)
        except OSError:
            continue  # removed together with the world
        free_blocks = state.f_bfree if os.geteuid() == 0 else state.f_bavail
        free, inodes = free_blocks * state.f_frsize, state.f_ffree if os.geteuid() == 0 else state.f_favail
        if free < LEAST_FREE:
            yield "disk", f"{place} has {free} bytes free, and a run needs {LEAST_FREE}"
        elif state.f_files > 0 and inodes < LEAST_INODES:
            yield "disk", f"{place} has {counted(inodes, 'inode')} free, and a run needs {LEAST_INODES}"


def _short_limits() -> Iterator[tuple[str, str]]:
    for limit, (name, least) in _LIMITS.items():
        soft, _ = resource.getrlimit(getattr(resource, limit))
        if soft != resource.RLIM_INFINITY and soft < least:
            yield name, f"{limit} is {soft}, and a run needs {least}"


def _no_descriptor() -> str:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return str(error)
    return ""


def _oom_kills(read: Callable[[], str] = lambda: Path("/proc/vmstat").read_text(encoding="ascii")) -> int:
    """How often the kernel has killed a process for lack of memory since boot; 0 if it does not count that."""
    try:
        found = re.search(r"^oom_kill (\d+)$", read(), re.MULTILINE)
    except OSError:
        return 0
    return 0 if found is None else int(found[1])
