"""Until when each broker counts as alive, and until when it may answer as a leader. Pure: times are seconds of one
clock that the caller reads.

A session that is closed takes no renewal: its broker is on the way out, and an answer that lets it go on as a leader
must wait until that is decided. It is opened again when the committed log says that the broker is in.

Invariant: no session ends before the lease that its broker may hold, so whoever is fenced because a session has ended
answers nobody any more. What makes a broker look dead shortens its session down to that lease, and no further: a
firewall refuses connections just as the host of a dead process does.

The lease ends by its holder's clock, and is waited for by this one. Assumed is that clocks gain or lose at most 10 %:
the wait is longer than the lease by what a fast clock and a slow one make of that, but no longer than a session.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_DRIFT = 0.1
"""By how much of itself a time may seem longer or shorter to a broker."""
PACE = (1 + MOST_DRIFT) / (1 - MOST_DRIFT)
"""So much longer a time is waited for that the slowest clock measures, on the fastest."""


class Sessions:
    """The sessions of the brokers that are not fenced; each starts with a full timeout.

    `lease` is for how long a broker acts on an answer, from when it asked. An earlier controller may have given one
    that lasts for `earlier` seconds from `now` (see `active`), and goes on where a broker asks here and does not get
    the answer. If `lease` is more than `timeout` / `PACE`, nothing here keeps it from outliving a session on clocks
    that drift.
    """

    def __init__(self, timeout: float, lease: float, now: float, brokers: Iterable[int], earlier: float) -> None:
        self._timeout = timeout
        self._lease = min(timeout, PACE * lease)  # by this clock
        self._deadlines = dict.fromkeys(brokers, now + max(timeout, earlier))
        self._lease_ends = dict.fromkeys(brokers, now + earlier)

    def open(self, broker: int, now: float) -> None:
        self._lease_ends[broker] = max(now + self._lease, self._lease_ends.get(broker, now))
        self._deadlines[broker] = max(now + self._timeout, self._lease_ends[broker])

    def close(self, broker: int) -> None:
        self._deadlines.pop(broker, None)
        self._lease_ends.pop(broker, None)

    def is_open(self, broker: int) -> bool:
        return broker in self._deadlines

    def renew(self, broker: int, now: float) -> None:
        """It asked, before `now`, and is about to be answered; nothing when the session is closed."""
        if broker in self._deadlines:
            self.open(broker, now)

    def lease_ends_at(self, broker: int) -> float | None:
        """When the last lease has ended that the broker may hold; None once its session is closed."""
        return self._lease_ends.get(broker)

    def end_with_lease(self, broker: int) -> None:
        """It looks dead: wait for its lease and no longer, unless it asks again. Nothing when the session is closed."""
        if broker in self._deadlines:
            self._deadlines[broker] = min(self._deadlines[broker], self._lease_ends[broker])

    def extend(self, by: float) -> None:
        """Prolong all: the time has passed here unseen, and with it perhaps signs of life."""
        for broker in self._deadlines:
            self._deadlines[broker] += by

    def expired(self, now: float) -> list[int]:
        return sorted(broker for broker, deadline in self._deadlines.items() if deadline <= now)

    def next_deadline(self) -> float | None:
        return min(self._deadlines.values(), default=None)
