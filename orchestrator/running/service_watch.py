"""Watches the services of a run. A service that stops or ends without a fault is a finding about the system."""

import contextlib
import re
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from history.journal.service_events import ENDED, ENDED_BADLY, NOT_UP, RESTARTED, RUNNING, STOOD_STILL, STOPPED
from history.journal.writer import Journal
from nemeses.kind import ServiceUnder
from nemeses.mechanisms.service import Process, see_process
from nemeses.ports import Host, HostError
from nemeses.scheduling import REAL_TIME, Scheduler
from orchestrator.running.event_tail import LogTail

# ---- Determines how a process of the system ended: its status, messages of the kernel, and a core dump.

_SIGNALLED = 128  # a shell adds this to the number of the signal that ended a process
_STATUS_S = 5.0  # the process that waits for it may get no CPU for a while
_AGAIN_S = 0.05
_DUMPS_CORE = frozenset(
    {signal.SIGQUIT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGSEGV}
)

KernelWords = Callable[[str, int], str]
"""The kernel's message about killing this node's process for lack of memory; empty without one."""


@dataclass(frozen=True)
class ExitCause:
    """How a process ended, as far as it is known."""

    exit_code: int | None
    signal: int | None
    kernel: str = ""
    core: str = ""


class Autopsy:
    """Examines ended processes of one run. No method raises when a host does not answer."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        time_scale: float = 1.0,
        kernel_words: KernelWords = lambda _name, _pid: "",
        scheduler: Scheduler = REAL_TIME,
    ) -> None:
        self._hosts = hosts
        self._patience_s = _STATUS_S * time_scale
        self._kernel_words = kernel_words
        self._scheduler = scheduler

    def status(self, name: str, pid: int | None) -> int | None:
        """The exit status, None if unknown. `pid`: None for the service that was started last. Waits for a moment,
        since the parent process learns of the end slightly later than an observer."""
        give_up_s = self._scheduler.monotonic() + self._patience_s
        with contextlib.suppress(HostError):
            while (status := self._hosts[name].service_exit(pid)) is None and self._scheduler.monotonic() < give_up_s:
                self._scheduler.sleep(_AGAIN_S)
            return status
        return None

    def of(self, name: str, pid: int | None, status: int | None) -> ExitCause:
        """The known facts about the end of a process with this status."""
        if status is None or status <= _SIGNALLED:
            return ExitCause(status, None)
        number = status - _SIGNALLED
        kernel = self._kernel_words(name, pid) if number == signal.SIGKILL and pid is not None else ""
        return ExitCause(None, number, kernel, self._core(name) if number in _DUMPS_CORE else "")

    def _core(self, name: str) -> str:
        """The path of a core dump in the service's data directory, or empty."""
        host = self._hosts[name]
        place = shlex.quote(host.data_dir)
        with contextlib.suppress(HostError):
            return host.run(f"ls -1td {place}/core {place}/core.* 2>/dev/null | head -n 1").stdout.strip()
        return ""


LOOK_S = 1.0
MOST_EVENTS: Final = 10_000
"""Of one node's log in a journal."""
_LONGEST_LINE = 500
_BEFORE = 100


@dataclass
class _Watched:
    """One node. `process`: the process that should run; None if unknown. `under`: the faults on it, by their effect on
    services. `tells_stop`: whether a stop of the process is to be recorded."""

    process: Process | None = None
    under: Counter[ServiceUnder] = field(default_factory=Counter)
    tells_stop: bool = True


