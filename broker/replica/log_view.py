"""The part of a log that the pure roles of a partition read, and the divergence check of a leader."""

from typing import NamedTuple, Protocol

UNDEFINED = -1


class EpochView(Protocol):
    """The part of a leader epoch cache that the roles read."""

    @property
    def latest_epoch(self) -> int:
        """The largest epoch of the cache; -1 if it is empty."""
        ...

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch`, and its end; (-1, -1) if unknown."""
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
    """Where the fetcher's log diverges from this one; None if it does not (KIP-595's check).

    The fetcher's last record has `last_fetched_epoch` and is just below `fetch_offset`. It is part of this log only if
    this log has that epoch up to there. An epoch that this log never had diverges too; its end is unknown.
    """
    if last_fetched_epoch < 0:  # none, as Kafka's Fetch has it
        return None
    end = EpochEnd(*log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset))
    matches = end.epoch >= last_fetched_epoch and end.end_offset >= fetch_offset
    return None if matches else end
