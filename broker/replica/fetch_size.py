"""Decides how many bytes to request from a leader at once. Pure.

All partitions that follow one leader wait for one response. On a slow link the response must be
small enough that no replica leaves the ISR before its turn; on a fast link, small responses would cost round trips.
"""

from __future__ import annotations

LEAST_BYTES = 64 << 10
MOST_BYTES = 10 << 20


class AnswerSize:
    """Halves after a response that took longer than `long_s` seconds; doubles after a full one that took less than half
    of that."""

    def __init__(self, long_s: float) -> None:
        self.bytes = MOST_BYTES
        self._long_s = long_s

    def answered(self, size: int, took_s: float) -> None:
        """A response has arrived. A small one may have been parked at the leader: its time says nothing about the
        link."""
        if size < self.bytes // 2:
            return
        if took_s > self._long_s:
            self.bytes = max(LEAST_BYTES, self.bytes // 2)
        elif took_s < self._long_s / 2:
            self.bytes = min(MOST_BYTES, 2 * self.bytes)
