"""Recovery of a leader that was elected uncleanly (KIP-704): makes its log the durable truth of the partition.

The leader reads its log again, rebuilds epochs and other derived data from it, syncs all of it, and stores its high
watermark. Then it asks the controller to end the recovery, and it serves requests only after that is committed. All
steps can be repeated: a leader that is stopped in between starts again when it leads next, because the controller still
has the partition as recovering (K704-9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker.protocol.records import CorruptBatch
from broker.replica.background import Background
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition


class SharedWork:
    """Work that is done once for all callers that wait for it. It starts after the last of them has called, so that it
    covers what each had done before."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._turn = asyncio.Lock()
        self._asked = 0
        self._done = 0

    async def __call__(self) -> None:
        """Return when work that started after this call has ended. Its error is raised to one caller; others try
        again."""
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._done >= mine:
                return
            asked = self._asked
            await self._work()
            self._done = asked


class LeaderRecovery:
    """Recovers partitions in the background; `propose` sends the end of a recovery to the controller."""

    def __init__(
        self, *, checkpoint: Callable[[], Awaitable[None]], propose: Callable[[Partition], None], background: Background
    ) -> None:
        self._checkpoint = SharedWork(checkpoint)  # the file has all partitions, and thousands may recover at once
        self._propose = propose
        self._background = background

    def begin(self, partition: Partition) -> None:
        """Start the recovery if this broker has just become a leader that must recover."""
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
