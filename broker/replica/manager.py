"""All partitions of this broker. The committed metadata alone decide the role of each.

The directories of partitions on the disk: finds, creates and removes them, and checks which topic owns them.

A directory `<topic>-<partition>` belongs to the topic whose id is in its `partition.metadata`. That file is written
first when a partition is created and removed first when it is deleted, so a directory without it has no valuable
content.

Recovery of a leader that was elected uncleanly (KIP-704): makes its log the durable truth of the partition.

The leader reads its log again, rebuilds epochs and other derived data from it, syncs all of it, and stores its high
watermark. Then it asks the controller to end the recovery, and it serves requests only after that is committed. All
steps can be repeated: a leader that is stopped in between starts again when it leads next, because the controller still
has the partition as recovering (K704-9).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple
from zlib import crc32

from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.descriptors import opening, with_descriptors
from broker.environment import BrokerEnvironment
from broker.errors import ErrorCode, ProtocolError, StartupError, is_out_of_descriptors
from broker.log.checkpoint import AtomicFile, Key
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.recovery import DamagedLogError
from broker.log.recovery_points import RecoveryPoints
from broker.peers import Peers
from broker.ports import Disk
from broker.protocol.messages.metadata_records import NO_LEADER
from broker.protocol.records import CorruptBatch
from broker.protocol.uuids import id_text, parse_id
from broker.replica.background import Background, end
from broker.replica.compactor import Compactor
from broker.replica.fetcher import LeaderFetcher
from broker.replica.isr_requests import IsrChangeSender
from broker.replica.leader import PartitionLeader
from broker.replica.log_view import UNDEFINED, EpochEnd
from broker.replica.offset_checkpoints import HighWatermarks, LogStarts
from broker.replica.partition import Partition, PendingAppend
from broker.replica.partition_work import PartitionWork
from broker.replica.queries import EpochEndFound, LogEndFound, OffsetFound, epoch_end, list_offset, log_end
from broker.replica.reads import FetchLimits, FetchPosition, PartitionRead, PartitionReader
from broker.replica.record_deletion import PendingDeletion, RecordDeletion
from broker.replica.remote_state import RemoteState
from broker.replica.tiered_start import TieredStart
from broker.topic_settings import TopicSettings


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


METADATA_FILE = "partition.metadata"
ASIDE = "-aside"  # suffix of directories that no partition uses any more and that only an operator may delete
LONGEST_NAME = 255  # bytes, of a file or a directory
LONGEST_STEM = LONGEST_NAME - len(f".{10**5}{ASIDE}")
_NAME = re.compile(r"(?P<topic>.+)-(?P<index>\d+)")
_INTERNAL = "__cluster_metadata"
_CONTENT = re.compile(r"version: 0\ntopic_id: (?P<id>[A-Za-z0-9_-]{22})\n?")


class Found(NamedTuple):
    """A partition's directory and the topic that owns it."""

    topic: str
    partition: int
    topic_id: bytes


