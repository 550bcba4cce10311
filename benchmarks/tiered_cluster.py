"""Three brokers with a directory as object store, and the requests that benchmarks of tiered storage send to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.load_client import CLIENT, PRODUCE_VERSION, ask, controller_port, create, produce_frame
from broker.errors import ErrorCode
from broker.protocol.api import APIS, ApiKey, decode_response_header, encode_request
from broker.protocol.codec import decode
from broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from broker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from broker.protocol.messages.produce import ProduceResponse
from broker.protocol.records import iter_batches
from tests.broker.clients.harness import BrokerProcess, Cluster, cluster

TASK_INTERVAL_MS = 500
IN_FLIGHT = 8
PARTITION_MAX_BYTES = 1 << 20
"""The default of Kafka's consumers."""
POLL_S = 0.005
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
_INT32 = struct.Struct(">i")


@contextmanager
def tiered_cluster(directory: Path, **settings: object) -> Iterator[Cluster]:
    """Three running brokers whose object store is `directory`/store; they are killed at the end."""
    store = directory / "store"
    store.mkdir()
    with cluster(
        directory,
        3,
        remote_log_storage_system_enable="true",
        rsm_config_url=f"file://{store}",
        remote_log_manager_task_interval_ms=TASK_INTERVAL_MS,
        rlmm_config_remote_log_metadata_topic_num_partitions=2,
        log_segment_delete_delay_ms=0,
        **settings,
    ) as nodes:
        yield nodes


def log_bytes(directory: Path) -> int:
    """The bytes of the records in a replica's directory or in the store."""
    return sum(path.stat().st_size for path in directory.rglob("*.log"))


def flush(nodes: Cluster) -> None:
    """Write dirty pages of the logs to disk, so that a measurement does not pay for what was written before it."""
    for broker in nodes.brokers.values():
        for path in broker.log_dir.rglob("*.log"):
            with contextlib.suppress(FileNotFoundError):  # the broker removed the segment
                _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def reached(condition: Callable[[], Awaitable[bool]], what: str, patience_s: float) -> float:
    """Wait for a condition and return the time that this took, in seconds. Raises `TimeoutError` with `what`."""
    began = time.perf_counter()
    while not await condition():
        if time.perf_counter() - began > patience_s:
            raise TimeoutError(f"not within {patience_s:g} s: {what}")
        await asyncio.sleep(POLL_S)
    return time.perf_counter() - began


