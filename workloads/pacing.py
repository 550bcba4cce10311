"""When a client issues its next operation, and where: pure, seeded, without a clock of its own."""

from __future__ import annotations

from random import Random


class Pacer:
    """Operations at a mean rate, a second, with seeded exponential gaps, as independent users would make them.

    Time that was lost (the client was blocked) is not made up beyond `burst_s`: a client that wakes after an outage
    does not flood the cluster with all that it missed.
    """

    def __init__(self, rate: float, rng: Random, *, start_s: float, burst_s: float = 0.25) -> None:
        if rate <= 0:
            raise ValueError(f"a rate of {rate} operations a second never issues any")
        self._rate = rate
        self._rng = rng
        self._burst_s = burst_s
        self._due_s = start_s + rng.expovariate(rate)

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next operation is due; 0 when it is."""
        return max(0.0, self._due_s - now_s)

    def take(self, now_s: float) -> bool:
        """Whether an operation is due now; if so it counts as issued."""
        if now_s < self._due_s:
            return False
        self._due_s = max(self._due_s, now_s - self._burst_s) + self._rng.expovariate(self._rate)
        return True


class PartitionChooser:
    """Which partition the next record goes to: seeded and uniform, with short runs so that batches hold several."""

    def __init__(self, partitions: int, rng: Random, *, longest_run: int = 4) -> None:
        if partitions < 1:
            raise ValueError("a topic has at least one partition")
        self._partitions = partitions
        self._rng = rng
        self._longest_run = longest_run
        self._current = 0
        self._left = 0

    def next(self) -> int:
        if self._left == 0:
            self._current = self._rng.randrange(self._partitions)
            self._left = self._rng.randint(1, self._longest_run)
        self._left -= 1
        return self._current
