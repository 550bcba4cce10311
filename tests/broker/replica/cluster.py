"""Replica managers on real disks, joined in memory: requests are calls, and the test delivers metadata."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from broker.config import BrokerConfig, Endpoint
from broker.controller.controller import alter_partitions
from broker.controller.image import MetadataImage
from broker.controller.partition_elections import Elections
from broker.disk import RealDisk
from broker.environment import BrokerEnvironment
from broker.errors import ErrorCode
from broker.listeners import plaintext
from broker.mutants import Mutants
from broker.protocol.api import api_of
from broker.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    fetching_replica,
)
from broker.protocol.messages.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from broker.protocol.messages.offset_apis import ListOffsetsRequest, OffsetForLeaderEpochRequest
from broker.protocol.messages.partition_apis import AlterPartitionRequest, AlterPartitionResponse
from broker.protocol.records import Record, build_batch, iter_batches, read_records
from broker.protocol.schema import Message
from broker.replica.leader import PartitionLeader
from broker.replica.manager import ProduceResult, ReplicaManager
from broker.replica.partition import Partition
from broker.replica.reads import FetchLimits, FetchPosition, PartitionRead
from broker.server.handlers.offsets_handler import OffsetsHandler
from broker.server.work_budget import Turns
from broker.trace import Tracer

TOPIC = "log"
TOPIC_ID = b"topic-id-of-log!"
CONTROLLER = 99


def batch(*values: str) -> bytearray:
    """A producer's batch with one record per value."""
    return bytearray(build_batch([Record(0, 1000, None, value.encode()) for value in values]))


def values_of(read: PartitionRead) -> list[str]:
    """The values of the records in a read."""
    data = b"".join(part.file.read(part.position, part.length) for part in read.slices)
    return [
        (record.value or b"").decode() for position, _ in iter_batches(data) for record in read_records(data, position)
    ]


class Node:
    """One broker: its manager, its view of the metadata, and what it traced."""

    def __init__(self, cluster: "Cluster", node_id: int, root: Path, **settings: Any) -> None:
        self.id = node_id
        self.image = MetadataImage()
        self.events: list[dict[str, Any]] = []
        self.lease = True
        self.disk = RealDisk(str(root))
        self.disk_failures: list[OSError] = []
        self.incarnation = random.Random(f"{node_id} {len(cluster.records)}").randbytes(16)
        quick = {
            "replica_fetch_wait_max_ms": 100,
            "replica_fetch_backoff_ms": 20,
            "replica_lag_time_max_ms": 400,
            "high_watermark_checkpoint_interval_ms": 20,
            "log_flush_offset_checkpoint_interval_ms": 20,
        }
        self.config = BrokerConfig(
            node_id=node_id,
            listeners=(plaintext("h", 9092),),
            voters=(Endpoint(1, "h", 9092),),
            log_dir=str(root),
            **{**quick, **settings},
        )
        tracer = Tracer(node_id, lambda: 0, self.events.append)
        environment = BrokerEnvironment(
            self.config, self.disk, random.Random(node_id), tracer, Mutants(cluster.mutants)
        )
        self.manager = ReplicaManager(
            environment,
            connector=Peers(cluster, node_id),
            incarnation_id=self.incarnation,
            controller_id=lambda: CONTROLLER,
            lease_valid=lambda: self.lease,
            on_disk_failure=self.disk_failures.append,
            on_defect=lambda reason, _: cluster.defects.append(reason),
        )

    def partition(self, index: int = 0) -> Partition:
        found = self.manager._find(TOPIC, index)
        assert isinstance(found, Partition), found
        return found

    @property
    def leader(self) -> PartitionLeader:
        return self.partition().leader

    def traced(self, event: str) -> list[dict[str, Any]]:
        return [it for it in self.events if it["event"] == event]

    async def produce(self, *values: str, acks: int = -1, timeout: float = 5.0) -> ProduceResult:
        return await self.manager.produce(TOPIC, 0, batch(*values), acks, timeout)

    def read(self, offset: int = 0, **position: Any) -> PartitionRead:
        """What a consumer gets at once."""
        asked = FetchPosition(TOPIC, 0, offset, 1 << 20, **position)
        reads = self.manager.fetch_now(FetchLimits(max_bytes=1 << 20), [asked])
        assert reads is not None
        return reads[0]

    def content(self) -> list[str]:
        """The values of the whole log."""
        log = self.partition().log
        slices = log.locate(log.log_start_offset, 1 << 30, log.log_end_offset)
        return values_of(PartitionRead(TOPIC, 0, slices=slices))


