"""Any input of a hostile peer ends at most its own connection; the broker keeps running in its memory limit."""

import contextlib
import random
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from broker.errors import ErrorCode
from broker.protocol.api import APIS, ApiKey, decode_response_header, encode_request
from broker.protocol.codec import decode_exactly
from broker.protocol.messages.cluster_apis import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from broker.protocol.messages.fetch import FetchRequest
from broker.protocol.messages.producer_apis import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.protocol.messages.topic_apis import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.protocol.records import Record, build_batch
from broker.protocol.schema import Message
from tests.broker.clients.harness import PATIENCE, BrokerProcess, cluster, until

MEGABYTE = 1 << 20
# What a broker's memory may grow by, whatever is thrown at it here: buffers of SMALL size, and what malloc keeps.
GROWTH = 48 * MEGABYTE


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with cluster(tmp_path_factory.mktemp("hostile")) as nodes:
        yield nodes.brokers[1]


@pytest.fixture(autouse=True)
def _unharmed(broker: BrokerProcess) -> Iterator[None]:
    """After each story the broker answers as before, and has given the memory back."""
    assert metadata(broker).controller_id == 1
    before = broker.resident_bytes()
    yield
    assert broker.alive
    assert metadata(broker).controller_id == 1
    assert broker.resident_bytes() - before < GROWTH


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE)


def answer(sock: socket.socket) -> bytes:
    """One response frame; empty when the broker hung up instead."""
    with contextlib.suppress(ConnectionResetError), sock.makefile("rb") as stream:
        head = stream.read(4)
        return stream.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
    return b""


def send(sock: socket.socket, data: bytes | bytearray) -> None:
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        sock.sendall(data)


def metadata(broker: BrokerProcess) -> MetadataResponse:
    with connect(broker) as sock:
        sock.sendall(encode_request(MetadataRequest(topics=[]), 9, 1, "test"))
        frame = answer(sock)
    _, position = decode_response_header(APIS[ApiKey.METADATA], 9, frame)
    return decode_exactly(MetadataResponse, 9, frame, position)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_random_bytes(broker: BrokerProcess) -> None:
    rng = random.Random(1)
    for _ in range(200):
        with connect(broker) as sock:
            send(sock, rng.randbytes(rng.choice([1, 4, 20, 300, 20_000])))


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 7, (1 << 31) - 1, 101 * MEGABYTE])
def test_lengths_out_of_bounds(broker: BrokerProcess, length: int) -> None:
    with connect(broker) as sock:
        send(sock, struct.pack(">i", length))
        assert answer(sock) == b""


def test_announced_bytes_that_never_arrive_do_not_block_other_clients(broker: BrokerProcess) -> None:
    socks = [connect(broker) for _ in range(300)]
    for sock in socks:
        send(sock, struct.pack(">i", 99 * MEGABYTE) + bytes(100))
    assert metadata(broker).controller_id == 1
    for sock in socks:
        sock.close()


def test_every_api_with_bodies_of_noise(broker: BrokerProcess) -> None:
    rng = random.Random(2)
    for key, api in APIS.items():
        for version in {api.min_version, api.max_version}:
            for size in (0, 1, 9, 60, 600):
                with connect(broker) as sock:
                    header = struct.pack(">hhih", key, version, 1, -1)
                    send(sock, framed(header + b"\0" + bytes(rng.choices(range(256), k=size))))
                    sock.shutdown(socket.SHUT_WR)
                    answer(sock)


def test_arrays_that_claim_to_be_huge(broker: BrokerProcess) -> None:
    for key, version, body in (
        (ApiKey.METADATA, 1, struct.pack(">i", 0x7FFFFFFF)),
        (ApiKey.METADATA, 9, b"\0\xff\xff\xff\xff\x0f"),
        (ApiKey.PRODUCE, 3, struct.pack(">hhii", -1, 1, 1000, 0x7FFFFFF0)),
        (ApiKey.FETCH, 12, bytes(21) + b"\xff\xff\xff\xff\x0f"),
    ):
        with connect(broker) as sock:
            send(sock, framed(struct.pack(">hhih", key, version, 1, -1) + body))
            assert answer(sock) == b""


