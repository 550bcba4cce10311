"""Handovers: leadership moves from a broker that is alive. Decides when another replica may be elected.

Theory of operation. A broker acts as a leader under its lease. It may not know yet that it no longer leads a partition,
and then still answers reads for it. So a leadership moves in two steps. The first record takes the partition from its
leader; it has no leader then. The second record names the new leader, once the old one has reported that it applied the
first record, or its lease has ended. Until the old leader has reported that, its lease is not renewed, even when
another broker leads already, because both would answer. A new controller does not know which partitions an earlier one
took from which broker, so every broker must report that it applied all earlier records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker.controller.image import MetadataImage
from broker.protocol.messages.metadata_records import NO_LEADER

Key = tuple[str, int]
_UNKNOWN = -1


@dataclass
class _Handover:
    """`broker`: the former leader, -1 if unknown. `offset`: of the record that took the partition from it, -1 before
    the commit. `ends_at`: when the last lease of the former leader has ended by any clock, in seconds of the loop's
    clock."""

    broker: int
    offset: int = _UNKNOWN
    ends_at: float = float("inf")
    electing: bool = False


class Handovers:
    """The open handovers of a controller's term."""

    def __init__(self) -> None:
        self._open: dict[Key, _Handover] = {}
        self._known_by_all = _UNKNOWN  # every broker must apply the records of earlier controllers, up to this offset
        self._known_by: dict[int, int] = {}  # by broker: the offset of the last record that took a leadership from it
        self._waiters: list[asyncio.Future[None]] = []

    def holds(self, key: Key) -> bool:
        """Whether no replica may be elected yet."""
        return key in self._open

    def begin_term(self, offset: int) -> None:
        """This controller's term starts at this offset of the metadata log."""
        self._known_by_all = offset

    def begin(self, key: Key, broker: int) -> None:
        """A record that takes a partition from its leader is about to be committed."""
        self._open[key] = _Handover(broker)

    def begin_after(self, key: Key, ends_at: float) -> None:
        """An earlier controller may have taken a partition from a leader whose lease lasts until `ends_at`."""
        self._open[key] = _Handover(_UNKNOWN, 0, ends_at)

    def applied(self, image: MetadataImage, lease_ends_at: Callable[[int], float | None]) -> None:
        """Records were committed. `lease_ends_at`: the end of a broker's lease, None without one."""
        for key, handover in list(self._open.items()):
            partition = image.partition(*key)
            if handover.offset == _UNKNOWN:
                self._known_by[handover.broker] = image.offset
            if partition is None or partition.leader != NO_LEADER:
                self._close(key)
            elif handover.offset == _UNKNOWN:
                handover.offset = image.offset
                ends_at = lease_ends_at(handover.broker)
                handover.ends_at = float("-inf") if ends_at is None else ends_at

    def lease_over(self, broker: int) -> None:
        """The broker no longer acts as a leader."""
        for handover in self._open.values():
            if handover.broker == broker and handover.offset != _UNKNOWN:
                handover.ends_at = float("-inf")

    def heard(self, broker: int, metadata_offset: int) -> bool:
        """A broker has applied the metadata log up to an offset. Returns whether it has applied all records that took a
        leadership from it; otherwise its lease must not be renewed."""
        knows = metadata_offset >= max(self._known_by_all, self._known_by.get(broker, _UNKNOWN))
        for handover in self._open.values():
            if handover.broker != broker:
                continue
            if handover.offset == _UNKNOWN or metadata_offset < handover.offset:
                knows = False
            else:
                handover.ends_at = float("-inf")
        return knows

    def take_over(self, now: float) -> list[Key]:
        """The partitions for which another leader may be elected now; each is returned once."""
        over = sorted(key for key, it in self._open.items() if it.ends_at <= now and not it.electing)
        for key in over:
            self._open[key].electing = True
        return over

    def put_off(self, keys: Iterable[Key], until: float) -> None:
        """The election for these failed; `take_over` returns them again at `until`."""
        for key in keys:
            if key in self._open:
                self._open[key].electing, self._open[key].ends_at = False, until

    def give_up(self, key: Key) -> None:
        """No replica can lead the partition now; any that returns later may."""
        self._close(key)

    def next_end(self) -> float | None:
        """The latest possible end of the next handover; None without one."""
        ends = (it.ends_at for it in self._open.values() if not it.electing and it.ends_at < float("inf"))
        return min(ends, default=None)

    def clear(self) -> None:
        """The term is over."""
        self._known_by_all = _UNKNOWN
        self._known_by.clear()
        for key in list(self._open):
            self._close(key)

    async def all_over(self) -> None:
        """Return when no partition waits for a leader."""
        while self._open:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _close(self, key: Key) -> None:
        del self._open[key]
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
