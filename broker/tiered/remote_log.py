"""What remote storage has of one replica's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.replica.partition import Partition
from broker.tiered.manifest import Lineage, Manifest, TieredOffset
from broker.tiered.remote_metadata import RemoteMetadata
from broker.tiered.segments import RemotePartition, RemoteSegment
from broker.tiered.uploads import lineage_of


class RetainedRemotely(NamedTuple):
    """A remote segment as retention sees it: only the part that is not local."""

    size: int
    next_offset: int
    max_timestamp: int


class RemoteLog:
    """Joins a replica's leader epochs with the manifest of its partition. `ready_in`: the role for which `ready`."""

    def __init__(self, partition: Partition, metadata: RemoteMetadata) -> None:
        self.partition = partition
        self.id = RemotePartition(partition.topic, partition.topic_id, partition.index)
        self._metadata = metadata
        self.ready_in: object = None

    @property
    def ready(self) -> bool:
        return self.partition.role is not None and self.ready_in is self.partition.role and self.is_read

    @property
    def is_read(self) -> bool:
        """Whether the manifest was complete once since this process started."""
        return self._metadata.is_read(self.id.key)

    @property
    def manifest(self) -> Manifest:
        return self._metadata.manifest(self.id.key)

    @property
    def lineage(self) -> Lineage:
        """The committed history of the log."""
        return lineage_of(self.partition.log, self.partition.high_watermark)

    def find(self, offset: int) -> RemoteSegment | None:
        """The readable segment with the log's record at `offset`."""
        return self.manifest.find_in(self.lineage, offset)

    def highest_tiered(self) -> TieredOffset | None:
        return self.manifest.highest_tiered(self.lineage)

    def covered_to(self, offset: int) -> int:
        return self.manifest.covered_to(self.lineage, offset)

    def retained(self, start: int, end: int) -> Sequence[RetainedRemotely]:
        found = self.manifest.path(self.lineage, start, end)
        return [
            RetainedRemotely(each.size, min(each.next_offset, end), each.max_timestamp)
            for each in found
            if each.base_offset < end
        ]
