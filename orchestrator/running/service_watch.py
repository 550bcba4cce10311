"""Watching the services of a run: what one does that nobody ordered is a finding, not an accident of the tool."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from history.journal import Journal
from history.service_events import ENDED, ENDED_BADLY, NOT_UP, RESTARTED, RUNNING, STOOD_STILL, STOPPED
from nemeses.kind import ServiceUnder
from nemeses.mechanisms.service import Process, see_process
from nemeses.ports import Host, HostError
from nemeses.scheduling import REAL_TIME, Scheduler
from orchestrator.running.exit_cause import Autopsy

LOOK_S = 1.0
_LONGEST_LINE = 500
_BEFORE = 100


@dataclass
class _Watched:
    """One node. `process`: the one that should run; None: none is known to. `under`: the faults of ours on it, by what
    becomes of services under them. `tells_stop`: whether a stop of the process would be news."""

    process: Process | None = None
    under: Counter[ServiceUnder] = field(default_factory=Counter)
    tells_stop: bool = True


class ServiceWatch:
    """Knows which process each node's service should be, and whether it should run. One thread at a time.

    Invariant: a process is watched from the moment it is known to run until somebody is about to end it; while a fault
    makes it impossible to ask for it, it is not asked for, and must be the same one afterwards."""

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
        """`before_record`: called before the journal gets what a service did, so that the cause, where the tester has
        it, comes first."""
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
        """The last words of those that have ended by themselves and do not run again, by node."""

    def expect(self, names: Iterable[str]) -> None:
        """The services of these nodes have been started, where they did not run, and are to go on running. One that was
        expected to run all the time must still be the same."""
        for name in names:
            watched = self._node(name)
            with contextlib.suppress(HostError):  # one that is never seen again is missing in `attest`
                now = see_process(self._hosts[name])
                if watched.process is not None:
                    self._compare(name, watched, now)
                elif now is not None:
                    self._take(name, watched, now)
                elif name not in self.ended:
                    self._say_not_up(name)
                if now is None or not now.is_stopped:  # else what stopped it, perhaps a fault of ours, is not over
                    watched.under.clear()

    def excuse(self, names: Iterable[str]) -> None:
        """Somebody is about to end these."""
        for name in names:
            self._node(name).process = None

    def begin(self, under: ServiceUnder, names: Collection[str]) -> None:
        """A fault is about to be inflicted on these nodes, with this effect on their services."""
        if under == "ended":
            self.excuse(names)
            return
        for name in names:
            self._node(name).under[under] += 1

    def end(self, under: ServiceUnder, names: Collection[str], *, seen: bool = True) -> None:
        """That fault has been healed; services that had ended were started. Unless that was `seen`, what it does to
        services may go on, and is still nobody else's doing."""
        if under == "ended":
            self.expect(names)
        elif seen:
            for name in names:  # a start in between may have ended it before its time
                watched = self._node(name)
                watched.under[under] = max(0, watched.under[under] - 1)

    def tick(self) -> None:
        """Look, if it is time to."""
        if self._scheduler.monotonic() >= self._next_s:
            self.look()
            self._next_s = self._scheduler.monotonic() + self._every_s

    def look(self) -> None:
        """Record what services have done that nobody ordered, each deed once."""
        for name, watched in self._watched.items():
            if watched.process is None or watched.under["unseen"] > 0:
                continue
            with contextlib.suppress(HostError):  # it may be cut off from us, and is asked again
                self._compare(name, watched, see_process(self._hosts[name]))

    def attest(self) -> None:
        """Record which services are seen to run, by themselves, at the end of a run: the others are in doubt."""
        for name, watched in self._watched.items():
            with contextlib.suppress(HostError):
                now = see_process(self._hosts[name])
                if watched.process is not None:
                    self._compare(name, watched, now)
                if now is not None and not now.is_stopped:
                    self._journal.node(name, RUNNING, pid=now.pid, start=now.start)

    def pids(self) -> dict[str, int]:
        """The processes that should run, by node."""
        return {name: each.process.pid for name, each in self._watched.items() if each.process is not None}

    def say_stopped(self, name: str, pid: int | None, asked: int | None, accepted: Collection[int]) -> None:
        """Record that a service has ended. `pid`: the process that ran (None: none did), `asked`: the one that was
        asked to end; another one, or none, was found when `pid` had ended just before by itself. `accepted`: the exit
        codes, as shells have them, that the system declares for one that was asked."""
        status = None if pid is None else self._autopsy.status(name, pid)
        if pid is not None and pid != asked:
            self._record(name, ENDED if asked is None else RESTARTED, pid, status)
        elif pid is not None and status is not None and status not in accepted:
            self._record(name, ENDED_BADLY, pid, status)
        self._journal.node(name, STOPPED, status=status, ran=pid is not None)

    def _node(self, name: str) -> _Watched:
        return self._watched.setdefault(name, _Watched())

    def _take(self, name: str, watched: _Watched, process: Process) -> None:
        watched.process, watched.tells_stop = process, True
        self.ended.pop(name, None)

    def _compare(self, name: str, watched: _Watched, now: Process | None) -> None:
        """Record it when the process that should run is not there any more, or stands still."""
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
        """A service that was started and does not run has ended, where its end is known; where it is not, nobody knows
        whether it was started."""
        status = self._autopsy.status(name, None)
        if status is not None:
            self._record(name, NOT_UP, None, status)

    def _record(self, name: str, way: str, pid: int | None, status: int | None = None) -> None:
        self._before_record()
        words = self._last_words(name)
        found = self._autopsy.of(name, pid, self._autopsy.status(name, pid) if status is None else status)
        self._journal.service_exit(
            name, found.exit_code, found.signal, words, way=way, kernel=found.kernel, core=found.core
        )
        if way in (ENDED, NOT_UP):
            self.ended[name] = words


def record_fatal_lines(logs: Mapping[str, Path], patterns: Sequence[str], journal: Journal) -> None:
    """Record, of each node's log and for each pattern that the system calls fatal, the first line that matches."""
    for node, path in logs.items():
        left = {pattern: re.compile(pattern) for pattern in patterns}
        with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = {pattern: match for pattern, expression in left.items() if (match := expression.search(line))}
                for pattern, match in found.items():
                    journal.fatal_line(node, pattern, _around(match))
                    del left[pattern]
                if not left:
                    break


def _around(match: re.Match[str]) -> str:
    """The line in which something was found; of one that is too long, from shortly before that on."""
    begins = 0 if match.end() <= _LONGEST_LINE else max(0, match.start() - _BEFORE)
    return match.string[begins:].strip()[:_LONGEST_LINE]
