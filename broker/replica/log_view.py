"""What the pure roles of a partition read of its log, and the question that a leader answers from it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

UNDEFINED = -1


class EpochView(Protocol):
    """The part of a leader epoch cache that the roles read."""

    @property
    def latest_epoch(self) -> int:
        """The largest epoch of the cache, -1 when it is empty."""
        ...

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and where it ends; (-1, -1) when nothing is known."""
        ...


class LogView(Protocol):
    """The part of a partition's log that the roles read."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def epochs(self) -> EpochView: ...


class EpochEnd(NamedTuple):
    """An epoch and the offset behind its last record; both -1 when unknown."""

    epoch: int
    end_offset: int


def divergence(log: LogView, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
    """Where the log of whoever fetches parts from this one, None when it does not (KIP-595's check).

    The fetcher's last record has `last_fetched_epoch` and lies just below `fetch_offset`; it is part of this log only
    if that epoch is here and reaches at least so far. An epoch that this log never saw diverges too, its end unknown.
    """
    if last_fetched_epoch < 0:  # none, as Kafka's Fetch has it
        return None
    end = EpochEnd(*log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset))
    matches = end.epoch >= last_fetched_epoch and end.end_offset >= fetch_offset
    return None if matches else end