class TieredTopic:
    """A topic with one partition, which uses remote storage if its settings say so."""

    def __init__(self, nodes: Cluster, name: str, patience_s: float) -> None:
        self.nodes = nodes
        self.name = name
        self._patience_s = patience_s
        self._port = nodes.brokers[1].port

    async def create(self, replicas: Sequence[int], settings: Mapping[str, str]) -> None:
        """The first replica leads."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))]
        topic = CreatableTopic(
            name=self.name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
        )
        await create(self._port, topic)
        await self.in_sync(replicas)

    # -- metadata -----------------------------------------------------------------------------------------------

    async def _partition(self) -> MetadataResponsePartition | None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.name)])
        answer = await ask(self._port, request, ApiKey.METADATA, 9)
        assert isinstance(answer, MetadataResponse)
        return next(iter(answer.topics[0].partitions), None)

    async def in_sync(self, replicas: Sequence[int]) -> float:
        """Wait until exactly these replicas are assigned and in sync; returns the time, in seconds."""

        async def condition() -> bool:
            known, wanted = await self._partition(), set(replicas)
            return known is not None and set(known.replica_nodes) == wanted == set(known.isr_nodes)

        return await reached(condition, f"{self.name} is in sync on {list(replicas)}", self._patience_s)

    async def leader(self) -> BrokerProcess:
        known = await self._partition()
        assert known is not None, f"{self.name} does not exist"
        assert known.leader_id in self.nodes.brokers, f"{self.name} has no leader"
        return self.nodes.brokers[known.leader_id]

    def directory(self, node: int) -> Path:
        """Where a broker keeps its replica."""
        return self.nodes.brokers[node].log_dir / f"{self.name}-0"

    def _has_replica(self, node: int) -> bool:
        return self.directory(node).exists()

    async def removed(self, node: int) -> None:
        """Wait until a broker that is no replica any more has removed its directory."""

        async def condition() -> bool:
            return not self._has_replica(node)

        await reached(condition, f"broker {node} has removed {self.directory(node)}", self._patience_s)

    async def reassign(self, replicas: Sequence[int]) -> None:
        partition = ReassignablePartition(partition_index=0, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=self.name, partitions=[partition])])
        port = await controller_port(self._port)
        answer = await ask(port, request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
        assert isinstance(answer, AlterPartitionReassignmentsResponse)
        error = answer.error_code or answer.responses[0].partitions[0].error_code
        assert error == ErrorCode.NONE, f"{self.name} to {list(replicas)}: {ErrorCode(error).name}"

    async def alter(self, key: str, value: str) -> None:
        await self._alter(TOPIC_RESOURCE, self.name, key, value)

    async def alter_brokers(self, key: str, value: str) -> None:
        """Change a setting of all brokers."""
        await self._alter(BROKER_RESOURCE, "", key, value)

    async def _alter(self, kind: int, name: str, key: str, value: str) -> None:
        resource = AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, value=value)]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await ask(await controller_port(self._port), request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 0)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer.responses[0].error_message

    async def offset_at(self, timestamp: int) -> int:
        """An offset of the leader by its special timestamp; -1: unknown."""
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self.name, partitions=[partition])])
        answer = await ask((await self.leader()).port, request, ApiKey.LIST_OFFSETS, 11)
        assert isinstance(answer, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        return found.offset if found.error_code == ErrorCode.NONE else -1

    async def offset_reached(self, timestamp: int, offset: int, what: str) -> None:
        async def condition() -> bool:
            return await self.offset_at(timestamp) == offset

        try:
            await reached(condition, what, self._patience_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: offset {offset} expected, {await self.offset_at(timestamp)} found") from error

    # -- records ------------------------------------------------------------------------------------------------

    async def fill(self, batches: int, record_bytes: int, records: int) -> None:
        """Append equal batches, with acks=all."""
        frame = produce_frame(self.name, -1, record_bytes, records)
        reader, writer = await asyncio.open_connection("127.0.0.1", (await self.leader()).port)
        try:
            for sent in range(batches + IN_FLIGHT):
                if sent >= IN_FLIGHT and sent - IN_FLIGHT < batches:
                    _check_produced(await _answer(reader))
                if sent < batches:
                    writer.write(frame)
                    await writer.drain()
        finally:
            writer.close()

    async def read(self, start: int, end: int) -> tuple[int, float]:
        """Read [start, end) from the leader with one request at a time; returns the bytes and the time, in seconds."""
        reader, writer = await asyncio.open_connection("127.0.0.1", (await self.leader()).port)
        offset, received, began = start, 0, time.perf_counter()
        try:
            while offset < end:
                writer.write(self._fetch(offset))
                records = _fetched(await _answer(reader))
                for _, header in iter_batches(records):
                    assert header.base_offset <= offset < header.next_offset, f"offset {offset} is missing"
                    offset, received = header.next_offset, received + header.size
        finally:
            writer.close()
        return received, time.perf_counter() - began

    def _fetch(self, offset: int) -> bytes:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=PARTITION_MAX_BYTES)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            topics=[FetchTopic(topic=self.name, partitions=[partition])],
        )
        return bytes(encode_request(request, 11, 1, CLIENT))


async def _answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(_INT32.unpack(await reader.readexactly(4))[0])


def _check_produced(frame: bytes) -> None:
    _, position = decode_response_header(APIS[ApiKey.PRODUCE], PRODUCE_VERSION, frame)
    response, _ = decode(ProduceResponse, PRODUCE_VERSION, frame, position)
    error = response.responses[0].partition_responses[0].error_code
    assert error == ErrorCode.NONE, f"produce: {ErrorCode(error).name}"


def _fetched(frame: bytes) -> bytes:
    """The records of an answer; empty if the broker asks to repeat the request."""
    _, position = decode_response_header(APIS[ApiKey.FETCH], 11, frame)
    response, _ = decode(FetchResponse, 11, frame, position)
    partition = response.responses[0].partitions[0]
    if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
        return b""
    assert partition.error_code == ErrorCode.NONE, f"fetch: {ErrorCode(partition.error_code).name}"
    return bytes(partition.records or b"")
