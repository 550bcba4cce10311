"""How clients in virtual time send appends: each once, or as an idempotent producer until the outcome is known."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.errors import ErrorCode
from simulator.client import SimulatedClient, UncertainError
from workloads import outcomes
from workloads.settings import ALL, ClientSettings, retries
from workloads.virtual.pipe import VirtualControl

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


class _Waiting(NamedTuple):
    """A record that waits for its batch, and who waits for its outcome."""

    payload: bytes
    deadline_s: float
    told: asyncio.Future[Sent]


@dataclass
class _Lane:
    """What an idempotent producer has of a partition. `sequence`: of the next batch's first record."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    producer_id: int = NOBODY
    sequence: int = 0
    sending: asyncio.Task[None] | None = None


class Sender:
    """Sends appends to partitions, those of one partition in the order in which they are given.

    An idempotent one sends what waits for a partition as one batch, again and again until it is acknowledged, and then
    the next; it has an id and a sequence for each partition. When it gives a batch up it goes on under a new id, for
    what it gave up may still be appended.
    """

    def __init__(self, settings: ClientSettings, control: VirtualControl, client: SimulatedClient) -> None:
        self._settings = settings
        self._control = control
        self._client = client
        self._compression = settings.parameters.get("compression", "none")
        self._lanes = {partition: _Lane() for partition in range(settings.partitions)}

    async def send(self, partition: int, payload: bytes, acks: int, timeout_s: float) -> Sent:
        """One append, with an honest outcome within `timeout_s` virtual seconds."""
        if not retries(self._settings, acks):
            return await self._once(partition, payload, acks, timeout_s)
        loop, lane = asyncio.get_running_loop(), self._lanes[partition]
        told: asyncio.Future[Sent] = loop.create_future()
        lane.waiting.append(_Waiting(payload, loop.time() + timeout_s, told))
        if lane.sending is None or lane.sending.done():
            lane.sending = self._control.run(self._send_all(partition, lane))
        return await told

    def close(self) -> None:
        for lane in self._lanes.values():
            if lane.sending is not None:
                lane.sending.cancel()

    async def _send_all(self, partition: int, lane: _Lane) -> None:
        while lane.waiting:
            batch = tuple(lane.waiting)
            lane.waiting.clear()
            sent = await self._deliver(partition, lane, [each.payload for each in batch], batch[0].deadline_s)
            for number, each in enumerate(batch):
                if not each.told.done():
                    each.told.set_result(sent._replace(offset=sent.offset + number) if sent.outcome == "ok" else sent)

    async def _deliver(self, partition: int, lane: _Lane, payloads: Sequence[bytes], deadline_s: float) -> Sent:
        """One batch, until its outcome is known or its time is up."""
        loop, last = asyncio.get_running_loop(), "not sent"
        while (left_s := deadline_s - loop.time()) > 0:
            sent = await self._attempt(partition, lane, payloads, min(ATTEMPT_S, left_s))
            if sent is None:
                continue
            if sent.outcome == "ok":
                lane.sequence += len(payloads)
                return sent
            last = sent.error
            if last not in RETRIABLE:
                break
            await asyncio.sleep(RETRY_S)
        lane.producer_id, lane.sequence = NOBODY, 0
        return Sent("info", -1, last)

    async def _attempt(self, partition: int, lane: _Lane, payloads: Sequence[bytes], timeout_s: float) -> Sent | None:
        """None when there was no answer."""
        try:
            if lane.producer_id == NOBODY:
                lane.producer_id = await self._client.init_producer_id(timeout_s)
            code, offset = await self._client.append(
                self._settings.topic,
                partition,
                payloads,
                acks=ALL,
                timeout=timeout_s,
                producer_id=lane.producer_id,
                sequence=lane.sequence,
                compression=self._compression,
            )
        except (UncertainError, TimeoutError):
            return None
        return Sent("ok", offset, "") if code == ErrorCode.NONE else Sent("info", -1, code.name)

    async def _once(self, partition: int, payload: bytes, acks: int, timeout_s: float) -> Sent:
        try:
            code, offset = await self._client.append(
                self._settings.topic,
                partition,
                [payload],
                acks=acks,
                timeout=timeout_s,
                compression=self._compression,
            )
        except UncertainError as error:
            return Sent("info", -1, str(error))
        outcome = outcomes.of_append(None if code == ErrorCode.NONE else code)
        return Sent(outcome, offset if outcome == "ok" else -1, "" if code == ErrorCode.NONE else code.name)