class ServiceWatch:
    """Tracks which process each node's service should be, and whether it should run. One thread at a time.

    Invariant: a process is watched from the moment it is known to run until the run loop is about to end it. While a
    fault makes it impossible to query, it is not queried, and must be the same one afterwards."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        last_words: Callable[[str], str],
        journal: Journal,
        time_scale: float = 1.0,
        autopsy: Autopsy | None = None,
        scheduler: Scheduler = REAL_TIME,
        *,
        before_record: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_record`: called before the journal gets a service's action, so that a cause on the tester's side is
        recorded first."""
        self._hosts = hosts
        self._before_record = before_record
        self._last_words = last_words
        self._journal = journal
        self._scheduler = scheduler
        self._every_s = LOOK_S * time_scale
        self._next_s = 0.0
        self._watched: dict[str, _Watched] = {}
        self._autopsy = autopsy or Autopsy(hosts, time_scale, scheduler=scheduler)
        self.ended: dict[str, str] = {}
        """By node: the last output of services that ended unexpectedly and do not run again."""

    def expect(self, names: Iterable[str]) -> None:
        """The services of these nodes were started, if they did not run, and should keep running. One that was expected
        to run all the time must still be the same process."""
        for name in names:
            watched = self._node(name)
            with contextlib.suppress(HostError):  # `attest` reports a service that is never seen again
                now = see_process(self._hosts[name])
                if watched.process is not None:
                    self._compare(name, watched, now)
                elif now is not None:
                    self._take(name, watched, now)
                elif name not in self.ended:
                    self._say_not_up(name)
                # Otherwise the cause of the stop, perhaps a fault, is still in force.
                if now is None or not now.is_stopped:
                    watched.under.clear()

    def excuse(self, names: Iterable[str]) -> None:
        """The run loop is about to end these services."""
        for name in names:
            self._node(name).process = None

    def begin(self, under: ServiceUnder, names: Collection[str]) -> None:
        """A fault with this effect on services is about to be injected on these nodes."""
        if under == "ended":
            self.excuse(names)
            return
        for name in names:
            self._node(name).under[under] += 1

    def end(self, under: ServiceUnder, names: Collection[str], *, seen: bool = True) -> None:
        """That fault has been healed, and ended services were started. Without `seen` evidence of the heal, the fault's
        effect on services may continue and is still attributed to it."""
        if under == "ended":
            self.expect(names)
        elif seen:
            for name in names:  # a start in between may have ended it early
                watched = self._node(name)
                watched.under[under] = max(0, watched.under[under] - 1)

    def tick(self) -> None:
        """Look, if the interval is over."""
        if self._scheduler.monotonic() >= self._next_s:
            self.look()
            self._next_s = self._scheduler.monotonic() + self._every_s

    def look(self) -> None:
        """Record each unexpected action of a service once."""
        for name, watched in self._watched.items():
            if watched.process is None or watched.under["unseen"] > 0:
                continue
            with contextlib.suppress(HostError):  # the host may be unreachable; it is asked again
                self._compare(name, watched, see_process(self._hosts[name]))

    def attest(self) -> None:
        """Record which services are seen to run at the end of a run: the others are a doubt."""
        for name, watched in self._watched.items():
            with contextlib.suppress(HostError):
                now = see_process(self._hosts[name])
                if watched.process is not None:
                    self._compare(name, watched, now)
                if now is not None and not now.is_stopped:
                    self._journal.node(name, RUNNING, pid=now.pid, start=now.start)

    def running(self) -> list[str]:
        """The nodes whose services are seen to run now."""
        running_nodes = []
        for name in self._watched:
            with contextlib.suppress(HostError):
                if (now := see_process(self._hosts[name])) is not None and not now.is_stopped:
                    running_nodes.append(name)
        return running_nodes

    def pids(self) -> dict[str, int]:
        """The processes that should run, by node."""
        return {name: watched.process.pid for name, watched in self._watched.items() if watched.process is not None}

    def say_stopped(self, name: str, pid: int | None, signalled: int | None, accepted: Collection[int]) -> None:
        """Record that a service has ended. `pid`: the process that ran (None: none). `signalled`: the process that was
        asked to end; it differs if `pid` ended unexpectedly just before. `accepted`: exit codes, in a shell's
        numbering, that the system declares for an orderly stop."""
        status = None if pid is None else self._autopsy.status(name, pid)
        if pid is not None and pid != signalled:
            self._record(name, ENDED if signalled is None else RESTARTED, pid, status)
        elif pid is not None and status is not None and status not in accepted:
            self._record(name, ENDED_BADLY, pid, status)
        self._journal.node(name, STOPPED, status=status, ran=pid is not None)

    def _node(self, name: str) -> _Watched:
        return self._watched.setdefault(name, _Watched())

    def _take(self, name: str, watched: _Watched, process: Process) -> None:
        watched.process, watched.tells_stop = process, True
        self.ended.pop(name, None)

    def _compare(self, name: str, watched: _Watched, now: Process | None) -> None:
        """Record it when the process that should run is gone or stopped."""
        expected = watched.process
        assert expected is not None, "only a process that should run is compared"
        if now is None or not now.is_same(expected):
            self._record(name, ENDED if now is None else RESTARTED, expected.pid)
            watched.process = None
            if now is not None:
                self._take(name, watched, now)
        elif not now.is_stopped:
            watched.tells_stop = True
        elif watched.under["stopped"] == 0 and watched.tells_stop:
            watched.tells_stop = False
            self._before_record()
            self._journal.service_exit(name, None, None, self._last_words(name), way=STOOD_STILL)

    def _say_not_up(self, name: str) -> None:
        """Record a service that was started and does not run: as ended, if its end is known, otherwise as possibly
        never started."""
        status = self._autopsy.status(name, None)
        if status is not None:
            self._record(name, NOT_UP, None, status)

    def _record(self, name: str, way: str, pid: int | None, status: int | None = None) -> None:
        self._before_record()
        last_output = self._last_words(name)
        ending = self._autopsy.of(name, pid, self._autopsy.status(name, pid) if status is None else status)
        self._journal.service_exit(
            name, ending.exit_code, ending.signal, last_output, way=way, kernel=ending.kernel, core=ending.core
        )
        if way in (ENDED, NOT_UP):
            self.ended[name] = last_output


