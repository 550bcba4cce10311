"""Two kinds of listeners: controller listeners serve requests of the cluster, the others serve clients."""

from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.errors import ErrorCode, StartupError
from broker.protocol.messages.broker_apis import BrokerHeartbeatRequest, BrokerRegistrationRequest, EnvelopeRequest
from broker.protocol.messages.cluster_apis import MetadataRequest
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.messages.partition_apis import AlterPartitionRequest
from broker.protocol.messages.producer_apis import AllocateProducerIdsRequest, ProduceRequest
from broker.protocol.messages.quorum_apis import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    VotePartitionData,
    VoteRequest,
)
from broker.protocol.request import Request
from broker.protocol.schema import QuorumTopic
from broker.server.client import PeerConnector
from broker.server.frames import SMALL
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.broker.server.asking import ready

LARGEST_EPOCH = (1 << 31) - 2
FORGED_VOTE = VoteRequest(
    topics=[QuorumTopic("__cluster_metadata", [VotePartitionData(0, replica_epoch=LARGEST_EPOCH, replica_id=2)])]
)
OF_CONTROLLERS: dict[str, tuple[Request[Any], int]] = {
    "VOTE": (FORGED_VOTE, 2),
    "BEGIN_QUORUM_EPOCH": (BeginQuorumEpochRequest(), 1),
    "END_QUORUM_EPOCH": (EndQuorumEpochRequest(), 1),
    "FETCH_SNAPSHOT": (FetchSnapshotRequest(), 0),
    "ENVELOPE": (EnvelopeRequest(), 0),
    "BROKER_REGISTRATION": (BrokerRegistrationRequest(broker_id=2), 4),
    "BROKER_HEARTBEAT": (BrokerHeartbeatRequest(broker_id=2, want_shut_down=True), 1),
    "ALTER_PARTITION": (AlterPartitionRequest(), 3),
    "ALLOCATE_PRODUCER_IDS": (AllocateProducerIdsRequest(), 0),
}


@pytest.mark.conforms("SEC-1")
@pytest.mark.parametrize("name", OF_CONTROLLERS)
def test_a_client_listener_refuses_cluster_requests(name: str) -> None:
    """Refused as Apache Kafka does it: the connection is closed."""
    request, version = OF_CONTROLLERS[name]

    async def story(cluster: SimulatedCluster) -> None:
        await ready(cluster)
        leader = cluster.controller()
        assert leader is not None
        epoch = cluster.node(leader).quorum.epoch
        stranger = PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20)
        for broker in cluster.addresses:
            with pytest.raises(ConnectionError):
                await stranger.request(broker, request, 10.0, version)
        reasons = {event["reason"] for event in cluster.journal.of("connection_rejected")}
        assert reasons == {f"{name} is not served at this listener"}
        assert cluster.node(leader).quorum.epoch == epoch
        assert cluster.controller() == leader

    with SimulatedCluster(1) as cluster:
        cluster.run(story(cluster))


@pytest.mark.conforms("SEC-1")
def test_the_metadata_log_is_an_unknown_topic_at_a_client_listener() -> None:
    fetch = FetchRequest(
        replica_id=2, max_wait_ms=0, topics=[FetchTopic("__cluster_metadata", partitions=[FetchPartition(0)])]
    )

    async def story(cluster: SimulatedCluster) -> None:
        await ready(cluster)
        stranger = PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20)
        response = await stranger.request(1, fetch, 10.0, 12)
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with SimulatedCluster(1) as cluster:
        cluster.run(story(cluster))


def test_clients_that_use_all_memory_do_not_block_small_requests_or_controllers() -> None:
    """They do so by sending most of large requests, and never the rest."""

    async def story(cluster: SimulatedCluster) -> None:
        await ready(cluster)
        doors = cluster.node("n1").doors
        (door,) = doors.for_brokers
        assert doors.for_controllers is not None
        while door.listener.budget.reserve(SMALL + 1):
            pass
        await SimulatedClient(cluster.addresses).create_topic("t", 1, 3)
        largest = BrokerConfig.from_properties(LEAST).socket_request_max_bytes
        assert doors.for_controllers.listener.budget.reserve(largest)

    with SimulatedCluster(1) as cluster:
        cluster.run(story(cluster))