class PartitionDirectories:
    """Opens, creates and removes the directories of partitions below the disk's root."""

    def __init__(self, disk: Disk, log_config: LogConfig) -> None:
        self._disk = disk
        self._log_config = log_config

    async def scan(self) -> list[Found]:
        """The partitions on the disk. Removes the remains of unfinished creations and deletions."""
        found = []
        for name in self._disk.list(""):
            match = _NAME.fullmatch(name)
            if match is None or match["topic"] == _INTERNAL:
                continue
            text = AtomicFile(self._disk, f"{name}/{METADATA_FILE}").read()
            if text is None:
                await self._remove_leftovers(name)
            else:
                found.append(Found(match["topic"], int(match["index"]), _topic_id(f"{name}/{METADATA_FILE}", text)))
        return found

    async def open(
        self, topic: str, index: int, *, clean_shutdown: bool, recovery_point: int = 0, start_offset: int = 0
    ) -> PartitionLog:
        """Open an existing partition's log and recover it. Raises `DamagedLogError`."""
        return await PartitionLog.open(
            self._disk,
            f"{topic}-{index}",
            self._log_config,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            start_offset=start_offset,
        )

    async def create(self, topic: str, index: int, topic_id: bytes) -> PartitionLog:
        """Create the directory of a new partition, durably, and open its empty log.

        A directory of another topic with the same name is set aside first: an earlier attempt may have been
        interrupted.
        """
        name = f"{topic}-{index}"
        file = AtomicFile(self._disk, f"{name}/{METADATA_FILE}")
        text = file.read()
        if text is not None and _topic_id(file.path, text) != topic_id:
            await self.set_aside(topic, index)
        self._disk.make_directory(name)
        await self._disk.sync_directory("")
        await file.write(f"version: 0\ntopic_id: {id_text(topic_id)}\n")
        return await self.open(topic, index, clean_shutdown=False)

    async def remove(self, topic: str, index: int, log: PartitionLog) -> None:
        """Delete a partition, its metadata file first: the next `scan` completes an interrupted deletion."""
        name = f"{topic}-{index}"
        self._disk.unlink(f"{name}/{METADATA_FILE}")
        await self._disk.sync_directory(name)
        await log.delete()

    async def set_aside(self, topic: str, index: int) -> str:
        """Rename a partition's directory, keep it, and return the new name. The log is closed.

        One rename moves all of it or nothing. A partly moved log without its first segments would look like one whose
        first records were deleted, because its start offset is not stored any more.
        """
        name = f"{topic}-{index}"
        stem, taken = _stem(name), await opening(lambda: self._disk.list(""))
        aside = next(new for number in count(1) if (new := f"{stem}.{number}{ASIDE}") not in taken)
        self._disk.rename(name, aside)
        await self._disk.sync_directory("")
        return aside

    async def _remove_leftovers(self, directory: str) -> None:
        for name in self._disk.list(directory):
            self._disk.unlink(f"{directory}/{name}")
        self._disk.remove_directory(directory)
        await self._disk.sync_directory("")


def _stem(name: str) -> str:
    """The first part of the new name of a directory that is set aside: a topic's name may have the maximal length.

    The topic's id is in the directory's `partition.metadata`.
    """
    if len(name) <= LONGEST_STEM:
        return name
    sum_of_all = f"~{crc32(name.encode()):08x}"
    return name[: LONGEST_STEM - len(sum_of_all)] + sum_of_all


def _topic_id(path: str, text: str) -> bytes:
    match = _CONTENT.fullmatch(text)
    try:
        return parse_id(match["id"] if match else "")
    except ValueError:
        raise StartupError(
            f"{path}: expected 'version: 0' and 'topic_id: <22 characters>', found {text!r}; "
            "restore the file, or remove the partition's directory so that it is fetched again from its leader"
        ) from None


BROUGHT_UP_AT_ONCE = 32  # partitions that get their files and roles concurrently
PROGRESS_INTERVAL_S = 0.25  # seconds between two replica_progress events of a partition, at least


class ProduceResult(NamedTuple):
    """The answer to a produce; `base_offset` is -1 if nothing was appended."""

    error: ErrorCode
    base_offset: int = -1
    log_start_offset: int = -1


class Damaged(NamedTuple):
    """A replica whose log cannot be served: its topic, and the reason."""

    topic_id: bytes
    reason: str


class ReplicaCounts(NamedTuple):
    """Numbers of replicas of this broker. Among the partitions that it leads, `lagging` have replicas that are not in
    sync, `short` have fewer replicas in sync than `min.insync.replicas`."""

    partitions: int
    leaders: int
    lagging: int
    short: int
    bytes: int


