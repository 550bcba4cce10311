"""Readers that accept any answer: they ask every broker for the end of a partition, not only the leader.

An answer may not be older than the state known when the query was sent: neither less than the producer's last
acknowledgement by then, nor less than the answer to an earlier query. Reads that pass are those that `strict` promises.
"""

import asyncio

from simulator.client import RefusedError, SimulatedClient, UncertainError

PAUSE_S = 0.1
ANSWER_WITHIN_S = 1.0


class Readers:
    """One reader for each broker, from its start until it is stopped; `stale` gives for each stale answer the expected
    end. Times are in virtual seconds."""

    def __init__(self, client: SimulatedClient, brokers: list[int], topic: str, partitions: int) -> None:
        self.stale: list[str] = []
        self.answers = 0
        self._client = client
        self._topic = topic
        self._known = dict.fromkeys(range(partitions), 0)
        self._tasks = [asyncio.create_task(self._read(broker)) for broker in brokers]

    def acknowledged(self, partition: int, end: int) -> None:
        """A producer got the acknowledgement of every record below `end`."""
        self._known[partition] = max(self._known[partition], end)

    async def stop(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, broker: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for partition in self._known:
                asked_at, known = loop.time(), self._known[partition]
                try:
                    end = await self._client.end(self._topic, partition, timeout=ANSWER_WITHIN_S, broker=broker)
                except (RefusedError, UncertainError):
                    continue
                self.answers += 1
                if end < known:
                    self.stale.append(
                        f"{asked_at:.3f} s: broker {broker} says that {self._topic}-{partition} ends at {end}, "
                        f"{known} was known"
                    )
                self._known[partition] = max(self._known[partition], end)
            await asyncio.sleep(PAUSE_S)
