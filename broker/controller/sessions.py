"""Broker sessions and leases: until when each broker counts as alive, and may answer as a leader. Pure: times are
seconds of one clock that the caller reads.

A closed session is not renewed: its broker is about to be fenced, and an answer that lets it continue as a leader must
wait for that decision. The session is opened again when the committed log shows that the broker is unfenced.

Invariant: no session ends before the lease that its broker may hold, so a broker that is fenced after its session no
longer answers. If a broker looks dead, its session is shortened to the end of that lease, but not further: a firewall
refuses connections just as the host of a dead process does.

The lease ends by the broker's clock, and this node waits for it by its own. Clocks are assumed to gain or lose at most
10 %. The wait is longer than the lease by the resulting factor of a fast and a slow clock, but at most a session.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.clock_rates import PACE


def longest_lease(timeout: float, lease: float) -> float:
    """The lease that a controller with these settings gives: it ends within a session by any clock. In the unit of the
    arguments."""
    return min(lease, timeout / PACE)


class Sessions:
    """The sessions of the brokers that are not fenced; each starts with a full timeout.

    `lease`: how long a broker acts on an answer, from the time of its request. Leases of earlier controllers last until
    `earlier_end` at the latest (see `active`). Such a lease continues if a broker asks this node and the answer is
    lost.
    """

    def __init__(self, timeout: float, lease: float, now: float, brokers: Iterable[int], earlier_end: float) -> None:
        self._timeout = timeout
        self._lease = min(timeout, PACE * lease)  # by this clock
        self._deadlines = dict.fromkeys(brokers, max(now + timeout, earlier_end))
        self._lease_ends = dict.fromkeys(brokers, earlier_end)

    def open(self, broker: int, now: float) -> None:
        self._lease_ends[broker] = max(now + self._lease, self._lease_ends.get(broker, now))
        self._deadlines[broker] = max(now + self._timeout, self._lease_ends[broker])

    def close(self, broker: int) -> None:
        self._deadlines.pop(broker, None)
        self._lease_ends.pop(broker, None)

    def is_open(self, broker: int) -> bool:
        return broker in self._deadlines

    def renew(self, broker: int, now: float) -> None:
        """The broker asked before `now` and is about to be answered. No effect on a closed session."""
        if broker in self._deadlines:
            self.open(broker, now)

    def lease_ends_at(self, broker: int) -> float | None:
        """When the last lease that the broker may hold has ended; None once its session is closed."""
        return self._lease_ends.get(broker)

    def end_with_lease(self, broker: int, not_before: float) -> None:
        """The broker looks dead: end its session with its lease, but not before a time, unless it asks again. No effect
        on a closed session."""
        if broker in self._deadlines:
            self._deadlines[broker] = min(self._deadlines[broker], max(not_before, self._lease_ends[broker]))

    def extend(self, by: float) -> None:
        """Extend all sessions: this process was blocked meanwhile, and may have missed signs of life."""
        for broker in self._deadlines:
            self._deadlines[broker] += by

    def expired(self, now: float) -> list[int]:
        return sorted(broker for broker, deadline in self._deadlines.items() if deadline <= now)

    def next_deadline(self) -> float | None:
        return min(self._deadlines.values(), default=None)
