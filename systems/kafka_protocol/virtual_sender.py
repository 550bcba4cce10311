"""How clients in virtual time send one append: once, or as an idempotent producer until its outcome is known."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from broker.errors import ErrorCode
from simulator.client import SimulatedClient, UncertainError
from workloads import outcomes
from workloads.settings import ClientSettings, retries

ATTEMPT_S = 2.0  # that a request waits for its answer before it is sent again
RETRY_S = 0.1
NOBODY: Final = -1

# What a library sends again for: the leader moved, or too few replicas were there.
RETRIABLE: Final = frozenset(
    code.name
    for code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


class Sent(NamedTuple):
    """`offset` is -1 unless the outcome is ok."""

    outcome: outcomes.Outcome
    offset: int
    error: str


class Sender:
    """Sends appends to partitions, those of one partition in the order in which they are given.

    An idempotent one has an id and a sequence for each partition. When it gives one up it goes on under a new id, for
    what it gave up may still be appended.
    """

    def __init__(self, settings: ClientSettings, client: SimulatedClient) -> None:
        self._settings = settings
        self._client = client
        self._turn = {partition: asyncio.Lock() for partition in range(settings.partitions)}
        self._ids = dict.fromkeys(range(settings.partitions), NOBODY)
        self._sequences = dict.fromkeys(range(settings.partitions), 0)

    async def send(self, partition: int, payload: bytes, acks: int, timeout_s: float) -> Sent:
        """One append, with an honest outcome within `timeout_s` virtual seconds."""
        if not retries(self._settings, acks):
            return await self._once(partition, payload, acks, timeout_s)
        loop = asyncio.get_running_loop()
        deadline_s, last = loop.time() + timeout_s, "not sent"
        async with self._turn[partition]:
            while (left_s := deadline_s - loop.time()) > 0:
                sent = await self._attempt(partition, payload, acks, min(ATTEMPT_S, left_s))
                if sent is None:
                    continue
                if sent.outcome == "ok":
                    self._sequences[partition] += 1
                    return sent
                last = sent.error
                if last not in RETRIABLE:
                    break
                await asyncio.sleep(RETRY_S)
            self._ids[partition], self._sequences[partition] = NOBODY, 0
        return Sent("info", -1, last)

    async def _attempt(self, partition: int, payload: bytes, acks: int, timeout_s: float) -> Sent | None:
        """None when there was no answer."""
        try:
            if self._ids[partition] == NOBODY:
                self._ids[partition] = await self._client.init_producer_id(timeout_s)
            code, offset = await self._client.append(
                self._settings.topic,
                partition,
                [payload],
                acks=acks,
                timeout=timeout_s,
                producer_id=self._ids[partition],
                sequence=self._sequences[partition],
            )
        except (UncertainError, TimeoutError):
            return None
        return Sent("ok", offset, "") if code == ErrorCode.NONE else Sent("info", -1, code.name)

    async def _once(self, partition: int, payload: bytes, acks: int, timeout_s: float) -> Sent:
        topic = self._settings.topic
        try:
            code, offset = await self._client.append(topic, partition, [payload], acks=acks, timeout=timeout_s)
        except UncertainError as error:
            return Sent("info", -1, str(error))
        outcome = outcomes.of_append(None if code == ErrorCode.NONE else code)
        return Sent(outcome, offset if outcome == "ok" else -1, "" if code == ErrorCode.NONE else code.name)
