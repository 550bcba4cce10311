"""How much to ask a leader for at once. Pure.

Everything that follows one leader waits for one answer. On a slow link that must not take so long that replicas fall
out of the ISR which lack nothing but their turn; on a fast one, small answers would cost round trips.
"""

from __future__ import annotations

LEAST_BYTES = 64 << 10
MOST_BYTES = 10 << 20


class AnswerSize:
    """Halves after an answer that took longer than `long_s` seconds, doubles after a full one that took less than half
    of that."""

    def __init__(self, long_s: float) -> None:
        self.bytes = MOST_BYTES
        self._long_s = long_s

    def answered(self, size: int, took_s: float) -> None:
        """An answer has come. A small one may have been waited for: its time says nothing about the link."""
        if size < self.bytes // 2:
            return
        if took_s > self._long_s:
            self.bytes = max(LEAST_BYTES, self.bytes // 2)
        elif took_s < self._long_s / 2:
            self.bytes = min(MOST_BYTES, 2 * self.bytes)
