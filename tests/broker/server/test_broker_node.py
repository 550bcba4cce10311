"""A whole node in this process: how it ends, cleanly and otherwise."""

import asyncio
import contextlib
import errno
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from broker.config import BrokerConfig, Endpoint
from broker.controller.image import MetadataImage
from broker.disk import RealDisk
from broker.errors import ErrorCode, StartupError
from broker.listeners import plaintext
from broker.log.meta_properties import CLEAN_SHUTDOWN
from broker.ports import Buffer, File
from broker.protocol.api import APIS, ApiKey, decode_response_header, encode_request
from broker.protocol.codec import decode_exactly
from broker.protocol.messages.offset_apis import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from broker.protocol.messages.producer_apis import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.protocol.messages.quorum_apis import (
    DescribeQuorumPartitionData,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from broker.protocol.messages.topic_apis import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.records import Record, build_batch
from broker.protocol.schema import Message, QuorumTopic, Topic
from broker.protocol.uuids import parse_id
from broker.server.broker_node import BrokerNode, NodeFailure
from broker.trace import Tracer, Value
from tests.broker.clients.harness import free_ports


class SickDisk(RealDisk):
    """A disk on which syncs of a partition's log fail from a moment on."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.sick = False

    def open(self, path: str, *, create: bool = False) -> File:
        return SickFile(self, super().open(path, create=create))


class SickFile:
    def __init__(self, disk: SickDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def append(self, buffers: Sequence[Buffer]) -> int:
        return self._file.append(buffers)

    def read(self, offset: int, length: int) -> bytes:
        return self._file.read(offset, length)

    def truncate(self, length: int) -> None:
        self._file.truncate(length)

    async def sync(self, *, in_background: bool = False) -> None:
        if self._disk.sick and "/topic-0/" in self.path:
            raise OSError(errno.EIO, "Input/output error", self.path)
        await self._file.sync(in_background=in_background)

    async def sync_again(self, start: int) -> None:
        await self._file.sync_again(start)

    def send_to(self, transport: asyncio.WriteTransport, offset: int, length: int) -> int:
        return self._file.send_to(transport, offset, length)

    def close(self) -> None:
        self._file.close()


class Node:
    """A node on its directory, and a client of it."""

    def __init__(self, directory: Path, **settings: int) -> None:
        (port,) = free_ports(1)
        self.config = BrokerConfig(
            node_id=1,
            listeners=(plaintext("127.0.0.1", port),),
            voters=(Endpoint(1, "127.0.0.1", port),),
            log_dir=str(directory),
            **settings,  # type: ignore[arg-type]
        )
        self.events: list[dict[str, Value]] = []
        self.disk = SickDisk(str(directory))
        self.node: BrokerNode

    async def start(self) -> None:
        tracer = Tracer(1, lambda: 0, self.events.append)
        self.node = await BrokerNode.open(self.config, disk=self.disk, rng=random.Random(1), tracer=tracer)
        await self.node.start()

    async def ask(self, request: Message, key: ApiKey, version: int) -> Message:
        """One request on a connection of its own. Raises `IncompleteReadError` when the node hangs up instead."""
        reader, writer = await asyncio.open_connection(*self.config.listeners[0].address)
        try:
            writer.write(encode_request(request, version, 1, "test"))
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        finally:
            writer.close()
        _, position = decode_response_header(APIS[key], version, frame)
        return decode_exactly(APIS[key].response, version, frame, position)

    async def create_topic(self) -> None:
        request = CreateTopicsRequest(topics=[CreatableTopic(name="topic", num_partitions=1, replication_factor=1)])
        response = await self.ask(request, ApiKey.CREATE_TOPICS, 5)
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_code == ErrorCode.NONE

    async def produce(self, timestamp: int = 0) -> tuple[int, int]:
        """Error and base offset of a produce with acks=all, once the partition is led."""
        batch = build_batch([Record(0, timestamp, None, b"value")])
        data = [TopicProduceData(name="topic", partition_data=[PartitionProduceData(index=0, records=batch)])]
        while True:
            response = await self.ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=data), ApiKey.PRODUCE, 9)
            assert isinstance(response, ProduceResponse)
            answer = response.responses[0].partition_responses[0]
            if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return answer.error_code, answer.base_offset


def story(tell: Callable[[Node], Awaitable[None]], directory: Path, **settings: int) -> Node:
    async def run() -> Node:
        node = Node(directory, **settings)
        with contextlib.closing(node.disk):
            async with asyncio.timeout(120):
                await node.start()
                await node.node.ready()
                await tell(node)
                if not node.node.failed.done():
                    await node.node.stop()
                return node

    return asyncio.run(run())


def event(node: Node, name: str) -> dict[str, Value]:
    return next(it for it in node.events if it["event"] == name)


def test_a_clean_stop_is_marked_and_the_mark_is_used_once(tmp_path: Path) -> None:
    async def write(node: Node) -> None:
        await node.create_topic()
        assert await node.produce() == (0, 0)
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()

    async def write_more(node: Node) -> None:
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()
        assert await node.produce() == (0, 1)

    first = story(write, tmp_path)
    assert event(first, "broker_started")["clean_shutdown"] is False
    assert first.events[-1]["event"] == "broker_stopped"
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    second = story(write_more, tmp_path)
    assert event(second, "broker_started")["clean_shutdown"] is True
    assert event(second, "broker_started")["incarnation"] != ""


@pytest.mark.conforms("H16")
def test_the_mark_of_a_clean_stop_is_written_after_every_log_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It vouches for what is on the disk: a process that is killed while it stops has closed nothing yet."""
    marked: list[bool] = []

    async def write(node: Node) -> None:
        stop = node.node.replicas.stop

        async def look() -> None:
            await stop()
            marked.append((tmp_path / CLEAN_SHUTDOWN).exists())

        monkeypatch.setattr(node.node.replicas, "stop", look)

    story(write, tmp_path)
    assert marked == [False]
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


@pytest.mark.conforms("H31")
def test_a_broker_reports_metadata_only_after_its_replicas_applied_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that gets this report for a lost leadership takes the broker's lease for ended."""

    async def tell(node: Node) -> None:
        await node.create_topic()
        assert await node.produce() == (0, 0)
        replicas, lifecycle = node.node.replicas, node.node.lifecycle
        apply, entered, may_apply = replicas.apply, asyncio.Event(), asyncio.Event()

        async def slowly(image: MetadataImage, changed: set[tuple[str, int]]) -> None:
            entered.set()
            await may_apply.wait()
            await apply(image, changed)

        monkeypatch.setattr(replicas, "apply", slowly)
        before = node.node.image.offset
        request = CreateTopicsRequest(topics=[CreatableTopic(name="other", num_partitions=1, replication_factor=1)])
        creating = asyncio.create_task(node.ask(request, ApiKey.CREATE_TOPICS, 5))
        await entered.wait()
        assert lifecycle._heartbeat().current_metadata_offset <= before < node.node.image.offset
        may_apply.set()
        await creating

    story(tell, tmp_path)


def test_no_record_is_acknowledged_after_a_failed_sync(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        await node.create_topic()
        assert await node.produce() == (0, 0)
        node.disk.sick = True
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            assert await node.produce() == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        with pytest.raises(NodeFailure, match=r"the disk failed: .*Input/output error"):
            await asyncio.shield(node.node.failed)
        with pytest.raises(OSError):  # noqa: PT011 - refused or reset, as the kernel likes
            await node.produce()

    node = story(tell, tmp_path, log_flush_interval_messages=1)
    assert "Input/output error" in str(event(node, "broker_failed")["reason"])
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_defect_in_a_core_task_ends_the_node(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        async def defect(*_: object) -> None:
            raise ZeroDivisionError("a defect")

        node.node.replicas.apply = defect  # type: ignore[method-assign, assignment]
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await node.create_topic()
        with pytest.raises(NodeFailure, match="metadata publisher: ZeroDivisionError: a defect"):
            await asyncio.shield(node.node.failed)

    story(tell, tmp_path)


@pytest.mark.conforms("K595-8", "K595-46")
def test_the_committed_cluster_id_is_remembered(tmp_path: Path) -> None:
    made: list[str | None] = []

    async def tell(node: Node) -> None:
        await node.node.ready()
        made.append(node.node.cluster_id)

    story(tell, tmp_path)
    (cluster_id,) = made
    assert f"cluster.id={cluster_id}\n" in (tmp_path / "meta.properties").read_text()
    assert len(parse_id(str(cluster_id))) == 16
    story(tell, tmp_path)
    assert made == [cluster_id, cluster_id]

    async def other() -> None:
        node = Node(tmp_path, cluster_id="other")  # type: ignore[arg-type]
        with pytest.raises(StartupError, match=f"belongs to cluster {cluster_id}"):
            await node.start()
        node.disk.close()

    asyncio.run(other())


@pytest.mark.conforms("K595-44")
def test_the_quorum_is_described(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        topics = [
            QuorumTopic(topic_name="__cluster_metadata", partitions=[DescribeQuorumPartitionData(partition_index=0)])
        ]
        response = await node.ask(DescribeQuorumRequest(topics=topics), ApiKey.DESCRIBE_QUORUM, 1)
        assert isinstance(response, DescribeQuorumResponse)
        described = response.topics[0].partitions[0]
        assert (described.error_code, described.leader_id) == (ErrorCode.NONE, 1)
        assert [voter.replica_id for voter in described.current_voters] == [1]

    story(tell, tmp_path)


def test_offsets_by_position_and_by_time(tmp_path: Path) -> None:
    async def tell(node: Node) -> None:
        await node.create_topic()
        for timestamp in (100, 300, 200):
            await node.produce(timestamp)

        async def offset(timestamp: int, version: int = 7) -> tuple[int, int, int]:
            partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[Topic("topic", [partition])])
            response = await node.ask(request, ApiKey.LIST_OFFSETS, version)
            assert isinstance(response, ListOffsetsResponse)
            found = response.topics[0].partitions[0]
            return found.error_code, found.offset, found.timestamp

        assert await offset(-2) == (0, 0, -1)
        assert await offset(-1) == (0, 3, -1)
        assert await offset(150) == (0, 1, 300)
        assert await offset(301) == (0, -1, -1)
        assert await offset(-3, version=6) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)

    story(tell, tmp_path)


def test_a_damaged_metadata_log_keeps_the_node_from_starting_and_costs_no_data(tmp_path: Path) -> None:
    async def write(node: Node) -> None:
        await node.create_topic()
        assert await node.produce() == (0, 0)

    story(write, tmp_path)
    (tmp_path / CLEAN_SHUTDOWN).unlink()  # as after a kill
    log = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    damaged = bytearray(whole)
    damaged[65] ^= 1
    log.write_bytes(damaged)
    data = (tmp_path / "topic-0" / f"{0:020d}.log").read_bytes()

    async def nothing(_: Node) -> None:
        raise AssertionError("it must not start")

    for _ in range(2):  # the second time as well
        with pytest.raises(StartupError, match=r"__cluster_metadata-0: .* not intact now: .*; restore the directory"):
            story(nothing, tmp_path)
        assert log.read_bytes() == damaged
        assert (tmp_path / "topic-0" / f"{0:020d}.log").read_bytes() == data

    async def write_more(node: Node) -> None:
        assert await node.produce() == (0, 1)

    log.write_bytes(whole)  # what the message asks for
    story(write_more, tmp_path)
