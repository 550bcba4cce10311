"""Tiered storage of one broker: reads the metadata topic, runs the leaders' tasks, and removes local copies.

Without `remote.log.storage.system.enable` it does not exist. A failing store delays this work, and nothing else: every
task is tried again after `remote.log.manager.task.interval.ms`, or at once in a new role.

The work of a partition's leader on its remote segments: gives up copies, deletes, uploads. Every step is safe to repeat
and to interrupt: what it does next follows from the manifest and the log alone. What remote storage has of a replica's
log is a `TieredLog`.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from broker.controller.image import MetadataImage
from broker.environment import BrokerEnvironment
from broker.errors import ErrorCode, StartupError
from broker.log.timestamps import TimedOffset
from broker.ports import Buffer
from broker.replica.background import Background, end
from broker.replica.leader import PartitionLeader
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.tiered.manifest import Lineage, Manifest, TieredOffset
from broker.tiered.metadata_log import MetadataLog, PublishError
from broker.tiered.object_store import ObjectMissingError, ObjectStore, StoreError
from broker.tiered.remote_reads import RemoteReads
from broker.tiered.remote_storage_rules import METADATA_TOPIC
from broker.tiered.reporting_store import ReportingStore
from broker.tiered.segments import SUFFIXES, RemotePartition, SegmentEvent, SegmentState, TieredSegment, segment_id_of
from broker.tiered.store_owner import StoreOwner
from broker.tiered.tiered_metadata import TieredMetadata
from broker.tiered.uploads import SourceGoneError, Upload, lineage_of, next_stretch


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

    def plus(self, other: "RemoteSizes") -> "RemoteSizes":
        """The sums."""
        return RemoteSizes(*(first + second for first, second in zip(self, other, strict=True)))


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
            ends = [(segment.end_offset, segment.epochs[-1].epoch) for segment in self.manifest if segment.is_readable]
            return TieredOffset(*max(ends)) if ends else None
        return self.manifest.highest_tiered(self.lineage)

    def covered_to(self, offset: int) -> int:
        return self.manifest.covered_to(self.lineage, offset)

    def read(self, offset: int, max_bytes: int, *, min_one: bool) -> Sequence[Buffer] | ErrorCode | None:
        if not self.is_read:
            return None
        records = self._reads.read(self.partition, self.lineage, self.manifest, offset, max_bytes, min_one=min_one)
        return None if records is ErrorCode.KAFKA_STORAGE_ERROR and not self.ready else records

    def first_not_before(self, timestamp: int) -> TimedOffset | ErrorCode | None:
        if not self.ready:
            return ErrorCode.OFFSET_NOT_AVAILABLE
        return self._reads.first_not_before(self.partition, self.lineage, self.manifest, timestamp)

    def sizes(self) -> RemoteSizes:
        """The sizes now."""
        manifest, log = self.manifest, self.partition.log
        finished = [segment.size for segment in manifest if segment.is_readable]
        copied_to = self.covered_to(max(log.log_start_offset, log.segments[0].base_offset))
        waiting = [segment.size for segment in log.segments[:-1] if segment.next_offset > copied_to and segment.size]
        deleting = sum(segment.size for segment in manifest if segment.state is SegmentState.DELETE_STARTED)
        return RemoteSizes(len(finished), sum(finished), len(waiting), sum(waiting), deleting)

    def retained(self, start: int, end: int) -> Sequence[RetainedRemotely]:
        path = self.manifest.path(self.lineage, start, end)
        return [
            RetainedRemotely(segment.size, min(segment.next_offset, end), segment.max_timestamp)
            for segment in path
            if segment.base_offset < end
        ]


COMPARE_EVERY = 20
"""Passes between two comparisons of the store's listing with the metadata."""
STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED


