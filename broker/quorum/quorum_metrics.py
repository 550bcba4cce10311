"""Metrics of a quorum member: latencies, rates and idle ratio (K595-52). Pure: the caller passes the time.

All values cover the last 30 seconds, in buckets of one second, so that memory does not grow with the load.
"""

from collections import deque
from dataclasses import dataclass

SPAN_S = 30


@dataclass(slots=True)
class _Bucket:
    second: int
    count: int = 0
    total: float = 0.0
    largest: float = 0.0


class Window:
    """The numbers of the last `SPAN_S` seconds."""

    def __init__(self) -> None:
        self._buckets: deque[_Bucket] = deque()

    def note(self, now: float, value: float) -> None:
        """Add a number at `now`, which never decreases."""
        second = int(now)
        if not self._buckets or self._buckets[-1].second != second:
            self._buckets.append(_Bucket(second))
            self._forget(now)
        bucket = self._buckets[-1]
        bucket.count += 1
        bucket.total += value
        bucket.largest = max(bucket.largest, value)

    def average(self, now: float) -> float:
        """The average; 0 without numbers."""
        self._forget(now)
        count = sum(bucket.count for bucket in self._buckets)
        return sum(bucket.total for bucket in self._buckets) / count if count else 0.0

    def largest(self, now: float) -> float:
        """The maximum; 0 without numbers."""
        self._forget(now)
        return max((bucket.largest for bucket in self._buckets), default=0.0)

    def rate(self, now: float) -> float:
        """The sum per second."""
        self._forget(now)
        return sum(bucket.total for bucket in self._buckets) / SPAN_S

    def _forget(self, now: float) -> None:
        while self._buckets and self._buckets[0].second <= now - SPAN_S:
            self._buckets.popleft()


class QuorumMeasures:
    """Latencies in seconds, numbers of records."""

    def __init__(self) -> None:
        self.elections = Window()
        self.commits = Window()
        self.fetched = Window()
        self.appended = Window()
        self._idle = Window()
        self._election_began: float | None = None

    def role_changed(self, now: float, *, standing: bool, leader_known: bool) -> None:
        """An election lasts from the first candidacy until any leader is known."""
        if standing and self._election_began is None:
            self._election_began = now
        elif leader_known and self._election_began is not None:
            self.elections.note(now, now - self._election_began)
            self._election_began = None

    def turn(self, waited: float, now: float) -> None:
        """An event was handled at `now`, after the member had been idle for `waited` seconds."""
        self._idle.note(now, waited)

    def idle_ratio(self, now: float) -> float:
        """The share of idle time, 0 to 1; 1 without events."""
        return min(1.0, self._idle.rate(now)) if self._idle.largest(now) else 1.0
