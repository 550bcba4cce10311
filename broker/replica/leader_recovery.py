"""What a leader does first that was elected uncleanly (KIP-704): make what its log holds the partition's truth, safely.

It reads its log again, makes epochs (and whatever else is derived from batches) what the log says, has all of it on
disk and its high watermark checkpointed. Only then does it ask the controller to end the recovery; only once that is
committed does it serve anyone. All of it may be done again: a leader that is stopped in the middle starts over when it
leads next, for the controller still has the partition as recovering (K704-9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker.protocol.records import CorruptBatch
from broker.replica.background import Background
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition


class SharedWork:
    """Work that is done once for all who ask for it while it is under way for others: it begins after the last of
    them has asked, so that it takes in what each had done before."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._turn = asyncio.Lock()
        self._asked = 0
        self._done = 0

    async def __call__(self) -> None:
        """Return once the work has been begun and ended. Raises what it raises, to who did it; others try it again."""
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._done >= mine:
                return
            asked = self._asked
            await self._work()
            self._done = asked


class LeaderRecovery:
    """Recovers partitions in the background; `propose` takes the end of one to the controller."""

    def __init__(
        self, *, checkpoint: Callable[[], Awaitable[None]], propose: Callable[[Partition], None], background: Background
    ) -> None:
        self._checkpoint = SharedWork(checkpoint)  # the file has all partitions, of which thousands may recover
        self._propose = propose
        self._background = background

    def begin(self, partition: Partition) -> None:
        """Start, where this broker has just become a leader that must recover."""
        leader = partition.role
        if isinstance(leader, PartitionLeader) and leader.recovering:
            self._background.run(self._recover(partition, leader), f"recovery of {partition.topic}-{partition.index}")

    async def _recover(self, partition: Partition, leader: PartitionLeader) -> None:
        def still_leads() -> bool:
            return partition.role is leader

        try:
            if not await partition.log.rebuild(leader.leader_epoch, still_leads):
                return
            await self._checkpoint()
        except CorruptBatch as error:
            partition.fail(OSError(str(error)))
            return
        except OSError as error:
            partition.fail(error)
            return
        if still_leads():
            leader.rebuilt()
            self._propose(partition)
