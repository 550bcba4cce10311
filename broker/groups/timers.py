"""Deadlines by name: set, moved, taken back, and found when they are due."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from broker.groups.group import Group, GroupMember

SESSION = "session"
LEFT_OVER = 64  # deadlines that were moved or taken back, besides as many as there are


class Timer(NamedTuple):
    """The name of a deadline: what is over, in which group, for which member ("" for the group as a whole)."""

    kind: str
    group: str = ""
    member: str = ""


class Timers:
    """Deadlines in seconds. One that was moved or taken back stays in the heap until its old time, and is then left
    out, or until most are such: heartbeats move deadlines all the time, and seldom does one come due. Nothing stays
    of its name, which may be long."""

    def __init__(self) -> None:
        self._set: dict[Timer, tuple[float, int]] = {}
        self._names: dict[int, Timer] = {}
        """By the numbers of those that are set."""
        self._heap: list[tuple[float, int]] = []
        self._count = 0

    def set(self, timer: Timer, at: float) -> None:
        """Set or move a deadline."""
        self._forget(timer)
        self._count += 1
        self._set[timer] = (at, self._count)
        self._names[self._count] = timer
        heappush(self._heap, (at, self._count))
        self._sweep()

    def cancel(self, timer: Timer) -> None:
        self._forget(timer)
        self._sweep()

    def _forget(self, timer: Timer) -> None:
        before = self._set.pop(timer, None)
        if before is not None:
            del self._names[before[1]]

    def _sweep(self) -> None:
        if len(self._heap) > LEFT_OVER + 2 * len(self._set):
            self._heap = list(self._set.values())
            heapify(self._heap)

    def next(self) -> float | None:
        """The earliest deadline."""
        while self._heap:
            at, count = self._heap[0]
            if count in self._names:
                return at
            heappop(self._heap)
        return None

    def due(self, now: float) -> Iterator[Timer]:
        """The deadlines that are over, the earliest first; each is taken back as it comes. What is set meanwhile is for
        the next call, even if it is over too: no length of time that a client may choose keeps a caller here."""
        last = self._count
        while (at := self.next()) is not None and at <= now and self._heap[0][1] <= last:
            timer = self._names[heappop(self._heap)[1]]
            self._forget(timer)
            yield timer


class MemberSessions:
    """How long a member lives without being heard of."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def heard(self, now: float, group: Group, member: GroupMember) -> None:
        """A member lives: its session begins anew."""
        self.open(now, group, member, member.session_timeout_ms / 1000)

    def open(self, now: float, group: Group, member: GroupMember, timeout_s: float) -> None:
        self._timers.set(Timer(SESSION, group.id, member.id), now + timeout_s)

    def close(self, group: Group, member: GroupMember) -> None:
        self._timers.cancel(Timer(SESSION, group.id, member.id))
