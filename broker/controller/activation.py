"""Waits until the leaders of new partitions act as leaders: CreateTopics and CreatePartitions answer then.

Theory of operation. A committed record names a leader. The named broker leads only after it has applied that record;
until then it answers NOT_LEADER_OR_FOLLOWER. A client that hears of a new partition too early gets that error for its
first requests. So the controller answers only after each named leader has reported that it acts on the record. Each
heartbeat of a broker carries the offset up to which it acts on the metadata log, and a broker sends a heartbeat at once
after a change of role (`server.lifecycle`).

The wait ends in time for the client (`active`). If a leader is fenced meanwhile and another broker is elected, the wait
continues for that broker. A partition that is deleted meanwhile ends its wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import NamedTuple

from broker.controller.image import MetadataImage
from broker.protocol.messages.metadata_records import NO_LEADER

Key = tuple[str, int]


class _Reached(NamedTuple):
    """The offset up to which a registration of a broker acts on the metadata log."""

    broker_epoch: int
    offset: int


class _Named(NamedTuple):
    """A partition's leader in the metadata. It leads once it acts on the metadata up to `offset`."""

    leader: int
    leader_epoch: int
    offset: int


class Activation:
    """The offsets that brokers reported. They are kept over this node's terms as controller."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._reached: dict[int, _Reached] = {}
        self._news = asyncio.Event()

    def heard(self, broker_id: int, broker_epoch: int, offset: int) -> None:
        """A registration of a broker acts on the metadata log up to `offset`."""
        known = self._reached.get(broker_id)
        if known is not None and known.broker_epoch == broker_epoch:
            offset = max(offset, known.offset)
        self._reached[broker_id] = _Reached(broker_epoch, offset)
        self._news.set()

    def look_again(self) -> None:
        """Wake the waiting calls: the metadata have changed, or the term is over."""
        self._news.set()

    async def until_led(self, keys: Collection[Key], deadline: float, active: Callable[[], bool]) -> list[Key]:
        """Return when the leaders of all these partitions lead. At `deadline` (seconds of the loop's clock), or when
        this node stops being `active`, return the partitions whose leaders may not lead yet."""
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
