"""How the simulator's tests run code on hosts."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

from simulator.conditions import Conditions
from simulator.host import HostContext
from simulator.loop import new_loop
from simulator.network import SimulatedNetwork

T = TypeVar("T")
QUIET = Conditions(spike_probability=0.0, split_probability=0.0, reset_after_partition=0.0)


class World:
    """A loop, a network, and hosts a, b, c with an address of the same name."""

    def __init__(self, seed: int = 0, conditions: Conditions = QUIET) -> None:
        self.loop = new_loop()
        self.seen: list[bytes] = []
        self.network = SimulatedNetwork(self.loop, random.Random(seed), conditions, self.seen.append)
        self.hosts = {name: HostContext(name, name) for name in "abc"}

    def run(self, host: str, body: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on a host."""
        return self.loop.run_until_complete(self.start(host, body))

    def start(self, host: str, body: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task on a host."""
        return self.loop.create_task(body, context=self.hosts[host].context.copy())

    def restart(self, host: str) -> None:
        self.hosts[host] = HostContext(host, host)