@dataclass(eq=False)
class SegmentWorker:
    """Changes remote segments: their objects in the store, and their states in the metadata. Without a word of the
    metadata no object is deleted. None at all is deleted while an event cannot be read, which may be of any segment, or
    while another process may own the store."""

    store: ObjectStore
    metadata: TieredMetadata
    _owner: StoreOwner
    """This broker's claim on the store."""
    cluster_id: str
    say: Callable[[str], None]
    """Gets lines for the log of the process."""

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
        is_due = self._passes % COMPARE_EVERY == 0
        if self.leads and (not is_due or await self._compare_with_store()):  # otherwise the next pass compares again
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
        return [segment for segment in self._remote.manifest if segment.state is DELETING or segment.end_offset < start]

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

    async def _compare_with_store(self) -> bool:
        """Remove late objects of copies that were given up: a deposed leader has put them after their deletion. Objects
        of segments that the metadata do not know are reported, and stay: the metadata may have been lost. Returns
        whether this leader has removed all late ones."""
        started_at = asyncio.get_running_loop().time()
        late, unknown = await self._objects_of_no_segment()
        if self._partition.removes_unknown_objects:
            late, unknown = [*late, *unknown], []
        self._report(unknown)
        for name in late:
            if not self.leads or not self._worker.may_delete(self._remote.id):
                return False
            await self._worker.store.delete(name)
            self._partition.trace("remote_orphan_removed", name=name)
        seconds = round(asyncio.get_running_loop().time() - started_at, 3)
        self._partition.trace("remote_store_compared", seconds=seconds)
        return True

    async def _objects_of_no_segment(self) -> tuple[list[str], list[str]]:
        """The objects of the partition that are of no segment of the manifest: those of copies that were given up, and
        those that the metadata do not know. Raises `StoreError`, `PublishError`.

        The listing comes first. COPY_STARTED is committed before an object is put, so an object in the listing belongs
        to a segment that is known after the metadata were read to their end, or to none. A listing may show objects
        that were deleted a short time ago, so the first unknown ones are looked for.
        """
        prefix = self._remote.id.prefix(self._worker.cluster_id)
        listed = [(stored.name, segment_id_of(stored.name)) for stored in await self._worker.store.list(prefix)]
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
        try:
            await upload.read_timestamps()
        except SourceGoneError:
            return False
        if not self.leads:
            return False
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


TRACE_INTERVAL_S = 0.25
FIRST_CHECK_S = 2.0
"""How long a start waits for the store. A store that does not answer delays no broker; it is checked afterwards."""


