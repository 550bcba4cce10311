"""Named deadlines: set, move, cancel, and find those that are due."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from broker.groups.group import Group, GroupMember

SESSION = "session"
LEFT_OVER = 64  # heap entries of moved or cancelled deadlines, in addition to one for each live entry


class Timer(NamedTuple):
    """The name of a deadline: its kind, its group, and its member ("" for the whole group)."""

    kind: str
    group: str = ""
    member: str = ""


class Timers:
    """Deadlines in seconds. A moved or cancelled deadline stays in the heap until its old time, when it is skipped, or
    until most entries are such: heartbeats move deadlines often, and few come due. The heap entry contains only a
    number, because names may be long."""

    def __init__(self) -> None:
        self._set: dict[Timer, tuple[float, int]] = {}
        self._names: dict[int, Timer] = {}
        """The names of the live deadlines by number."""
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
        old_entry = self._set.pop(timer, None)
        if old_entry is not None:
            del self._names[old_entry[1]]

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
        """The deadlines that have passed, earliest first; each is removed when it is returned. A deadline set meanwhile
        is left for the next call, even if it has passed, so that no timeout chosen by a client makes the loop
        endless."""
        last_number = self._count
        while (at := self.next()) is not None and at <= now and self._heap[0][1] <= last_number:
            timer = self._names[heappop(self._heap)[1]]
            self._forget(timer)
            yield timer


class MemberSessions:
    """The session timeouts of members."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def heard(self, now: float, group: Group, member: GroupMember) -> None:
        """A member has sent a request: its session starts again."""
        self.open(now, group, member, member.session_timeout_ms / 1000)

    def open(self, now: float, group: Group, member: GroupMember, timeout_s: float) -> None:
        self._timers.set(Timer(SESSION, group.id, member.id), now + timeout_s)

    def close(self, group: Group, member: GroupMember) -> None:
        self._timers.cancel(Timer(SESSION, group.id, member.id))
