"""Requests to the leaders of `__remote_log_metadata`: appends and reads, over the network or to this broker itself."""

from collections.abc import Sequence
from typing import NamedTuple

from broker.config import BrokerConfig
from broker.errors import ErrorCode
from broker.peers import Peers
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from broker.protocol.messages.producer_apis import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.replica.manager import ReplicaManager
from broker.replica.partition import ALL
from broker.replica.reads import FetchLimits, FetchPosition, PartitionRead
from broker.tiered.remote_storage_rules import METADATA_TOPIC, METADATA_TOPIC_SETTINGS
from broker.topic_creation import create

FETCH_BYTES = 1 << 20


class PublishError(Exception):
    """An event may or may not be in the log."""


class Position(NamedTuple):
    """Where to read a partition: the next offset, and the epoch of the record before it (-1: none)."""

    partition: int
    offset: int
    last_epoch: int


class MetadataAnswer(NamedTuple):
    """What a leader has from a position on. `reread`: it does not have the record before it."""

    partition: int
    records: bytes
    high_watermark: int
    reread: bool = False


class MetadataLog:
    """The metadata topic as a set of logs. `timeout_s`: for one request."""

    def __init__(self, *, node_id: int, replicas: ReplicaManager, peers: Peers, timeout_s: float) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._peers = peers
        self.timeout_s = timeout_s

    async def append(self, leader: int, index: int, batch: bytes) -> int:
        """Append a batch, committed on return; returns its offset. Raises `PublishError`."""
        if leader == self._node_id:
            result = await self._replicas.produce(METADATA_TOPIC, index, bytearray(batch), ALL, self.timeout_s)
            error, offset = result.error, result.base_offset
        else:
            error, offset = await self._append_remotely(leader, index, batch)
        if error is not ErrorCode.NONE:
            raise PublishError(f"{METADATA_TOPIC}-{index}: {error.name}")
        return offset

    async def _append_remotely(self, leader: int, index: int, batch: bytes) -> tuple[ErrorCode, int]:
        data = TopicProduceData(METADATA_TOPIC, partition_data=[PartitionProduceData(index, batch)])
        request = ProduceRequest(acks=ALL, timeout_ms=int(self.timeout_s * 1000), topic_data=[data])
        try:
            answer = await self._peers.request(leader, request, 2 * self.timeout_s)
        except (ConnectionError, TimeoutError) as error:
            raise PublishError(f"{METADATA_TOPIC}-{index}: {type(error).__name__}") from error
        (result,) = answer.responses[0].partition_responses
        return ErrorCode(result.error_code), result.base_offset

    async def read(self, leader: int, topic_id: bytes, positions: Sequence[Position]) -> list[MetadataAnswer]:
        """What a leader has, below the high watermark; no answer for a partition that it cannot serve now."""
        if leader == self._node_id:
            return self._read_locally(topic_id, positions)
        partitions = [
            FetchPartition(
                partition=partition.partition,
                fetch_offset=partition.offset,
                last_fetched_epoch=partition.last_epoch,
                partition_max_bytes=FETCH_BYTES,
            )
            for partition in positions
        ]
        topic = FetchTopic(topic=METADATA_TOPIC, topic_id=topic_id, partitions=partitions)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=8 * FETCH_BYTES, topics=[topic])
        try:
            answer = await self._peers.request(leader, request, self.timeout_s)
        except (ConnectionError, TimeoutError):
            return []
        partition_answers = [partition for topic in answer.responses for partition in topic.partitions]
        return [read for partition in partition_answers if (read := _answer_of(partition)) is not None]

    def _read_locally(self, topic_id: bytes, positions: Sequence[Position]) -> list[MetadataAnswer]:
        requests = [
            FetchPosition(
                topic=METADATA_TOPIC,
                partition=position.partition,
                fetch_offset=position.offset,
                max_bytes=FETCH_BYTES,
                last_fetched_epoch=position.last_epoch,
                topic_id=topic_id,
            )
            for position in positions
        ]
        reads = self._replicas.fetch_now(FetchLimits(min_bytes=0, max_bytes=8 * FETCH_BYTES), requests) or []
        return [answer for position in reads if (answer := _answer_of_read(position)) is not None]

    async def create(self, controller: int, config: BrokerConfig) -> str | None:
        """Create the topic; returns why it was refused, None if it exists now or if that is unknown."""
        partitions = config.remote_log_metadata_topic_num_partitions
        replicas = config.remote_log_metadata_topic_replication_factor
        return await create(self._peers, controller, METADATA_TOPIC, partitions, replicas, METADATA_TOPIC_SETTINGS)


def _answer_of(partition: PartitionData) -> MetadataAnswer | None:
    reread = partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or partition.diverging_epoch is not None
    if not reread and partition.error_code != ErrorCode.NONE:
        return None
    return MetadataAnswer(partition.partition_index, bytes(partition.records or b""), partition.high_watermark, reread)


def _answer_of_read(read: PartitionRead) -> MetadataAnswer | None:
    reread = read.error is ErrorCode.OFFSET_OUT_OF_RANGE or read.diverging is not None
    if not reread and read.error is not ErrorCode.NONE:
        return None
    records = b"".join(part.file.read(part.position, part.length) for part in read.slices)
    return MetadataAnswer(read.partition, records, read.high_watermark, reread)
