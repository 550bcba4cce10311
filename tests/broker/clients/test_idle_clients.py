"""Idle client connections: they do not keep brokers out, nor the log from its files."""

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.errors import ErrorCode
from broker.protocol.api import APIS, ApiKey, decode_response_header, encode_request
from broker.protocol.codec import decode_exactly
from broker.protocol.decoder import DecodeError
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.clients.harness import PATIENCE, BrokerProcess, Cluster, cluster, until
from tests.broker.clients.test_hostile_peers import answer, metadata
from tests.broker.clients.test_three_brokers import in_sync, produce

pytestmark = pytest.mark.rotating(3, among="idle clients")
FETCH_VERSION = 12

# A slow machine is not taken for a dead one.
UNHURRIED = {
    "quorum_fetch_timeout_ms": 6_000,
    "quorum_election_timeout_ms": 6_000,
    "quorum_request_timeout_ms": 6_000,
    "broker_session_timeout_ms": 15_000,
    "broker_lease_ms": 12_000,
    "replica_lag_time_max_ms": 15_000,
    "replica_socket_timeout_ms": 10_000,
}


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def idle_clients(broker: BrokerProcess, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), PATIENCE)) for _ in range(count)
        ]


def create(nodes: Cluster, topic: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(PATIENCE)


@pytest.mark.parametrize("clients", [20, 2_000])
def test_a_restarted_broker_gets_back_to_brokers_that_idle_clients_have_filled(tmp_path: Path, clients: int) -> None:
    with cluster(tmp_path, 3, max_connections=clients, min_insync_replicas=2, **UNHURRIED) as nodes:
        create(nodes, "log", 3)
        until(lambda: in_sync(nodes, "log") == {1, 2, 3}, "all are in sync")
        nodes.brokers[3].kill()
        until(lambda: in_sync(nodes, "log") == {1, 2}, "the killed one is out")
        with idle_clients(nodes.brokers[1], clients + 50), idle_clients(nodes.brokers[2], clients + 50):
            nodes.brokers[3].start()
            nodes.brokers[3].wait_ready()
            until(lambda: "3" in membership(nodes.brokers[3]), "the restarted broker is in the cluster")
        until(lambda: in_sync(nodes, "log") == {1, 2, 3}, "all are in sync again")


def membership(broker: BrokerProcess) -> str:
    return " ".join(str(each.node_id) for each in metadata(broker).brokers)


def test_clients_past_the_descriptors_are_refused_and_the_log_gets_its_files(tmp_path: Path) -> None:
    with cluster(tmp_path, log_segment_bytes=4096) as nodes:
        create(nodes, "log", 1)
        broker = nodes.brokers[1]
        broker.terminate()
        broker.start(descriptors=160)
        broker.wait_ready()
        producer = Producer({"bootstrap.servers": broker.address, "acks": "all"})
        assert produce(producer, "log", [b"first"]) == [b"first"]
        with idle_clients(broker, 400):
            until(lambda: "descriptors are in use" in broker.events.read_text(), "clients are refused for descriptors")
            values = [bytes(3_000) + b"%d" % number for number in range(20)]
            assert produce(producer, "log", values) == values  # each a segment of its own
        assert broker.alive
        until(lambda: is_served(broker), "others are served again")


def is_served(broker: BrokerProcess) -> bool:
    """Whether there is an answer: one that it has no descriptor for is disconnected."""
    with contextlib.suppress(DecodeError, ConnectionError):
        return metadata(broker).controller_id == 1
    return False


def test_an_idle_client_is_disconnected_and_a_waiting_client_is_not(tmp_path: Path) -> None:
    """A part of a request counts as idle; a fetch of a consumer that waits for records does not."""
    behind = FetchPartition(fetch_offset=1)
    fetch = FetchRequest(max_wait_ms=3_000, min_bytes=1, topics=[FetchTopic("log", partitions=[behind])])
    with cluster(tmp_path, connections_max_idle_ms=500) as nodes:
        create(nodes, "log", 1)
        produce(Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all"}), "log", [b"first"])
        with idle_clients(nodes.brokers[1], 5) as (consumer, halfway, *silent):
            consumer.sendall(encode_request(fetch, FETCH_VERSION, 7, "test"))
            halfway.sendall(b"\0\0\1")
            for client in (halfway, *silent):
                assert client.recv(1) == b""
            frame = answer(consumer)
        correlation_id, position = decode_response_header(APIS[ApiKey.FETCH], FETCH_VERSION, frame)
        response = decode_exactly(FetchResponse, FETCH_VERSION, frame, position)
        assert (correlation_id, response.responses[0].partitions[0].error_code) == (7, ErrorCode.NONE)
        assert metadata(nodes.brokers[1]).controller_id == 1


def test_one_address_has_its_own_bound(tmp_path: Path) -> None:
    overrides = "127.0.0.1:3,10.0.0.1:50"
    with (
        cluster(tmp_path, max_connections_per_ip=2, max_connections_per_ip_overrides=overrides) as nodes,
        idle_clients(nodes.brokers[1], 3),
    ):
        with socket.create_connection(("127.0.0.1", nodes.brokers[1].port), PATIENCE) as fourth:
            fourth.sendall(b"\0\0\0\x0c\0\x12\0\0\0\0\0\1\xff\xff\0\0")  # ApiVersions: a client's question
            assert answer(fourth) == b""
        rejected = "more than max.connections.per.ip=3 connections from 127.0.0.1"
        until(lambda: rejected in nodes.brokers[1].events.read_text(), "the refusal is traced")
