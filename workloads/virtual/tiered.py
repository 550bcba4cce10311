"""The consumer of the workload `tiered` in virtual time. `workloads/kinds/tiered.py` has the theory of operation."""

from __future__ import annotations

from collections.abc import Sequence

from history.lookups import LookupWriter
from history.writer import OperationWriter
from workloads.known_times import KnownTimes
from workloads.settings import ClientSettings
from workloads.virtual.log import Consumer
from workloads.virtual.pipe import ClockNs, VirtualControl


class VirtualTieredConsumer(Consumer):
    """A consumer that jumps before some of its polls, and then reads on in the same partition."""

    def __init__(
        self, settings: ClientSettings, control: VirtualControl, writer: OperationWriter, clock: ClockNs
    ) -> None:
        super().__init__(settings, control, writer, clock)
        self._lookups = LookupWriter(settings.directory, settings.client, clock)
        self._times = KnownTimes()
        self._reading.on_timestamps = self._saw

    async def close(self) -> None:
        await super().close()
        self._lookups.close()

    def _saw(self, partition: int, first: int, timestamps: Sequence[int]) -> None:
        """Record the timestamps of consecutive records, each once."""
        stamped = list(enumerate(timestamps, first))
        new = [(offset, timestamp) for offset, timestamp in stamped if self._times.add(partition, offset, timestamp)]
        if new:
            self._lookups.seen(partition, new[0][0], [timestamp for _, timestamp in new])

    async def _poll(self, partition: int) -> None:
        if self._rng.random() < self._settings.parameters["jumps_share"]:
            await self._jump(partition)
        await super()._poll(partition)

    async def _jump(self, partition: int) -> None:
        timestamp = self._times.draw(partition, self._rng)
        if timestamp is None:
            await self._reading.restart(partition)
            return
        inv = self._lookups.clock()
        offset = await self._reading.offset_of_time(partition, timestamp)
        if offset is None:
            self._counts.add("fail")
            return
        self._lookups.looked_up(partition, timestamp, offset, inv=inv)
        self._counts.add("ok")
        if offset >= 0:
            self._reading.next[partition] = offset
