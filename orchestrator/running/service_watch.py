"""Watching the services of a run: one that ends though nobody ended it is a finding, not an accident of the tool."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from history.journal import Journal
from nemeses.ports import Host, HostError

LOOK_S = 1.0
_SIGNALLED = 128  # a shell's status of a process that a signal has ended begins here
_LONGEST_LINE = 500


class ServiceWatch:
    """Knows which process each node's service should be. One thread at a time.

    Invariant: a node is watched from the moment its service is known to run until somebody is about to end it, or to
    make it impossible to ask for."""

    def __init__(
        self, hosts: Mapping[str, Host], last_words: Callable[[str], str], journal: Journal, time_scale: float = 1.0
    ) -> None:
        self._hosts = hosts
        self._last_words = last_words
        self._journal = journal
        self._every_s = LOOK_S * time_scale
        self._next_s = 0.0
        self._running: dict[str, int] = {}
        self.ended: dict[str, str] = {}
        """The last words of those that have ended by themselves and do not run again, by node."""

    def expect(self, names: Iterable[str]) -> None:
        """From now on the services that run on these nodes are to go on running."""
        for name in names:
            with contextlib.suppress(HostError):  # a node that cannot be asked now is watched once it has been healed
                pid = self._hosts[name].service_pid()
                if pid is not None:
                    self._running[name] = pid
                    self.ended.pop(name, None)

    def excuse(self, names: Iterable[str]) -> None:
        """Somebody is about to end these, or to make it impossible to ask for them."""
        for name in names:
            self._running.pop(name, None)

    def tick(self) -> None:
        """Look, if it is time to."""
        if time.monotonic() >= self._next_s:
            self.look()
            self._next_s = time.monotonic() + self._every_s

    def look(self) -> None:
        """Record the services that have ended by themselves, each once."""
        for name, pid in list(self._running.items()):
            try:
                now = self._hosts[name].service_pid()
            except HostError:
                continue  # it may be cut off from us, and is asked again
            if now != pid:
                del self._running[name]
                self.ended[name] = self._last_words(name)
                self._record(name, pid, self.ended[name])

    def _record(self, name: str, pid: int, last_words: str) -> None:
        status = None
        with contextlib.suppress(HostError):
            status = self._hosts[name].service_exit(pid)
        if status is not None and status > _SIGNALLED:
            self._journal.service_exit(name, None, status - _SIGNALLED, last_words)
        else:
            self._journal.service_exit(name, status, None, last_words)


def record_fatal_lines(logs: Mapping[str, Path], patterns: Sequence[str], journal: Journal) -> None:
    """Record, of each node's log and for each pattern that the system calls fatal, the first line that matches."""
    for node, path in logs.items():
        left = {pattern: re.compile(pattern) for pattern in patterns}
        with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                for pattern in [pattern for pattern, expression in left.items() if expression.search(line)]:
                    journal.fatal_line(node, pattern, line.strip()[:_LONGEST_LINE])
                    del left[pattern]
                if not left:
                    break