class ReplicaManager:
    """The replicas of one broker process.

    `incarnation_id` names this process. Metadata from before its own registration are stored but have no effect,
    because a leader epoch of an earlier process must not be resumed (K101-10, H12). `on_disk_failure` receives errors
    of the disk, `on_defect` errors of failed tasks; after either the process should end.
    """

    def __init__(
        self,
        environment: BrokerEnvironment,
        *,
        connector: Peers,
        incarnation_id: bytes,
        controller_id: Callable[[], int | None],
        lease_valid: Callable[[], bool],
        on_disk_failure: Callable[[OSError], None],
        on_defect: Callable[[str, BaseException], None] | None = None,
        recovery_points: RecoveryPoints | None = None,
    ) -> None:
        """`recovery_points`: those of all logs of the broker; None: this manager has all logs. Without a wall clock
        records do not age."""
        config, disk, mutants = environment.config, environment.disk, environment.mutants
        self._config = config
        self._connector = connector
        self._tracer = environment.tracer
        self._incarnation_id = incarnation_id
        self._lease_valid = lease_valid
        self._roles_taken = 0
        self._on_disk_failure = on_disk_failure
        self._background = Background(on_defect)
        self._mutants = mutants
        self._forgets_epoch_in_answers = mutants.active("ofle_no_epoch")
        self._directories = PartitionDirectories(disk, LogConfig.from_broker(config, mutants, compacted=True))
        self._recovery_points = recovery_points or RecoveryPoints(disk)
        self._offline: dict[Key, Damaged] = {}
        """Replicas that are not served, and whose files do not change."""
        self._starts = LogStarts(disk)
        self._now_ms = environment.wall_ms
        self._partitions: dict[Key, Partition] = {}
        self._high_watermarks = HighWatermarks(disk, self._partitions.values, self._tracer)
        self._fetchers: dict[int, LeaderFetcher] = {}
        self.remote_state: RemoteState | None = None
        """From which followers start; None without tiered storage."""
        self._tiered_start = TieredStart(
            config, connector, lambda: self.remote_state, lambda: self._image.defaults, mutants
        )
        self._image = MetadataImage()
        self._outstanding: set[Key] = set()
        self._applying = asyncio.Lock()
        self._broker_epoch = -1
        self._isr_changes = IsrChangeSender(
            config=config,
            peers=connector,
            controller_id=controller_id,
            broker_epoch=lambda: self._broker_epoch,
            on_settled=self._expand_isr,
            background=self._background,
        )
        self._recovery = LeaderRecovery(
            checkpoint=self._high_watermarks.write_durably, propose=self._propose_changes, background=self._background
        )
        self.work = PartitionWork()
        self._deletion = RecordDeletion(self._find, lease_valid, lambda: self._image, self.move_start, mutants)
        self.reader = PartitionReader(self._find, lease_valid, self._replica_fetched, mutants)
        self._compactor = Compactor(
            disk=disk,
            partitions=self._partitions.values,
            now_ms=self._now_ms,
            work=self.work,
            drops_epochs=mutants.active("compaction_drops_epochs"),
        )
        self._tasks: list[asyncio.Task[None]] = []

    # -- start and stop -----------------------------------------------------------------------------------------

    async def start(self, *, clean_shutdown: bool) -> None:
        """Open and recover every log on the disk; serves nothing before. Raises `StartupError` and `OSError`."""
        starts = self._starts.read()
        replicas = await self._directories.scan()
        logs = await asyncio.gather(
            *(
                self._recovered(replica, clean_shutdown, starts.get((replica.topic, replica.partition), 0))
                for replica in replicas
            )
        )
        for (topic, index, topic_id), log in zip(replicas, logs, strict=True):
            high_watermark = self._high_watermarks.of((topic, index))
            if log is not None:
                self._trace_recovery(topic, index, log, high_watermark)
                self._partitions[topic, index] = self._partition(topic, index, topic_id, log, high_watermark)
        await self._compactor.start()
        await self._high_watermarks.forget_what_is_lost()
        await self._recovery_points.write_durably()
        self._every(self._config.log_flush_offset_checkpoint_interval_ms / 1000, self._recovery_points.write_durably)
        self._every(self._config.high_watermark_checkpoint_interval_ms / 1000, self._high_watermarks.write_durably)
        self._every(self._config.replica_lag_time_max_ms / 2000, self._shrink_isrs)
        self._every(self._config.log_retention_check_interval_ms / 1000, self._let_go)
        self._every(self._config.log_cleaner_backoff_ms / 1000, self._compactor.compact)
        self._every(PROGRESS_INTERVAL_S, self._trace_progress)
        self._every(self._config.producer_id_expiration_check_interval_ms / 1000, self._expire_producers)

    async def _recovered(self, replica: Found, clean_shutdown: bool, start: int) -> PartitionLog | None:
        """An existing log, recovered; None if it is damaged, which takes the replica offline."""
        key = topic, index = replica.topic, replica.partition
        point = self._recovery_points.of(key)
        try:
            return await self._directories.open(
                topic, index, clean_shutdown=clean_shutdown, recovery_point=point, start_offset=start
            )
        except DamagedLogError as damaged:
            self._offline[key] = Damaged(replica.topic_id, str(damaged))
            self._tracer.emit("partition_failed", topic=topic, partition=index, reason=str(damaged))
            return None

    def _trace_recovery(self, topic: str, index: int, log: PartitionLog, high_watermark: int) -> None:
        recovered = log.recovered
        if recovered.reason is not None or log.log_end_offset < high_watermark:
            self._tracer.emit(
                "log_shortened",
                topic=topic,
                partition=index,
                log_end_offset=log.log_end_offset,
                high_watermark=high_watermark,
                lost_bytes=recovered.lost_bytes,
                reason=recovered.reason or "the file ends there",
            )

    async def stop(self) -> None:
        """Stop following and leading, write the last checkpoint, flush and close the logs."""
        async with self._applying:
            await asyncio.gather(*map(end, self._tasks))
            self._tasks.clear()
            await self._isr_changes.stop()
            # Roles first: a truncation in progress completes.
            await asyncio.gather(*(partition.stop() for partition in self._partitions.values()))
            await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()))
            await self._high_watermarks.write_durably()
            for partition in self._partitions.values():
                await partition.log.close()
            await self._recovery_points.write_durably()
            self._partitions.clear()

    def abort(self) -> None:
        """Stop at once, as if the process died: no more answers, writes or requests."""
        self._background.abort()

    def _every(self, interval: float, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval)
                try:
                    await action()
                except OSError as error:
                    if not is_out_of_descriptors(error):  # the next turn repeats the work
                        self._on_disk_failure(error)

        self._tasks.append(self._background.run(repeat(), action.__name__))

    # -- metadata -----------------------------------------------------------------------------------------------

    @property
    def roles_taken(self) -> int:
        """How often a replica of this broker has become leader or follower."""
        return self._roles_taken

    async def apply(self, image: MetadataImage, changed: set[Key]) -> None:
        """Apply the committed metadata to the partitions that changed; returns when they have their new state."""
        self._image = image
        self._outstanding |= changed
        async with self._applying:
            registration = image.brokers.get(self._config.node_id)
            if registration is None or registration.incarnation != self._incarnation_id:
                return
            self._broker_epoch = registration.epoch
            changed, self._outstanding = self._outstanding, set()
            try:
                await self._bring_all_up_to_date(sorted(changed))
            except OSError as error:
                self._on_disk_failure(error)
            for partition in self._partitions.values():
                self._expand_isr(partition)  # a broker may have become available

    async def _bring_all_up_to_date(self, keys: Sequence[Key]) -> None:
        """Update a limited number concurrently, so that they share syncs and thousands of partitions do not block
        others."""
        remaining = iter(keys)

        async def work() -> None:
            for key in remaining:
                await with_descriptors(partial(self._bring_up_to_date, key))
                await asyncio.sleep(0)  # not every change waits for the disk

        await asyncio.gather(*(work() for _ in range(min(BROUGHT_UP_AT_ONCE, len(keys)))))

    async def _bring_up_to_date(self, key: Key) -> None:
        topic = self._image.topics.get(key[0])
        state = self._image.partition(*key)
        settings = None if topic is None else topic.settings(self._config)
        partition = self._partitions.get(key)
        wanted = topic is not None and state is not None and self._config.node_id in state.replicas
        if partition is not None and (not wanted or topic is None or partition.topic_id != topic.id):
            await self._give_up(partition)
            partition = None
        if partition is None and key in self._offline:
            if self._is_missed(self._offline[key].topic_id, topic, state):
                return  # only an operator can decide whether its data can be restored
            await self._set_damaged_aside(key)
        if not wanted or topic is None or state is None or settings is None:
            return
        if partition is None:
            await self._forget_offsets(key)  # an earlier attempt may have stopped after setting another one aside
            log = await self._directories.create(*key, topic.id)
            partition = self._partitions[key] = self._partition(*key, topic.id, log, 0)
        await self._assume_role(partition, state, settings)

    async def _assume_role(self, partition: Partition, state: PartitionImage, settings: TopicSettings) -> None:
        """`state` and `settings` are of the same moment. Otherwise an older ISR with a minimum that was lowered since
        could commit records that eligible replicas lack."""
        partition.configure(settings)
        min_insync = settings.min_insync_replicas
        if partition.error is ErrorCode.KAFKA_STORAGE_ERROR or state.leader_epoch < partition.leader_epoch:
            return
        if state.leader_epoch == partition.leader_epoch:
            partition.updated(state, min_insync)
            return
        if state.leader_epoch < partition.log.epochs.latest_epoch:
            # Leader epochs never decrease (K101-1): metadata that are older than the log cannot be followed.
            latest = partition.log.epochs.latest_epoch
            partition.trace("metadata_behind_log", leader_epoch=state.leader_epoch, latest_epoch=latest)
            return
        self._unfollow(partition)
        self._roles_taken += 1
        partition.log.producers.forgot_none_from(self._image.next_producer_id)
        if state.leader == self._config.node_id:
            await partition.lead(state, min_insync)
            self._recovery.begin(partition)
            return
        follower = await partition.follow(state)
        if state.leader >= 0:
            self._fetcher(state.leader).add(partition, follower)

    async def _give_up(self, partition: Partition) -> None:
        """Delete a partition, first its offsets in checkpoints: a new topic of the same name must not inherit them.

        If the metadata do not contain its topic, nothing is deleted: the metadata may have been lost, and then this
        data is all that is left. Data is set aside unless a record has deleted the topic.
        """
        known = self._image.topics.get(partition.topic)
        deleted = partition.topic_id in self._image.removed_topics
        moved_away = known is not None and known.id == partition.topic_id
        self._unfollow(partition)
        self.work.forget(partition)
        del self._partitions[partition.key]
        await partition.stop()
        await self._high_watermarks.write_durably()
        await self._forget_offsets(partition.key)
        if deleted or moved_away:
            await self._directories.remove(partition.topic, partition.index, partition.log)
            partition.trace("partition_removed")
            return
        await partition.log.close()
        directory = await self._directories.set_aside(partition.topic, partition.index)
        partition.trace("partition_set_aside", directory=directory, reason="no metadata record deleted its topic")

    def _is_missed(self, topic_id: bytes, topic: TopicImage | None, state: PartitionImage | None) -> bool:
        """Whether other replicas may rely on the data of a damaged replica, now that `topic` has its name.

        They do not if a record has deleted the topic, if the replica was reassigned, or if it is outside the ISR and
        can fetch everything from its leader.
        """
        if topic is None:
            return topic_id not in self._image.removed_topics  # if not removed, the metadata may have been lost
        node_id = self._config.node_id
        if topic.id != topic_id or state is None or node_id not in state.replicas:
            return False
        return state.leader in (NO_LEADER, node_id) or node_id in state.isr

    async def _set_damaged_aside(self, key: Key) -> None:
        """Set aside what is left of a damaged replica; its replacement starts empty.

        Its stored offsets are removed afterwards: without them, a process that still finds it here would see no damage.
        """
        directory = await self._directories.set_aside(*key)
        await self._forget_offsets(key)
        reason = self._offline.pop(key).reason
        self._tracer.emit("partition_set_aside", topic=key[0], partition=key[1], directory=directory, reason=reason)

    async def _forget_offsets(self, key: Key) -> None:
        """The stored offsets of a replica do not apply to another one of the same name."""
        await self._recovery_points.forget(key)
        await self._starts.forget(key)
        await self._compactor.forget(key)

    def _unfollow(self, partition: Partition) -> None:
        for fetcher in self._fetchers.values():
            fetcher.remove(partition.key)

    def _fetcher(self, leader_id: int) -> LeaderFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = LeaderFetcher(
                leader_id,
                config=self._config,
                peers=self._connector,
                broker_epoch=lambda: self._broker_epoch,
                background=self._background,
                move_start=self.move_start,
                tiered_start=self._tiered_start,
                work=self.work,
            )
        return fetcher

    def _partition(self, topic: str, index: int, topic_id: bytes, log: PartitionLog, high_watermark: int) -> Partition:
        self._recovery_points.watch((topic, index), log)
        log.before_cut = partial(self._about_to_cut, (topic, index))
        return Partition(
            topic=topic,
            index=index,
            topic_id=topic_id,
            log=log,
            high_watermark=high_watermark,
            config=self._config,
            tracer=self._tracer,
            background=self._background,
            on_disk_failure=self._on_disk_failure,
            mutants=self._mutants,
            now_ms=self._now_ms,
        )

    async def _about_to_cut(self, key: Key, offset: int) -> None:
        """Lower all stored offsets before a truncation, because after a crash they would be trusted."""
        await self._recovery_points.lower(key, offset)
        await self._starts.lower(key, offset)
        await self._compactor.lower(key, offset)
        await self._high_watermarks.lower(key, offset)

    @property
    def damaged(self) -> bool:
        """Whether an existing log cannot be served, because part of it is lost."""
        return bool(self._offline)

    # -- requests -----------------------------------------------------------------------------------------------

    def _find(self, topic: str, index: int) -> Partition | ErrorCode:
        partition = self._partitions.get((topic, index))
        if partition is not None:
            return partition
        if (topic, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._image.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def partition(self, topic: str, index: int) -> Partition | None:
        """This broker's replica of a partition."""
        return self._partitions.get((topic, index))

    @property
    def partitions(self) -> Mapping[Key, Partition]:
        """This broker's replicas, by topic and number."""
        return self._partitions

    def append(
        self, topic: str, partition: int, records: bytearray | memoryview, acks: int, timeout: float
    ) -> PendingAppend:
        """Append batches, which are stamped in place. `timeout` in seconds. Raises `ProtocolError`; nothing is
        written."""
        found = self._find(topic, partition)
        if isinstance(found, ErrorCode):
            raise ProtocolError(found, f"{topic}-{partition}: {found.name}")
        return found.append(records, acks, timeout)

    async def produce(
        self, topic: str, partition: int, records: bytearray | memoryview, acks: int, timeout: float
    ) -> ProduceResult:
        """`append`, then wait for the acknowledgement that `acks` (0, 1 or -1) requires."""
        try:
            appended = self.append(topic, partition, records, acks, timeout)
        except ProtocolError as error:
            return ProduceResult(error.code)
        error_code = ErrorCode.NONE if appended.done is None else await appended.done
        return ProduceResult(error_code, appended.base_offset, appended.log_start_offset)

    def fetch_now(self, limits: FetchLimits, positions: Sequence[FetchPosition]) -> list[PartitionRead] | None:
        """The answer to a Fetch if it can be given now; None: continue with `wait_for_fetch`."""
        return self.reader.fetch_now(limits, positions)

    def wait_for_fetch(self, limits: FetchLimits, positions: Sequence[FetchPosition]) -> Awaitable[list[PartitionRead]]:
        """The answer to a Fetch directly after `fetch_now` returned None: when there is enough, or at the timeout."""
        return self.reader.wait_for_fetch(limits, positions)

    def answer_parked_fetches(self, replica_id: int) -> None:
        """A follower has news for this leader, which it cannot send before its parked fetch is answered."""
        self.reader.answer_parked(replica_id)

    def list_offset(
        self, topic: str, partition: int, timestamp: int, current_leader_epoch: int = -1, *, by_replica: bool = False
    ) -> OffsetFound:
        """ListOffsets for one partition; a consumer gets NOT_LEADER_OR_FOLLOWER after the end of the lease."""
        found = self._find(topic, partition)
        if isinstance(found, ErrorCode):
            return OffsetFound(found)
        if not by_replica and not self._lease_valid():
            return OffsetFound(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return list_offset(found, timestamp, current_leader_epoch, by_replica=by_replica)

    def offset_for_leader_epoch(
        self, topic: str, partition: int, current_leader_epoch: int, asked_epoch: int, *, by_replica: bool = False
    ) -> EpochEndFound:
        """OffsetForLeaderEpoch for one partition."""
        found = self._find(topic, partition)
        if isinstance(found, ErrorCode):
            return EpochEndFound(found)
        answer = epoch_end(found, current_leader_epoch, asked_epoch, by_replica=by_replica)
        if self._forgets_epoch_in_answers:
            return answer._replace(end=EpochEnd(UNDEFINED, answer.end.end_offset))
        return answer

    def log_end(self, topic_id: bytes, index: int) -> LogEndFound:
        """The end of a replica's log, in any role (KIP-966)."""
        topic = self._image.topic_by_id(topic_id)
        partition = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else self._find(topic.name, index)
        return LogEndFound(partition) if isinstance(partition, ErrorCode) else log_end(partition)

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before it has read that."""
        return self._broker_epoch

    # -- log starts -----------------------------------------------------------------------------------------------

    async def start_deletion(self, topic: str, index: int, offset: int, timeout_s: float) -> PendingDeletion:
        """As `RecordDeletion.start`."""
        return await self._deletion.start(topic, index, offset, timeout_s)

    async def delete_records(
        self, topic: str, index: int, offset: int, timeout_s: float = 5.0
    ) -> tuple[ErrorCode, int]:
        """DeleteRecords for one partition: its error, and the low watermark, -1 for errors."""
        return await (await self.start_deletion(topic, index, offset, timeout_s)).answer()

    async def move_start(self, partition: Partition, offset: int) -> None:
        """Move the start of a partition's log. It is stored first, because it may be inside a segment."""
        await partition.remove_below(offset, partial(self._starts.write, partition.key))

    async def _let_go(self) -> None:
        """Remove what the topics' retention does not keep."""
        now_ms = self._now_ms()
        for partition in list(self._partitions.values()):
            await self.work.attempt("retention", partition, partial(self._remove_expired, partition, now_ms))

    async def _remove_expired(self, partition: Partition, now_ms: int) -> None:
        below = partition.expired(now_ms)
        if below is not None:
            await self.move_start(partition, below)

    def counts(self) -> ReplicaCounts:
        """The number of replicas, and the state of the partitions that this broker leads."""
        roles = [partition.role for partition in self._partitions.values()]
        leaders = [role for role in roles if isinstance(role, PartitionLeader)]
        return ReplicaCounts(
            partitions=len(roles),
            leaders=len(leaders),
            lagging=sum(len(leader.isr) < len(leader.replicas) for leader in leaders),
            short=sum(not leader.enough_in_sync for leader in leaders),
            bytes=sum(partition.log.size for partition in self._partitions.values()),
        )

    def sizes(self) -> list[tuple[Key, int, int]]:
        """Every partition, the bytes of its log, and the number of offsets from the high watermark to its end."""
        return [
            (key, partition.log.size, max(0, partition.high_watermark - partition.log.log_end_offset))
            for key, partition in sorted(self._partitions.items())
        ]

    # -- the in-sync sets ---------------------------------------------------------------------------------------

    def _replica_fetched(self, partition: Partition, replica: int) -> None:
        """A follower's fetch was counted; the follower may now join the ISR."""
        self._deletion.progressed(partition)
        leader = partition.role
        if not isinstance(leader, PartitionLeader) or not leader.may_join(replica):
            return
        broker = self._image.brokers.get(replica)
        # The controller would refuse a fenced replica, and one that has restarted since this fetch (H14, H15).
        if broker is None or broker.fenced or broker.epoch != leader.follower(replica).broker_epoch:
            return
        if self._isr_changes.may_propose(partition):
            proposal = leader.propose_expansion(replica, self._broker_epoch)
            if proposal is not None:
                self._isr_changes.submit(partition, proposal)

    def _expand_isr(self, partition: Partition) -> None:
        """Propose followers that could not join at their fetch: they were fenced, or another change was in flight."""
        self._deletion.progressed(partition)
        leader = partition.role
        if isinstance(leader, PartitionLeader) and len(leader.isr) < len(leader.replicas):
            for replica in leader.waiting_to_join(asyncio.get_running_loop().time()):
                self._replica_fetched(partition, replica)

    async def _shrink_isrs(self) -> None:
        for partition in self._partitions.values():
            self._propose_changes(partition)

    def _propose_changes(self, partition: Partition) -> None:
        """Send the proposals of a partition's leader: the end of its recovery, or an ISR without lagging followers."""
        leader = partition.role
        if not isinstance(leader, PartitionLeader):
            return
        now, end = asyncio.get_running_loop().time(), partition.log.log_end_offset
        proposal = leader.propose_recovered(self._broker_epoch) or leader.propose_shrink(end, now, self._broker_epoch)
        if proposal is not None:
            self._isr_changes.submit(partition, proposal)

    # -- periodic work ------------------------------------------------------------------------------------------

    async def _expire_producers(self) -> None:
        idle_since = asyncio.get_running_loop().time() - self._config.producer_id_expiration_ms / 1000
        for partition in self._partitions.values():
            partition.log.producers.expire(idle_since)

    async def _trace_progress(self) -> None:
        for partition in self._partitions.values():
            partition.trace_progress()
