"""What remote storage has of one replica's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.errors import ErrorCode
from broker.log.timestamps import TimedOffset
from broker.ports import Buffer
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from broker.tiered.manifest import Lineage, Manifest, TieredOffset
from broker.tiered.remote_reads import RemoteReads
from broker.tiered.segments import RemotePartition, SegmentState, TieredSegment
from broker.tiered.tiered_metadata import TieredMetadata
from broker.tiered.uploads import lineage_of


class RetainedRemotely(NamedTuple):
    """A remote segment as retention sees it: only the part that is not local."""

    size: int
    next_offset: int
    max_timestamp: int


class RemoteSizes(NamedTuple):
    """What remote storage has of a log, as the metadata state it. `segments`, `bytes`: finished copies. `lag_segments`,
    `lag_bytes`: closed local segments that are not copied yet. `deleting_bytes`: of segments in DELETE_STARTED."""

    segments: int = 0
    bytes: int = 0
    lag_segments: int = 0
    lag_bytes: int = 0
    deleting_bytes: int = 0

    def plus(self, other: RemoteSizes) -> RemoteSizes:
        """The sums."""
        return RemoteSizes(*(one + two for one, two in zip(self, other, strict=True)))


class TieredLog:
    """Joins a replica's leader epochs with the manifest of its partition. `ready_in`: the last role in which it was
    ready. `unknown_objects`: objects of the partition that the metadata do not know, when the leader last looked."""

    def __init__(self, partition: Partition, metadata: TieredMetadata, reads: RemoteReads) -> None:
        self.partition = partition
        self.id = RemotePartition(partition.topic, partition.topic_id, partition.index)
        self._metadata = metadata
        self._reads = reads
        self.ready_in: PartitionLeader | None = None
        self.unknown_objects = 0

    @property
    def ready(self) -> bool:
        role, known = self.partition.role, self.ready_in
        if role is None or known is None or not self.is_read:
            return False
        # The same broker leads in the next epoch, for example after a replica was removed. It wrote all events between
        # the two epochs itself (K1023-3).
        continues = isinstance(role, PartitionLeader) and role.leader_epoch == known.leader_epoch + 1
        return role is known or continues

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
        log = self.partition.log
        end = log.log_end_offset if self.partition.tiers_above_high_watermark else self.partition.high_watermark
        return lineage_of(log, end)

    def find(self, offset: int) -> TieredSegment | None:
        """The readable segment with the log's record at `offset`."""
        return self.manifest.find_in(self.lineage, offset)

    def highest_tiered(self) -> TieredOffset | None:
        if self.partition.tiers_ignore_lineage:
            ends = [(it.end_offset, it.epochs[-1].epoch) for it in self.manifest if it.is_readable]
            return TieredOffset(*max(ends)) if ends else None
        return self.manifest.highest_tiered(self.lineage)

    def covered_to(self, offset: int) -> int:
        return self.manifest.covered_to(self.lineage, offset)

    def read(self, offset: int, max_bytes: int, *, min_one: bool) -> Sequence[Buffer] | ErrorCode | None:
        if not self.is_read:
            return None
        found = self._reads.read(self.partition, self.lineage, self.manifest, offset, max_bytes, min_one=min_one)
        return None if found is ErrorCode.KAFKA_STORAGE_ERROR and not self.ready else found

    def first_not_before(self, timestamp: int) -> TimedOffset | ErrorCode | None:
        if not self.ready:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        return self._reads.first_not_before(self.partition, self.lineage, self.manifest, timestamp)

    def sizes(self) -> RemoteSizes:
        """The sizes now."""
        manifest, log = self.manifest, self.partition.log
        finished = [it.size for it in manifest if it.is_readable]
        copied_to = self.covered_to(max(log.log_start_offset, log.segments[0].base_offset))
        waiting = [it.size for it in log.segments[:-1] if it.next_offset > copied_to and it.size]
        deleting = sum(it.size for it in manifest if it.state is SegmentState.DELETE_STARTED)
        return RemoteSizes(len(finished), sum(finished), len(waiting), sum(waiting), deleting)

    def retained(self, start: int, end: int) -> Sequence[RetainedRemotely]:
        found = self.manifest.path(self.lineage, start, end)
        return [
            RetainedRemotely(each.size, min(each.next_offset, end), each.max_timestamp)
            for each in found
            if each.base_offset < end
        ]