@pytest.mark.conforms("SEC-1")
@pytest.mark.parametrize("refused", [MetadataRequest(), ProduceRequest()])
def test_the_controller_listener_refuses_client_requests(refused: Request[Any]) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await ready(cluster)
        client = PeerConnector(-1, cluster.controllers, response_max_bytes=1 << 20)
        with pytest.raises(ConnectionError):
            await client.request(1, refused, 10.0)

    with SimulatedCluster(1) as cluster:
        cluster.run(story(cluster))


@pytest.mark.conforms("SEC-1")
def test_a_node_alone_needs_no_listener_for_controllers_and_takes_no_votes_at_its_own() -> None:
    alone = {"listeners": "n1:9092", "quorum.voters": "1@n1:9092", "controller.listener.names": ""}

    async def story(cluster: SimulatedCluster) -> None:
        cluster.start()
        await cluster.ready()
        assert cluster.node("n1").doors.for_controllers is None
        stranger = PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20)
        with pytest.raises(ConnectionError):
            await stranger.request(1, FORGED_VOTE, 10.0)
        assert cluster.controller() == "n1"

    with SimulatedCluster(1, 1, properties=alone) as cluster:
        cluster.run(story(cluster))


@pytest.mark.conforms("SEC-2")
def test_each_listener_names_the_brokers_by_their_listeners_of_its_name() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await ready(cluster)
        for port in (9092, 9094):
            addresses = {broker: (host, port) for broker, (host, _) in cluster.addresses.items()}
            client = PeerConnector(-1, addresses, response_max_bytes=1 << 20)
            response = await client.request(1, MetadataRequest(), 10.0)
            brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
            assert brokers == {1: ("n1", port)}

    listeners = "INSIDE://n1:9092,OUTSIDE://n1:9094,CONTROLLER://n1:9093"
    protocols = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"
    properties = {"listeners": listeners, "listener.security.protocol.map": protocols}
    with SimulatedCluster(1, 1, properties=properties) as cluster:
        cluster.run(story(cluster))


LEAST = {"node.id": "1", "listeners": "n1:9092", "quorum.voters": "1@n1:9092", "log.dir": "log"}


@pytest.mark.conforms("SEC-1")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"quorum.voters": "1@n1:9092,2@n2:9092"}, "controller.listener.names is missing"),
        (
            {"quorum.voters": "1@n1:9093,2@n2:9093", "controller.listener.names": "CONTROLLER"},
            "a voter of quorum.voters needs one of controller.listener.names=CONTROLLER",
        ),
        (
            {"listeners": "CONTROLLER://n1:1", "controller.listener.names": "CONTROLLER"},
            "no listener for brokers and clients",
        ),
        ({"inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name, 'INSIDE'"),
        ({"listeners": "INSIDE://n1:1"}, "'INSIDE' is not a security protocol"),
        ({"listeners": "INSIDE://n1:1,n1:2", "listener.security.protocol.map": "INSIDE:TLS"}, "NAME:PROTOCOL"),
        ({"listeners": "n1:1,n1:2"}, "is given twice"),
        ({"listeners": "SSL://n1:1,n1:1"}, "is given twice"),
    ],
)
def test_listeners_that_cannot_be_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(StartupError) as refused:
        BrokerConfig.from_properties(LEAST | given, "server.properties")
    assert str(refused.value).startswith("server.properties: ")
    assert words in str(refused.value)


def test_an_observer_needs_no_listener_for_controllers_of_its_own() -> None:
    given = LEAST | {"node.id": "2", "controller.listener.names": "CONTROLLER"}
    assert BrokerConfig.from_properties(given).controller_listener is None
