"""The part of remote storage from which a follower starts (KIP-1023)."""

from typing import Protocol

from broker.log.remote_start import StateBelow
from broker.replica.partition import Partition


class RemoteStateError(Exception):
    """The state is not available now: the store failed, or the metadata of the segment were not read yet."""


class RemoteState(Protocol):
    """What remote storage has of the logs that this broker follows."""

    async def below(self, partition: Partition, offset: int, epoch: int, log_start: int) -> StateBelow:
        """The state of a log from `log_start` to before `offset`; the record at `offset` - 1 is of `epoch`.

        The epochs, one at least, start above `log_start` if the log of the uploading leader did.
        Raises `RemoteStateError`."""
        ...
