"""Tiered storage of one broker: reads the metadata topic, runs the leaders' tasks, and removes local copies.

Without `remote.log.storage.system.enable` it does not exist. A failing store delays this work, and nothing else: every
task is tried again after `remote.log.manager.task.interval.ms`, or at once in a new role.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from broker.config import BrokerConfig
from broker.controller.image import MetadataImage
from broker.errors import StartupError
from broker.ports import Disk
from broker.replica.background import Background, end
from broker.replica.leader import PartitionLeader
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.tiered.leader_task import LeaderTask, SegmentWorker
from broker.tiered.metadata_log import MetadataLog, PublishError
from broker.tiered.object_store import StoreError
from broker.tiered.remote_reads import RemoteReads
from broker.tiered.reporting_store import ReportingStore
from broker.tiered.store_owner import StoreOwner
from broker.tiered.tiered_log import RemoteSizes, TieredLog
from broker.tiered.tiered_metadata import TieredMetadata
from broker.trace import Tracer

TRACE_INTERVAL_S = 0.25
FIRST_CHECK_S = 2.0
"""How long a start waits for the store. A store that does not answer delays no broker; it is checked afterwards."""


class TieredStorage:
    """Created with the broker; `apply` is called after its replicas have followed the metadata. `compares`: objects are
    compared with the metadata when they are read."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        disk: Disk,
        store: ReportingStore,
        replicas: ReplicaManager,
        log: MetadataLog,
        controller_id: Callable[[], int | None],
        cluster_id: Callable[[], str | None],
        clock: Callable[[], int] | None,
        rng: random.Random,
        tracer: Tracer,
        say: Callable[[str], None],
        compares: bool,
        on_disk_failure: Callable[[OSError], None],
        on_refusal: Callable[[StartupError], None],
        on_defect: Callable[[str, BaseException], None],
    ) -> None:
        self._config = config
        self.store = store
        self._replicas = replicas
        self._controller_id = controller_id
        self._cluster_id = cluster_id
        self._clock = clock
        self._rng = rng
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
            config=config, disk=disk, log=log, wall_ms=lambda: max(0, self._now_ms()), tracer=tracer, say=say
        )

        self.owner = StoreOwner(
            store=store,
            disk=disk,
            cluster_id=cluster_id,
            node_id=config.node_id,
            interval_s=self._interval_s,
            rng=rng,
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
            compares=compares,
        )

    @property
    def unknown_objects(self) -> int:
        """The objects of the partitions that this broker leads, which the metadata do not know."""
        return sum(it.unknown_objects for it in self._led())

    def sizes(self) -> dict[str, RemoteSizes]:
        """What remote storage has of the partitions that this broker leads, by topic."""
        found: dict[str, RemoteSizes] = {}
        for remote in self._led():
            found[remote.id.topic] = found.get(remote.id.topic, RemoteSizes()).plus(remote.sizes())
        return dict(sorted(found.items()))

    def _led(self) -> list[TieredLog]:
        return [it for it in self._remotes.values() if it.partition.serving is not None]

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

    def _now_ms(self) -> int:
        return -1 if self._clock is None else self._clock() // 1_000_000

    # -- roles --------------------------------------------------------------------------------------------------

    def apply(self, image: MetadataImage) -> None:
        """Follow the metadata: attach replicas of tiered topics, and start the tasks of new leaders."""
        self._image = image
        present = dict.fromkeys(self._replicas.partitions.values())  # in their order
        for partition in [it for it in self._remotes if it not in present]:
            del self._remotes[partition]
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
        return sorted(self._remotes, key=lambda it: it.key)

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
                task = task or LeaderTask(remote, role, worker, self._rng, move_start)
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
            *(attempt("local copies", it, partial(self._remove_local_copies, it)) for it in self._in_order())
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
        await partition.remove_local_copies(self._now_ms())

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
