"""The consumer of the workload `tiered`: it also reads from the start and by timestamp. `workloads/kinds/tiered.py` has
the theory of operation."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Message

from history.record.offset_record import LOOKUPS, OffsetWriter
from history.record.writer import OperationWriter
from workloads.client_record import open_record
from workloads.consumer import ConsumerClient, offset_of
from workloads.control import Control
from workloads.known_times import KnownTimes
from workloads.settings import ClientSettings


class TieredConsumer(ConsumerClient):
    """A consumer that jumps before some of its polls."""

    def __init__(
        self, settings: ClientSettings, control: Control, writer: OperationWriter, lookups: OffsetWriter
    ) -> None:
        super().__init__(settings, control, writer)
        self._lookups = lookups
        self._times = KnownTimes()
        self._reader.on_records = self._saw

    def _saw(self, partition: int, run: Sequence[Message]) -> None:
        stamped = [(offset_of(message), message.timestamp()[1]) for message in run]
        self._times.record(self._lookups, partition, stamped)

    def _poll(self) -> None:
        if self._rng.random() < self._settings.parameters["jumps_share"]:
            self._jump(self._rng.randrange(self._settings.partitions))
        super()._poll()

    def _jump(self, partition: int) -> None:
        timestamp = self._times.draw(partition, self._rng)
        if timestamp is None:
            self._reader.go_to(partition, 0)
            return
        inv = self._lookups.clock()
        offset = self._reader.offset_of_time(partition, timestamp)
        if offset is None:
            self._counts.add("fail")
            return
        self._lookups.add("lookup", partition, inv=inv, timestamp=timestamp, offset=offset)
        self._counts.add("ok")
        if offset >= 0:
            self._reader.go_to(partition, offset)


def main(settings: ClientSettings, control: Control) -> None:
    """Run a consumer process."""
    with OffsetWriter(settings.directory, LOOKUPS, settings.client) as lookups, open_record(settings) as writer:
        TieredConsumer(settings, control, writer, lookups).run()
