"""The ids and epochs that idempotent producers get: pure, but for the blocks, which somebody has to fetch."""

from __future__ import annotations

from typing import NamedTuple

BLOCK_SIZE = 1_000
"""Ids that the controller gives to a broker at once; those that are left when it stops are never used."""
MAX_EPOCH = (1 << 15) - 1
NONE = -1


class Identity(NamedTuple):
    """What a producer writes under."""

    producer_id: int
    epoch: int


class ProducerIds:
    """The ids that a broker may give away: what is left of a block of its own."""

    def __init__(self) -> None:
        self._next = self._end = 0

    @property
    def empty(self) -> bool:
        return self._next == self._end

    def add(self, first: int, count: int) -> None:
        """A block that is this broker's alone, while it has no other."""
        assert self.empty, "the ids of the last block are not used up"
        self._next, self._end = first, first + count

    def take(self) -> Identity:
        """An id that nobody has had, in its first epoch."""
        assert not self.empty, "there is no id"
        producer_id, self._next = self._next, self._next + 1
        return Identity(producer_id, 0)


def next_epoch(before: Identity, first_unused: int) -> Identity | None:
    """The next epoch of a producer that names its last one (KIP-360): what it sent in that is refused from then on.

    None when it has to take another id: its epochs are used up, or `first_unused`, from which on ids have not been
    given to any broker yet, says that this is not its own.
    """
    if 0 <= before.producer_id < first_unused and 0 <= before.epoch < MAX_EPOCH - 1:
        return Identity(before.producer_id, before.epoch + 1)
    return None