def record_fatal_lines(logs: Mapping[str, Path], patterns: Sequence[str], journal: Journal) -> None:
    """For each node's log and each pattern that the system calls fatal: record the first matching line."""
    for node, path in logs.items():
        remaining = {pattern: re.compile(pattern) for pattern in patterns}
        with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                matches = {
                    pattern: match for pattern, expression in remaining.items() if (match := expression.search(line))
                }
                for pattern, match in matches.items():
                    journal.fatal_line(node, pattern, _around(match))
                    del remaining[pattern]
                if not remaining:
                    break


class LogEvents:
    """Records the log lines that the system declares to be events, soon after they are written."""

    def __init__(self, logs: Mapping[str, Path], names: Mapping[str, str], journal: Journal) -> None:
        """`logs`: by node. `names`: of events, by regular expression; of several that match a line the first counts."""
        self._tails = {node: LogTail(path) for node, path in logs.items()} if names else {}
        self._names = [(re.compile(pattern), name) for pattern, name in names.items()]
        self._journal = journal
        self._left = dict.fromkeys(logs, MOST_EVENTS)

    def look(self) -> None:
        """Record the events in the lines since the last call; after `MOST_EVENTS` of a node no more."""
        for node, tail in self._tails.items():
            for line in tail.next_lines():
                matches = ((match, name) for expression, name in self._names if (match := expression.search(line)))
                if self._left[node] > 0 and (event := next(matches, None)):
                    self._left[node] -= 1
                    self._journal.log_event(node, event[1], _around(event[0]))
                    if not self._left[node]:
                        self._journal.note(f"{node}: its log has {MOST_EVENTS:,} events; further ones are left out")


def _around(match: re.Match[str]) -> str:
    """The line of a match; of a line that is too long, the part that starts shortly before the match."""
    begins = 0 if match.end() <= _LONGEST_LINE else max(0, match.start() - _BEFORE)
    return match.string[begins:].strip()[:_LONGEST_LINE]