class TieredStorage:
    """Created with the broker; `apply` is called after its replicas have followed the metadata."""

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        store: ReportingStore,
        replicas: ReplicaManager,
        log: MetadataLog,
        controller_id: Callable[[], int | None],
        cluster_id: Callable[[], str | None],
        say: Callable[[str], None],
        on_disk_failure: Callable[[OSError], None],
        on_refusal: Callable[[StartupError], None],
        on_defect: Callable[[str, BaseException], None],
    ) -> None:
        config, disk = environment.config, environment.disk
        self._config = config
        self._environment = environment
        self.store = store
        self._replicas = replicas
        self._controller_id = controller_id
        self._cluster_id = cluster_id
        self._say = say
        self._on_disk_failure = on_disk_failure
        self._on_refusal = on_refusal
        self._background = Background(on_defect)
        self._interval_s = config.remote_log_manager_task_interval_ms / 1000
        self._image = MetadataImage()
        self._remotes: dict[Partition, TieredLog] = {}
        self._tasks: dict[Partition, tuple[PartitionLeader, asyncio.Task[None]]] = {}
        self._main: list[asyncio.Task[None]] = []
        self.metadata = TieredMetadata(
            config=config,
            disk=disk,
            log=log,
            wall_ms=lambda: max(0, environment.wall_ms()),
            tracer=environment.tracer,
            say=say,
        )

        self.owner = StoreOwner(
            store=store,
            disk=disk,
            cluster_id=cluster_id,
            node_id=config.node_id,
            interval_s=self._interval_s,
            rng=environment.rng,
            source=config.source,
            url=config.rsm_config_url,
        )
        self.reads = RemoteReads(
            store=store,
            cluster_id=cluster_id,
            cache_bytes=config.remote_log_reader_cache_bytes,
            chunk_bytes=config.remote_log_reader_chunk_bytes,
            run=self._background.run,
            say=say,
            compares=not environment.mutants.active("digest_unchecked"),
        )

    @property
    def unknown_objects(self) -> int:
        """The objects of the partitions that this broker leads, which the metadata do not know."""
        return sum(remote.unknown_objects for remote in self._led())

    def sizes(self) -> dict[str, RemoteSizes]:
        """What remote storage has of the partitions that this broker leads, by topic."""
        sizes: dict[str, RemoteSizes] = {}
        for remote in self._led():
            sizes[remote.id.topic] = sizes.get(remote.id.topic, RemoteSizes()).plus(remote.sizes())
        return dict(sorted(sizes.items()))

    def _led(self) -> list[TieredLog]:
        return [remote for remote in self._remotes.values() if remote.partition.serving is not None]

    # -- life ---------------------------------------------------------------------------------------------------

    async def check_owner(self) -> None:
        """Check whose the store is, if it answers soon. Raises `StartupError` for a foreign one, `OSError` of the
        disk."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(FIRST_CHECK_S):
                await self.owner.check()

    def start(self) -> None:
        """Start to read the metadata topic, and the periodic work."""
        tick, trace = self._every(self._interval_s, self._tick), self._every(TRACE_INTERVAL_S, self._trace)
        self._main = [self._run(work, "tiered storage") for work in (self.metadata.run(), self._own(), tick, trace)]

    async def stop(self) -> None:
        """End all work, and write the snapshots of the metadata."""
        running = [*self._main, *(task for _, task in self._tasks.values())]
        await asyncio.gather(*map(end, running))
        await self.metadata.stop()
        await self.store.close()

    def abort(self) -> None:
        """Stop at once."""
        self._background.abort()

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task. Disk errors end the broker."""

        async def guarded() -> None:
            try:
                await work
            except OSError as error:
                self._on_disk_failure(error)

        return self._background.run(guarded(), name)

    async def _own(self) -> None:
        """Keep the claim on the store."""
        try:
            await self.owner.run()
        except StartupError as error:
            self._on_refusal(error)

    async def _every(self, interval_s: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await action()

    # -- roles --------------------------------------------------------------------------------------------------

    def apply(self, image: MetadataImage) -> None:
        """Follow the metadata: attach replicas of tiered topics, and start the tasks of new leaders."""
        self._image = image
        present = dict.fromkeys(self._replicas.partitions.values())  # in their order
        for partition in [it for it in self._remotes if it not in present]:
            del self._remotes[partition]
            if (known := self._tasks.pop(partition, None)) is not None:
                known[1].cancel()
        for partition in present:
            self._attach(partition)
        self.metadata.apply(image, [remote.id.key for remote in self._remotes.values()])
        for partition in self._in_order():
            self._follow_role(partition)

    def _attach(self, partition: Partition) -> None:
        settings = partition.settings
        if settings.remote_storage or settings.remote_deleted_on_disable or partition in self._remotes:
            remote = self._remotes.setdefault(partition, TieredLog(partition, self.metadata, self.reads))
            partition.remote = remote

    def _in_order(self) -> list[Partition]:
        return sorted(self._remotes, key=lambda remote: remote.key)

    def _follow_role(self, partition: Partition) -> None:
        role = partition.role
        known = self._tasks.get(partition)
        if known is not None and known[0] is not role:
            known[1].cancel()
            del self._tasks[partition]
        if isinstance(role, PartitionLeader) and partition not in self._tasks:
            name = f"remote segments of {partition.topic}-{partition.index}"
            self._tasks[partition] = (role, self._run(self._lead(self._remotes[partition], role), name))

    async def _lead(self, remote: TieredLog, role: PartitionLeader) -> None:
        """The task of a leader, as long as it has its role."""
        task: LeaderTask | None = None
        while remote.partition.role is role:
            worker = self._worker()
            if worker is not None and remote.partition.serving is role:
                move_start = partial(self._replicas.move_start, remote.partition)
                task = task or LeaderTask(remote, role, worker, self._environment.rng, move_start)
                await self._replicas.work.attempt("remote segments", remote.partition, partial(_pass, task))
            await asyncio.sleep(self._interval_s if remote.ready else min(self._interval_s, 1.0))

    def _worker(self) -> SegmentWorker | None:
        cluster_id = self._cluster_id()
        return (
            None if cluster_id is None else SegmentWorker(self.store, self.metadata, self.owner, cluster_id, self._say)
        )

    # -- periodic work ------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Create the metadata topic, remove local copies, and delete what deleted topics have in the store."""
        if self._remotes:
            await self.metadata.create_topic(self._controller_id())
        attempt = self._replicas.work.attempt
        await asyncio.gather(
            *(
                attempt("local copies", remote, partial(self._remove_local_copies, remote))
                for remote in self._in_order()
            )
        )
        await self._delete_removed_topics()

    async def _remove_local_copies(self, partition: Partition) -> None:
        """Only after all events were read: the remote segments may be being deleted."""
        key = self._remotes[partition].id.key
        try:
            await self.metadata.caught_up(key)
        except PublishError:
            return
        if self.metadata.unreadable(key):
            return
        await partition.remove_local_copies(self._environment.wall_ms())

    async def _delete_removed_topics(self) -> None:
        """The leader of a partition of the metadata topic deletes the segments of removed topics. As with local data, a
        topic that is only missing in the metadata is kept: the metadata may have been lost."""
        worker = self._worker()
        if worker is None:
            return
        for (topic_id, _), manifest in self.metadata.led_manifests():
            if topic_id in self._image.removed_topics:
                try:
                    for segment in manifest:
                        await worker.delete(segment)
                except (StoreError, PublishError):
                    return

    async def _trace(self) -> None:
        for partition in self._remotes:
            partition.trace_starts()


async def _pass(task: LeaderTask) -> None:
    """One pass of a leader's task. If the store or the metadata topic fails, the next pass tries again."""
    with contextlib.suppress(StoreError, PublishError):
        await task.run()
