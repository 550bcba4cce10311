"""The work of a partition's leader on its remote segments: gives up copies, deletes, uploads.

Every step is safe to repeat and to interrupt: what it does next follows from the manifest and the log alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence

from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from broker.tiered.manifest import Lineage
from broker.tiered.metadata_log import PublishError
from broker.tiered.object_store import ObjectMissingError, ObjectStore, StoreError
from broker.tiered.remote_storage_rules import METADATA_TOPIC
from broker.tiered.segments import SUFFIXES, RemotePartition, SegmentEvent, SegmentState, TieredSegment, segment_id_of
from broker.tiered.store_owner import StoreOwner
from broker.tiered.tiered_log import TieredLog
from broker.tiered.tiered_metadata import TieredMetadata
from broker.tiered.uploads import SourceGoneError, Upload, next_stretch

COMPARE_EVERY = 20
"""Passes between two comparisons of the store's listing with the metadata."""
STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED


class SegmentWorker:
    """Changes remote segments: their objects in the store, and their states in the metadata. Without a word of the
    metadata no object is deleted. None at all is deleted while an event cannot be read, which may be of any segment, or
    while another process may own the store."""

    def __init__(
        self,
        store: ObjectStore,
        metadata: TieredMetadata,
        owner: StoreOwner,
        cluster_id: str,
        say: Callable[[str], None],
    ) -> None:
        """`owner`: this broker's claim on the store. `say` gets lines for the log of the process."""
        self._owner = owner
        self.store = store
        self.metadata = metadata
        self.cluster_id = cluster_id
        self.say = say

    def may_delete(self, partition: RemotePartition) -> bool:
        """Whether objects of a partition may be deleted now."""
        return self._owner.may_delete and not self.metadata.unreadable(partition.key)

    async def start_deletion(self, segment: TieredSegment, *, expected: SegmentState) -> bool:
        """Commit DELETE_STARTED; false if the segment is not in the expected state any more, or must stay."""
        if not self.may_delete(segment.partition):
            return False
        event = SegmentEvent.to(DELETING, segment, expected=expected)
        return await self.metadata.publish(event)

    async def finish_deletion(self, segment: TieredSegment) -> bool:
        """Remove the objects of a segment in DELETE_STARTED, then commit DELETE_FINISHED; false if they must stay."""
        if not self.may_delete(segment.partition):
            return False
        for name in reversed(segment.object_names(self.cluster_id)):
            await self.store.delete(name)
        return await self.metadata.publish(SegmentEvent.to(DELETED, segment))

    async def delete(self, segment: TieredSegment) -> bool:
        """Delete a segment, whatever its state is; whether it is gone. Raises `StoreError`, `PublishError`."""
        if segment.state is not DELETING and not await self.start_deletion(segment, expected=segment.state):
            return False
        return await self.finish_deletion(segment)


