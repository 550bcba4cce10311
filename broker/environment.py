"""The environment of one broker: what most of its parts use."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.config import BrokerConfig
from broker.mutants import Mutants
from broker.ports import Disk
from broker.protocol.records import NO_TIMESTAMP
from broker.trace import Tracer


@dataclass(frozen=True)
class BrokerEnvironment:
    """The configuration of a broker, and its ways to the world outside the process other than the network."""

    config: BrokerConfig
    disk: Disk
    rng: random.Random
    tracer: Tracer
    mutants: Mutants = field(default_factory=Mutants)
    clock: Callable[[], int] | None = None
    """Returns the wall clock in nanoseconds, for the timestamps and the age of records. None: the time is unknown."""

    def wall_ms(self) -> int:
        """The wall clock in milliseconds, `NO_TIMESTAMP` without a clock."""
        return NO_TIMESTAMP if self.clock is None else self.clock() // 1_000_000