class Peers:
    """The connections of one node. A link that is cut times out at once."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id

    async def request(self, node_id: int, message: Any, timeout: float, version: int | None = None) -> Any:
        cluster, version = self._cluster, api_of(message).max_version if version is None else version
        await asyncio.sleep(0)
        if node_id == CONTROLLER:
            return await cluster.alter_partition(message, version)
        target = cluster.nodes.get(node_id)
        if target is None or (self._node_id, node_id) in cluster.cut:
            raise ConnectionError(f"broker {node_id} cannot be reached")
        cluster.requests.append((self._node_id, node_id, message))
        if isinstance(message, OffsetForLeaderEpochRequest):
            turns = Turns()
            return await turns.finish(OffsetsHandler(target.manager, turns).offset_for_leader_epoch(message, version))
        if isinstance(message, ListOffsetsRequest):
            turns = Turns()
            return await turns.finish(OffsetsHandler(target.manager, turns).list_offsets(message, version))
        assert isinstance(message, FetchRequest), message
        if not cluster.records_flow:
            raise ConnectionError(f"broker {node_id} gives no records")
        async with asyncio.timeout(timeout):
            response = await fetch(target, message)
        if (self._node_id, node_id) in cluster.cut or node_id not in cluster.nodes:
            raise ConnectionError(f"broker {node_id} was lost")
        return response


async def fetch(target: Node, request: FetchRequest) -> FetchResponse:
    """What the server's handler does with a Fetch of version 15."""
    replica = fetching_replica(request)
    limits = FetchLimits(
        replica.replica_id, replica.replica_epoch, request.max_wait_ms / 1000, request.min_bytes, request.max_bytes
    )
    response = FetchResponse()
    positions = []
    for topic in request.topics:
        known = target.image.topic_by_id(topic.topic_id)
        answers = FetchableTopicResponse(topic_id=topic.topic_id, partitions=[])
        response.responses.append(answers)
        for it in topic.partitions:
            if known is None:
                answers.partitions.append(PartitionData(it.partition, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            positions.append(
                FetchPosition(
                    known.name,
                    it.partition,
                    it.fetch_offset,
                    it.partition_max_bytes,
                    it.current_leader_epoch,
                    it.last_fetched_epoch,
                    it.log_start_offset,
                    topic.topic_id,
                )
            )
    reads = target.manager.fetch_now(limits, positions)
    if reads is None:
        reads = await target.manager.wait_for_fetch(limits, positions)
    for position, read in zip(positions, reads, strict=True):
        answers = next(it for it in response.responses if it.topic_id == position.topic_id)
        answers.partitions.append(
            PartitionData(
                read.partition,
                read.error,
                read.high_watermark,
                log_start_offset=read.log_start_offset,
                diverging_epoch=EpochEndOffset(*read.diverging) if read.diverging else None,
                records=b"".join(part.file.read(part.position, part.length) for part in read.slices),
            )
        )
    return response


class Cluster:
    """Brokers and one metadata log, which a node applies to the end at each call of `hear`."""

    def __init__(self, path: Path, *, mutants: tuple[str, ...] = (), **settings: Any) -> None:
        self.path = path
        self.settings = settings
        self.mutants = mutants
        self.nodes: dict[int, Node] = {}
        self.records: list[MetadataRecord] = []
        self.committed = MetadataImage()
        self.cut: set[tuple[int, int]] = set()
        self.requests: list[tuple[int, int, Message]] = []
        self.alterations: list[AlterPartitionRequest] = []
        self.controller_works = True
        self.records_flow = True
        self.hears_of_alterations = True
        self.who_asked_hears = True
        self.defects: list[str] = []
        self._hearing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self._hearing)
        for node_id in list(self.nodes):
            await self.stop(node_id)
        assert not self.defects

    async def start(self, *node_ids: int, clean: bool = False) -> None:
        """Start brokers and register them; each hears of it."""
        for node_id in node_ids:
            node = Node(self, node_id, self.path / f"n{node_id}", **self.settings)
            await node.manager.start(clean_shutdown=clean)
            self.nodes[node_id] = node
            self.commit(
                RegisterBrokerRecord(
                    broker_id=node_id,
                    incarnation_id=node.incarnation,
                    broker_epoch=len(self.records),
                    end_points=[BrokerEndpoint(host="h", port=9092)],
                    fenced=False,
                )
            )

    async def stop(self, node_id: int) -> Node:
        node = self.nodes.pop(node_id)
        await node.manager.stop()
        node.disk.close()
        return node

    async def kill(self, node_id: int) -> Node:
        """A process ends without a word: nothing more is written, no checkpoint either."""
        node = self.nodes.pop(node_id)
        node.manager.abort()
        await asyncio.sleep(0)
        for partition in node.manager._partitions.values():
            partition._leave_role()
        node.disk.close()
        return node

    def commit(self, *records: MetadataRecord) -> None:
        """Append to the metadata log. No broker applies it yet."""
        for record in records:
            self.committed.apply(record, len(self.records))
            self.records.append(record)

    async def hear(self, *node_ids: int) -> None:
        """Brokers (all, unless named) apply what is committed."""
        await asyncio.gather(*(self._hear(self.nodes[node_id]) for node_id in node_ids or list(self.nodes)))

    async def _hear(self, node: Node) -> None:
        changed: set[tuple[str, int]] = set()
        for offset in range(node.image.offset + 1, len(self.records)):
            changed |= node.image.apply(self.records[offset], offset).partitions
        await node.manager.apply(node.image, changed)

    async def create_topic(self, replicas: list[int], *, configs: dict[str, str] | None = None) -> None:
        """One partition, led by the first replica; every broker hears of it."""
        self.commit(
            TopicRecord(TOPIC, TOPIC_ID),
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
            ),
            *(ConfigRecord(2, TOPIC, name, value) for name, value in (configs or {}).items()),
        )
        await self.hear()

    def elect(self, leader: int, isr: list[int] | None = None, *, uncleanly: bool = False) -> None:
        """A new leader epoch; no broker applies it yet."""
        record = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=leader, isr=isr)
        if uncleanly:
            record.isr, record.leader_recovery_state = [leader], 1
        self.commit(record)

    def delete_topic(self) -> None:
        self.commit(RemoveTopicRecord(TOPIC_ID))

    async def alter_partition(self, message: Message, version: int) -> Message:
        """The active controller's part. Every broker applies a granted change, the proposer after its answer."""
        assert isinstance(message, AlterPartitionRequest)
        self.alterations.append(message)
        if not self.controller_works:
            return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
        elections = Elections(next(iter(self.nodes.values())).config, Mutants())
        records, response = alter_partitions(self.committed, message, version, elections)
        self.commit(*records)
        if self.hears_of_alterations:
            await self.hear(*(node for node in self.nodes if node != message.broker_id))
            if self.who_asked_hears:
                hearing = asyncio.create_task(self._hear_later(message.broker_id))
                self._hearing.add(hearing)
                hearing.add_done_callback(self._hearing.discard)
        return response

    async def _hear_later(self, node_id: int) -> None:
        if node_id in self.nodes:
            await self.hear(node_id)


async def until(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    """Return once the condition holds. Raises `TimeoutError`."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - what is waited for has many causes
            await asyncio.sleep(0.001)


Story = Callable[[Cluster], Awaitable[None]]


def tell(path: Path, story: Story, *, mutants: tuple[str, ...] = (), **settings: Any) -> None:
    async def run() -> None:
        async with Cluster(path, mutants=mutants, **settings) as cluster:
            await story(cluster)

    asyncio.run(run())


async def three(cluster: Cluster, **topic: Any) -> None:
    await cluster.start(1, 2, 3)
    await cluster.create_topic([1, 2, 3], **topic)
