"""When the leader that the metadata name has begun to lead: what CreateTopics and CreatePartitions wait for.

A committed record names a leader. The named broker leads only after it has applied that record; until then it answers
NOT_LEADER_OR_FOLLOWER. A client that is told too early of a new partition meets that error with its first requests. So
the controller answers only after each named leader has said that it acts on the record. A broker says so in each of its
heartbeats, as the offset up to which it acts on the metadata log, and it sends a heartbeat at once after it took
another role (`server.lifecycle`).

The wait has the time that the request gives itself. Meanwhile a leader may be fenced and another broker be elected:
then that broker is waited for. A partition that was deleted meanwhile is not waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple

from broker.controller.image import MetadataImage
from broker.protocol.messages.metadata_records import NO_LEADER

Key = tuple[str, int]


class _Reached(NamedTuple):
    """How far a registration of a broker acts on the metadata log."""

    broker_epoch: int
    offset: int


class _Named(NamedTuple):
    """A leader of a partition as the metadata name it. `offset`: it leads if it acts on the metadata up to there."""

    leader: int
    leader_epoch: int
    offset: int


class Activation:
    """What brokers said of how far they act on the metadata log; kept over the terms of this node as controller."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._reached: dict[int, _Reached] = {}
        self._news = asyncio.Event()

    def heard(self, broker_id: int, broker_epoch: int, offset: int) -> None:
        """A registration of a broker acts on the metadata log up to an offset."""
        known = self._reached.get(broker_id)
        if known is not None and known.broker_epoch == broker_epoch:
            offset = max(offset, known.offset)
        self._reached[broker_id] = _Reached(broker_epoch, offset)
        self._news.set()

    def look_again(self) -> None:
        """The metadata have changed, or the term is over."""
        self._news.set()

    async def until_led(self, keys: Collection[Key], deadline: float, active: Callable[[], bool]) -> list[Key]:
        """Return once the leaders of all these partitions lead; else, at `deadline` (in seconds of the loop's clock) or
        when this node is no longer `active`, those whose leaders may not lead yet."""
        named: dict[Key, _Named] = {}
        waiting = list(keys)
        loop = asyncio.get_running_loop()
        while waiting := [key for key in waiting if not self._leads(key, named)]:
            if not active() or loop.time() >= deadline:
                break
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                break
        return waiting

    def _leads(self, key: Key, named: dict[Key, _Named]) -> bool:
        state = self._image.partition(*key)
        if state is None:
            return True
        if state.leader == NO_LEADER or not self._image.is_available(state.leader):
            return False
        known = named.get(key)
        if known is None or known[:2] != (state.leader, state.leader_epoch):
            known = named[key] = _Named(state.leader, state.leader_epoch, self._image.offset)
        reached = self._reached.get(state.leader)
        if reached is None or reached.broker_epoch != self._image.brokers[state.leader].epoch:
            return False
        return reached.offset >= known.offset
