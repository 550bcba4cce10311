"""The ids and epochs of idempotent producers. Without I/O: the caller fetches blocks of ids from the controller."""

from typing import NamedTuple

BLOCK_SIZE = 1_000
"""Ids that the controller assigns to a broker at once; the unused rest is lost when the broker stops."""
MAX_EPOCH = (1 << 15) - 1
NONE = -1


class Identity(NamedTuple):
    """The id and epoch with which a producer writes."""

    producer_id: int
    epoch: int


class ProducerIds:
    """The ids that a broker may assign: the rest of its current block."""

    def __init__(self) -> None:
        self._next = self._end = 0

    @property
    def empty(self) -> bool:
        return self._next == self._end

    @property
    def unused(self) -> range:
        """The ids that are left of the block."""
        return range(self._next, self._end)

    def add(self, first: int, count: int) -> None:
        """Add a block that was assigned to this broker. Requires that the last one is used up."""
        assert self.empty, "the ids of the last block are not used up"
        self._next, self._end = first, first + count

    def take(self) -> Identity:
        """An unused id, in its first epoch."""
        assert not self.empty, "all ids of the block are used"
        producer_id, self._next = self._next, self._next + 1
        return Identity(producer_id, 0)


def next_epoch(identity: Identity, first_unused: int) -> Identity | None:
    """The next epoch of a producer that sends its last one (KIP-360); batches with the last epoch are then refused.

    None when the producer needs another id: its epochs are used up, or it was never assigned this id, because
    `first_unused` (the end of all blocks assigned so far) is not above it.
    """
    if 0 <= identity.producer_id < first_unused and 0 <= identity.epoch < MAX_EPOCH - 1:
        return Identity(identity.producer_id, identity.epoch + 1)
    return None
