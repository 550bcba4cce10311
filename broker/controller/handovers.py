"""Partitions that nobody leads because their leader is to change while it lives: when may another lead?

A broker's lease says that nobody has replaced it. It may not know yet that it leads a partition no longer, and answer
under its lease as if it did. So a leadership moves in two steps: the first record takes it from its holder, the second
gives it to another, once the holder has told that it knows the first, or its lease has ended. Until it has told, its
lease is not renewed: also not when another leads already, for it would answer beside that one. What an earlier
controller took from whom is not known, so everybody has to know all of that.
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
    """`broker` led, -1: who did is not known. `offset`: of the record that took it, -1: not committed yet. `ends_at`:
    when the last lease under which it may act has ended by anyone's clock, in seconds of the loop's."""

    broker: int
    offset: int = _UNKNOWN
    ends_at: float = float("inf")
    electing: bool = False


class Handovers:
    """Those of a controller's term."""

    def __init__(self) -> None:
        self._open: dict[Key, _Handover] = {}
        self._known_by_all = _UNKNOWN  # the offset of what earlier controllers did
        self._known_by: dict[int, int] = {}  # and that of the last record that took something from a broker
        self._waiters: list[asyncio.Future[None]] = []

    def holds(self, key: Key) -> bool:
        """Whether nobody may be elected yet."""
        return key in self._open

    def begin_term(self, offset: int) -> None:
        """The metadata log had come so far when this controller began."""
        self._known_by_all = offset

    def begin(self, key: Key, broker: int) -> None:
        """A record that takes a partition from its leader is about to be committed."""
        self._open[key] = _Handover(broker)

    def begin_after(self, key: Key, ends_at: float) -> None:
        """An earlier controller may have taken a partition from a leader whose lease goes on until then."""
        self._open[key] = _Handover(_UNKNOWN, 0, ends_at)

    def applied(self, image: MetadataImage, lease_ends_at: Callable[[int], float | None]) -> None:
        """Records were committed. `lease_ends_at`: of a broker's lease, None: it has none any more."""
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
        """A broker acts no more."""
        for handover in self._open.values():
            if handover.broker == broker and handover.offset != _UNKNOWN:
                handover.ends_at = float("-inf")

    def heard(self, broker: int, metadata_offset: int) -> bool:
        """A broker has applied the metadata log so far; whether it knows of all that was taken from it. If it does not,
        its lease must not be renewed."""
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
        """The partitions that another may lead from now on; each is told once."""
        over = sorted(key for key, it in self._open.items() if it.ends_at <= now and not it.electing)
        for key in over:
            self._open[key].electing = True
        return over

    def put_off(self, keys: Iterable[Key], until: float) -> None:
        """The election for these could not be held: they are over again at that time."""
        for key in keys:
            if key in self._open:
                self._open[key].electing, self._open[key].ends_at = False, until

    def give_up(self, key: Key) -> None:
        """Nobody can lead a partition now: whoever comes back may."""
        self._close(key)

    def next_end(self) -> float | None:
        """When the next of them is over at the latest; None when there is none."""
        ends = (it.ends_at for it in self._open.values() if not it.electing and it.ends_at < float("inf"))
        return min(ends, default=None)

    def clear(self) -> None:
        """The term is over."""
        self._known_by_all = _UNKNOWN
        self._known_by.clear()
        for key in list(self._open):
            self._close(key)

    async def all_over(self) -> None:
        """Return once no partition waits for a leader."""
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
