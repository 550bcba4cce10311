"""When a client issues its next operation, and on which partition: pure, seeded code that gets the time as argument."""

from collections.abc import Callable
from random import Random
from typing import Final, Protocol

from workloads.settings import ClientSettings

CONSUMER_SHARE: Final = 0.3
"""The consumers' share of a load's operations."""
END_QUERIES_SHARE: Final = 0.2
"""The share of end queries in a consumer's operations."""
_IDEMPOTENT_DEPTH: Final = 16


class Pacer:
    """Operations at a mean rate per second with seeded exponential gaps, as independent users would issue them.

    Lost time (the client was blocked) is made up only to `burst_s`: after an outage, a client does not flood the
    cluster with all operations that it missed.
    """

    def __init__(self, rate: float, rng: Random, *, start_s: float, burst_s: float = 0.25) -> None:
        if rate <= 0:
            raise ValueError(f"a rate of {rate} operations a second never issues any")
        self._rate = rate
        self._rng = rng
        self._burst_s = burst_s
        self._due_s = start_s + rng.expovariate(rate)

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next operation is due; 0 when it is due."""
        return max(0.0, self._due_s - now_s)

    def take(self, now_s: float) -> bool:
        """Whether an operation is due now; if so, it counts as issued."""
        if now_s < self._due_s:
            return False
        self._due_s = max(self._due_s, now_s - self._burst_s) + self._rng.expovariate(self._rate)
        return True


def depth(settings: ClientSettings) -> int:
    """The number of appends that a producer has in flight in a partition; the library of an idempotent producer sends
    them in up to five requests."""
    return _IDEMPOTENT_DEPTH if settings.idempotent else 1


class Slots:
    """Where a producer may append now: it has at most `depth` appends in flight in each partition.

    Without idempotence a client library retries what a deposed leader refused, and by then newer records may have
    reached the new leader. Only a depth of 1, waiting for each outcome, keeps a producer's order.
    """

    def __init__(self, partitions: int, rng: Random, depth: int = 1) -> None:
        if partitions < 1:
            raise ValueError("a topic has at least one partition")
        self._depth = depth
        self._free = list(range(partitions)) * depth
        self._rng = rng

    def take(self) -> int | None:
        """A random partition with a free slot, each slot equally likely; None when no slot is free."""
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
    """When the next append is due; `Pacer` documents the methods."""

    def wait_s(self, now_s: float) -> float: ...

    def take(self, now_s: float) -> bool: ...


MakePacing = Callable[[ClientSettings, Random, float], Pacing]


def steady(settings: ClientSettings, rng: Random, start_s: float) -> Pacing:
    """The client's rate, constant from the start to the end of the load."""
    return Pacer(settings.rate, rng, start_s=start_s)
