"""When a client issues its next operation, and where: pure, seeded, without a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from workloads.settings import ClientSettings

CONSUMER_SHARE: Final = 0.3
"""The share of consumers in the operations of a load."""
END_QUERIES_SHARE: Final = 0.2
"""The share of end queries in the operations of a consumer."""
_IDEMPOTENT_DEPTH: Final = 16


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


def depth(settings: ClientSettings) -> int:
    """How many appends a producer has under way in a partition: its library sends those of an idempotent one in up to
    five requests."""
    return _IDEMPOTENT_DEPTH if settings.idempotent else 1


class Slots:
    """Where a producer may append now: it has at most `depth` appends under way in each partition.

    Without idempotence a client library sends again what a deposed leader refused, and by then newer records may have
    gone to the new leader: only who waits for each outcome, with a depth of 1, keeps a producer's order.
    """

    def __init__(self, partitions: int, rng: Random, depth: int = 1) -> None:
        if partitions < 1:
            raise ValueError("a topic has at least one partition")
        self._depth = depth
        self._free = list(range(partitions)) * depth
        self._rng = rng

    def take(self) -> int | None:
        """A partition with a free slot, each slot with equal chance; None when all have appends under way."""
        if not self._free:
            return None
        index = self._rng.randrange(len(self._free))
        self._free[index], self._free[-1] = self._free[-1], self._free[index]
        return self._free.pop()

    def give_back(self, partition: int) -> None:
        """The append in this partition has its outcome."""
        if self._free.count(partition) == self._depth:
            raise ValueError(f"partition {partition} was not taken")
        self._free.append(partition)


class Pacing(Protocol):
    """When the next append is due; `Pacer` states the methods' contracts."""

    def wait_s(self, now_s: float) -> float: ...

    def take(self, now_s: float) -> bool: ...


MakePacing = Callable[[ClientSettings, Random, float], Pacing]


def steady(settings: ClientSettings, rng: Random, start_s: float) -> Pacing:
    """The client's rate from the start to the end of the load."""
    return Pacer(settings.rate, rng, start_s=start_s)
