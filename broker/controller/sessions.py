"""Until when each broker counts as alive. Pure: times are seconds of one clock that the caller reads.

A session that is closed takes no renewal: its broker is on the way out, and an answer that lets it go on as a leader
must wait until that is decided. It is opened again when the committed log says that the broker is in.
"""

from __future__ import annotations

from collections.abc import Iterable


class Sessions:
    """The sessions of the brokers that are not fenced; each starts with a full timeout."""

    def __init__(self, timeout: float, now: float, brokers: Iterable[int]) -> None:
        self._timeout = timeout
        self._deadlines = dict.fromkeys(brokers, now + timeout)

    def open(self, broker: int, now: float) -> None:
        self._deadlines[broker] = now + self._timeout

    def close(self, broker: int) -> None:
        self._deadlines.pop(broker, None)

    def is_open(self, broker: int) -> bool:
        return broker in self._deadlines

    def renew(self, broker: int, now: float) -> None:
        """A sign of life; nothing when the session is closed."""
        if broker in self._deadlines:
            self._deadlines[broker] = now + self._timeout

    def extend(self, by: float) -> None:
        """Prolong all: the time has passed here unseen, and with it perhaps signs of life."""
        for broker in self._deadlines:
            self._deadlines[broker] += by

    def expired(self, now: float) -> list[int]:
        return sorted(broker for broker, deadline in self._deadlines.items() if deadline <= now)

    def next_deadline(self) -> float | None:
        return min(self._deadlines.values(), default=None)