class LeaderTask:
    """One partition in one leader role."""

    def __init__(
        self,
        remote: TieredLog,
        role: PartitionLeader,
        worker: SegmentWorker,
        rng: random.Random,
        move_start: Callable[[int], Awaitable[None]],
    ) -> None:
        """`move_start`: moves the start of the partition's log, durably."""
        self._remote = remote
        self._partition: Partition = remote.partition
        self._role = role
        self._worker = worker
        self._rng = rng
        self._move_start = move_start
        self._passes = 0

    @property
    def leads(self) -> bool:
        """Whether this broker still has the role, and serves."""
        return self._partition.serving is self._role

    async def run(self) -> None:
        """One pass. Raises `StoreError`, `PublishError`, and `OSError` of the disk."""
        await self._worker.metadata.caught_up(self._remote.id.key)
        if not self.leads:
            return
        self._remote.ready_in = self._role
        await self._give_up_copies()
        settings = self._partition.settings
        if not settings.remote_storage:
            if settings.remote_deleted_on_disable:
                await self._delete_all()
            return
        await self._repair_start()
        await self._delete(self._expired())
        while settings.remote_copy and self.leads and await self._upload_next():
            settings = self._partition.settings
        if self._passes % COMPARE_EVERY == 0 and self.leads:
            await self._compare_with_store()
        self._passes += 1

    # -- deletion -----------------------------------------------------------------------------------------------

    async def _give_up_copies(self) -> None:
        """No copy of this or an earlier leader epoch is in progress: each was interrupted, or its leader is deposed."""
        for segment in self._remote.manifest:
            if segment.state is STARTED and segment.leader_epoch <= self._role.leader_epoch and self.leads:
                await self._give_up(segment)

    async def _give_up(self, segment: TieredSegment) -> None:
        if await self._worker.start_deletion(segment, expected=STARTED):
            self._trace(segment, DELETING)
            await self._worker.finish_deletion(segment)

    def _expired(self) -> list[TieredSegment]:
        """The segments below the log's start, of any history, and those whose deletion was interrupted."""
        start = self._partition.log.log_start_offset
        return [each for each in self._remote.manifest if each.state is DELETING or each.end_offset < start]

    async def _delete(self, segments: Iterable[TieredSegment]) -> None:
        for segment in segments:
            if not self.leads:
                return
            if await self._worker.delete(segment):
                self._trace(segment, DELETED)

    async def _delete_all(self) -> None:
        """Remote storage was disabled: the log starts with its local records, then the remote ones are deleted."""
        log = self._partition.log
        if log.log_start_offset < log.local_start_offset and self.leads:
            await self._move_start(log.local_start_offset)
        if log.log_start_offset >= log.local_start_offset:
            await self._delete(self._remote.manifest)

    async def _repair_start(self) -> None:
        """Move the log's start to its first record that exists, remotely or locally. It differs if an earlier leader
        has deleted expired segments before this replica learned the new start."""
        log, remote = self._partition.log, self._remote
        start, local = log.log_start_offset, log.local_start_offset
        lineage = Lineage(log.epochs.entries, log.log_end_offset)  # a new leader's high watermark may still be low
        if start >= local or remote.manifest.covered_to(lineage, start) > start or not self.leads:
            return
        if self._worker.metadata.unreadable(remote.id.key):
            return
        _, unknown = await self._objects_of_no_segment()
        if unknown:  # not deleted: the metadata were lost
            self._report(unknown)
            return
        earliest = remote.manifest.earliest(lineage)
        new_start = local if earliest is None or earliest <= start else min(earliest, local)
        self._partition.trace("remote_start_missing", log_start_offset=start, new_start_offset=new_start)
        await self._move_start(new_start)

    async def _compare_with_store(self) -> None:
        """Remove late objects of copies that were given up: a deposed leader has put them after their deletion. Objects
        of segments that the metadata do not know are reported, and stay: the metadata may have been lost."""
        late, unknown = await self._objects_of_no_segment()
        if self._partition.removes_unknown_objects:
            late, unknown = [*late, *unknown], []
        for name in late:
            if self.leads and self._worker.may_delete(self._remote.id):
                await self._worker.store.delete(name)
                self._partition.trace("remote_orphan_removed", name=name)
        self._report(unknown)

    async def _objects_of_no_segment(self) -> tuple[list[str], list[str]]:
        """The objects of the partition that are of no segment of the manifest: those of copies that were given up, and
        those that the metadata do not know. Raises `StoreError`, `PublishError`.

        The listing comes first. COPY_STARTED is committed before an object is put, so an object in the listing belongs
        to a segment that is known after the metadata were read to their end, or to none. A listing may show objects
        that were deleted a short time ago, so the first unknown ones are looked for.
        """
        prefix = self._remote.id.prefix(self._worker.cluster_id)
        listed = [(each.name, segment_id_of(each.name)) for each in await self._worker.store.list(prefix)]
        await self._worker.metadata.caught_up(self._remote.id.key)
        manifest, late, unknown = self._remote.manifest, list[str](), list[str]()
        for name, segment_id in listed:
            if segment_id is not None and manifest.get(segment_id) is None:
                (late if segment_id in manifest.given_up else unknown).append(name)
        while unknown:
            try:
                await self._worker.store.get(unknown[0], 0, 1)
                break
            except ObjectMissingError:
                del unknown[0]
        return late, unknown

    def _report(self, unknown: Sequence[str]) -> None:
        """Report objects that the metadata do not know, once per change of their number."""
        before, self._remote.unknown_objects = self._remote.unknown_objects, len(unknown)
        if len(unknown) not in (0, before):
            self._partition.trace("remote_objects_unknown", count=len(unknown), first=unknown[0])
            self._worker.say(
                f"{self._partition.topic}-{self._partition.index}: {len(unknown)} objects in remote storage are of no "
                f"segment in {METADATA_TOPIC}, the first is {unknown[0]}; they are kept, and none of their records is "
                "served. Metadata were lost, or another cluster has put the objects"
            )

    # -- uploads ------------------------------------------------------------------------------------------------

    async def _upload_next(self) -> bool:
        """Upload one segment; false if all are uploaded, or the next one is gone."""
        log = self._partition.log
        stretch = next_stretch(log.segments, self._remote.manifest, self._remote.lineage, log.log_start_offset)
        if stretch is None:
            return False
        upload = Upload(log, stretch)
        identifier, role = self._rng.randbytes(16).hex(), self._role
        segment = upload.remote_segment(identifier, self._remote.id, role.node_id, role.leader_epoch)
        if not await self._worker.metadata.publish(SegmentEvent.started(segment)):
            return False
        self._trace(segment, STARTED)
        try:
            suffixes = SUFFIXES[:2] if self._partition.uploads_only_records else SUFFIXES
            segment = await upload.put(self._worker.store, self._worker.cluster_id, segment, suffixes)
            if not self.leads:
                return False  # the next leader gives the copy up
            finished = await self._complete(segment)
        except (StoreError, SourceGoneError) as error:
            self._partition.trace("remote_upload_failed", id=segment.id, reason=str(error))
            await self._give_up(segment)
            if isinstance(error, StoreError):
                raise
            return False
        if finished:
            self._trace(segment, FINISHED)
        return finished

    async def _complete(self, segment: TieredSegment) -> bool:
        """Publish that a segment is complete; whether it is. Raises `PublishError`."""
        try:
            return await self._worker.metadata.publish(SegmentEvent.to(FINISHED, segment))
        except (PublishError, asyncio.CancelledError):  # it may be committed, and no later event of this role tells
            self._partition.trace("remote_completion_unknown", id=segment.id)
            raise

    def _trace(self, segment: TieredSegment, state: SegmentState) -> None:
        self._partition.trace(
            "remote_segment",
            id=segment.id,
            state=state.value,
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            size=segment.size,
            leader_epoch=self._role.leader_epoch,
        )