def test_valid_requests_with_flipped_bytes(broker: BrokerProcess) -> None:
    rng = random.Random(3)
    requests: list[tuple[Message, int]] = [
        (ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3),
        (MetadataRequest(topics=None), 12),
        (FetchRequest(max_wait_ms=0), 12),
        (ProduceRequest(acks=1), 9),
    ]
    for _ in range(300):
        message, version = rng.choice(requests)
        frame = bytearray(encode_request(message, version, 1, "test"))
        for _ in range(rng.choice([1, 2, 5])):
            frame[rng.randrange(4, len(frame))] = rng.randrange(256)
        with connect(broker) as sock:
            send(sock, frame)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(broker: BrokerProcess) -> None:
    with connect(broker) as sock:
        header = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 4711, 4) + b"test"
        send(sock, framed(header + b"\0\x02a\x02b\0"))
        frame = answer(sock)
        assert struct.unpack(">i", frame[:4]) == (4711,)
        response = decode_exactly(ApiVersionsResponse, 0, frame, 4)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        assert ranges[ApiKey.API_VERSIONS] == (0, 4)
        assert ranges[ApiKey.PRODUCE] == (0, 12)
        assert not {71, 72} & ranges.keys()
        # the connection stays open: the client now uses an advertised version
        send(sock, encode_request(ApiVersionsRequest(), 0, 2, "test"))
        assert decode_exactly(ApiVersionsResponse, 0, answer(sock), 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("key", "version"), [(ApiKey.PRODUCE, 2), (ApiKey.FETCH, 3), (ApiKey.METADATA, 14), (1000, 0)])
def test_other_unknown_versions_and_apis_close_the_connection(broker: BrokerProcess, key: int, version: int) -> None:
    with connect(broker) as sock:
        send(sock, framed(struct.pack(">hhih", key, version, 1, -1) + bytes(20)))
        assert answer(sock) == b""


def test_a_peer_that_never_reads_its_answers(broker: BrokerProcess) -> None:
    request = bytes(encode_request(MetadataRequest(topics=None), 9, 1, "test"))
    with connect(broker) as sock:
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            for _ in range(20_000):
                sock.send(request * 50)
        assert metadata(broker).controller_id == 1


def test_a_creation_too_large_for_the_metadata_log_is_refused_and_the_controller_continues(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        broker = nodes.brokers[1]
        keys = ("retention.ms", "retention.bytes", "segment.bytes", "delete.retention.ms", "min.compaction.lag.ms")
        configs = [CreatableTopicConfig(key, "1000000") for key in keys]
        too_many = create(broker, [f"{number:0240}" for number in range(6_000)], configs)
        assert {result.error_code for result in too_many} == {ErrorCode.POLICY_VIOLATION}
        # While the controller was busy, the session of its only broker may have ended.
        until(lambda: create(broker, ["one-that-fits"])[0].error_code == ErrorCode.NONE, "a topic that fits is created")


def create(
    broker: BrokerProcess, names: list[str], configs: Sequence[CreatableTopicConfig] = ()
) -> list[CreatableTopicResult]:
    topics = [CreatableTopic(name, 1, 1, configs=list(configs)) for name in names]
    request = CreateTopicsRequest(topics, timeout_ms=int(PATIENCE * 1000))
    with connect(broker) as sock:
        sock.sendall(encode_request(request, 7, 1, "test"))
        frame = answer(sock)
    _, position = decode_response_header(APIS[ApiKey.CREATE_TOPICS], 7, frame)
    return decode_exactly(CreateTopicsResponse, 7, frame, position).topics


def test_an_answer_has_a_long_name_once_for_all_partitions(broker: BrokerProcess) -> None:
    batch = build_batch([Record(0, 0, None, b"")])
    partitions = [PartitionProduceData(index, batch) for index in range(5_000)]
    request = ProduceRequest(None, 1, 1000, [TopicProduceData(name="n" * 20_000, partition_data=partitions)])
    with connect(broker) as sock:
        sock.sendall(encode_request(request, 9, 1, "test"))
        frame = answer(sock)
    assert 5_000 < len(frame) < 5 * MEGABYTE


def test_many_idle_connections(broker: BrokerProcess) -> None:
    socks = [connect(broker) for _ in range(500)]
    assert metadata(broker).controller_id == 1
    for sock in socks:
        sock.close()


def test_each_rejection_is_traced(broker: BrokerProcess) -> None:
    events = Path(broker.events).read_text()
    assert "connection_rejected" in events
    assert "request_failed" not in events
