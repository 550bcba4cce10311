"""Queries to a cluster from outside: the requests, the choice between answers, and the messages without an answer."""

import socket
from contextlib import ExitStack

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.cluster_apis import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.protocol.messages.config_apis import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.offset_apis import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse
from broker.protocol.messages.partition_apis import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
    ReassignablePartitionResponse,
    ReplicaElectionResult,
)
from broker.protocol.messages.quorum_apis import DescribeQuorumPartitionResult, DescribeQuorumResponse, ReplicaState
from broker.protocol.messages.topic_apis import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.schema import Message, QuorumTopic, Topic
from nemeses.scheduling import REAL_TIME
from orchestrator.command.line import main
from orchestrator.running.cluster import Cluster
from systems import Member
from systems.kafka_protocol import observer
from systems.kafka_protocol.observer import METADATA_TOPIC, KafkaObserver
from tests.orchestrator.fake_broker import Answer, fake_broker

PATIENCE = 40.0  # a time scale: on a machine that has much else to do a thread may wait for seconds until it can answer


def member(number: int, address: tuple[str, int]) -> Member:
    return Member(f"n{number}", number, *address, "broker")


def quorum(error: int = 0, leader: int = 1, epoch: int = 5) -> DescribeQuorumResponse:
    result = DescribeQuorumPartitionResult(
        error_code=error,
        leader_id=leader,
        leader_epoch=epoch,
        high_watermark=40,
        current_voters=[
            ReplicaState(1, log_end_offset=42, last_fetch_timestamp=9000, last_caught_up_timestamp=9000),
            ReplicaState(2, log_end_offset=40, last_fetch_timestamp=8990, last_caught_up_timestamp=8500),
            ReplicaState(3, log_end_offset=-1),
        ],
        observers=[ReplicaState(4, log_end_offset=41, last_caught_up_timestamp=8900)],
    )
    return DescribeQuorumResponse(topics=[QuorumTopic(METADATA_TOPIC, [result])])


def cluster_state(addresses: dict[int, tuple[str, int]], leader: int = 1) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=3, replica_nodes=[1, 2], isr_nodes=[1]
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(number, host, port) for number, (host, port) in addresses.items()],
        cluster_id="c1",
        topics=[MetadataResponseTopic(name="log", partitions=[partition])],
    )


def broker(quorum_answer: DescribeQuorumResponse, state: MetadataResponse) -> Answer:
    def answer(request: Message) -> Message:
        if isinstance(request, DescribeClusterRequest):
            brokers = [DescribeClusterBroker(b.node_id, b.host, b.port) for b in state.brokers]
            return DescribeClusterResponse(brokers=brokers)
        return state if isinstance(request, MetadataRequest) else quorum_answer

    return answer


def test_the_tool_follows_a_brokers_answer_to_the_leader(capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        leader = stack.enter_context(fake_broker(broker(quorum(), cluster_state({}))))
        hint = broker(quorum(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=1), cluster_state({1: leader}))
        follower = stack.enter_context(fake_broker(hint))
        given = f"{follower[0]}:{follower[1]}"
        asking = ["quorum", "describe", "--timeout", "60", "--bootstrap-server", given]
        assert main(asking) == 0
        assert main([*asking, "--replication"]) == 0
    assert capsys.readouterr().out == (
        "ClusterId:              c1\n"
        "LeaderId:               1\n"
        "LeaderEpoch:            5\n"
        "HighWatermark:          40\n"
        "MaxFollowerLag:         2\n"
        "MaxFollowerLagTimeMs:   500\n"
        "CurrentVoters:          [1,2,3]\n"
        "CurrentObservers:       [4]\n"
        "ReplicaId       LogEndOffset    Lag             LagTimeMs       Status\n"
        "1               42              0               0               Leader\n"
        "2               40              2               500             Follower\n"
        "3               -1              -1              -1              Follower\n"
        "4               41              1               100             Observer\n"
    )


def test_the_leader_of_the_newest_epoch_counts() -> None:
    with ExitStack() as stack:
        deposed = stack.enter_context(fake_broker(broker(quorum(leader=1, epoch=4), cluster_state({}, leader=1))))
        state = cluster_state({1: ("a", 1), 2: ("b", 2)}, leader=2)
        newest = stack.enter_context(fake_broker(broker(quorum(leader=2, epoch=5), state)))
        members = [member(1, deposed), member(2, newest), member(3, closed_port())]
        cluster = Cluster(KafkaObserver(members, "log", PATIENCE), members, "log")
        view = cluster.view()
        cluster.close()
    assert (view.controller, view.epoch, view.unfenced) == ("n2", 5, frozenset({"n1", "n2"}))
    assert (view.partitions[0].leader, view.partitions[0].isr, view.partitions[0].whole) == ("n2", ("n1",), False)
    assert len(view.complaints) == 1
    assert view.complaints[0].startswith("n3 does not answer (127.0.0.1:")


def closed_port() -> tuple[str, int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address: tuple[str, int] = free.getsockname()
        return address


def test_a_topic_is_created_by_the_controller_and_may_exist_already() -> None:
    asked = []

    def answer(request: Message) -> Message | bytes:
        if isinstance(request, CreateTopicsRequest):
            asked.append(request.topics[0])
            error = ErrorCode.TOPIC_ALREADY_EXISTS if len(asked) > 1 else ErrorCode.REQUEST_TIMED_OUT
            result = CreatableTopicResult(name="log", error_code=error, error_message="slow")
            return CreateTopicsResponse(topics=[result])
        return broker(quorum(), cluster_state({}))(request)

    with fake_broker(answer) as address:
        members = [member(1, address)]
        cluster = Cluster(KafkaObserver(members, "log", PATIENCE), members, "log")
        cluster.create_topic([[1, 2], [2, 1]], 60.0)
        cluster.close()
    assert [a.broker_ids for a in asked[0].assignments] == [[1, 2], [2, 1]]
    assert len(asked) == 2


def test_a_leader_is_elected_by_putting_it_first_and_preferring_it() -> None:
    asked: list[Message] = []

    def answer(request: Message) -> Message | bytes:
        if isinstance(request, AlterPartitionReassignmentsRequest):
            asked.append(request)
            return AlterPartitionReassignmentsResponse()
        if isinstance(request, ElectLeadersRequest):
            asked.append(request)
            refused = ElectLeadersPartitionResult(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "not yet in sync")
            results = [] if len(asked) > 2 else [ReplicaElectionResult("log", [refused])]
            return ElectLeadersResponse(replica_election_results=results)
        return broker(quorum(), cluster_state({}, leader=2 if len(asked) > 2 else 1))(request)

    with fake_broker(answer) as address:
        members = [member(1, address), member(2, closed_port()), member(3, closed_port())]
        observer = KafkaObserver(members, "log", PATIENCE)
        assert observer.elect("n3", 0) == "n3 has no replica of partition 0"
        assert asked == []
        assert observer.elect("n2", 0) == "the leader is n1: not yet in sync"
        assert observer.elect("n2", 0) == "the leader is n1"
        assert observer.elect("n2", 0) is None
        observer.close()
    reassigned, elected = asked[:2]
    assert isinstance(reassigned, AlterPartitionReassignmentsRequest)
    assert reassigned.topics[0].partitions[0].replicas == [2, 1]
    assert isinstance(elected, ElectLeadersRequest)
    assert elected.topic_partitions == [ElectLeadersTopicPartitions("log", [0])]


def test_an_invalid_protocol_answer_is_reported() -> None:
    request = MetadataRequest(topics=[])
    for raw, words in (
        (b"HTTP/1.1 400", "a frame of 1213486160 bytes"),
        (b"\0\0\0\x08\0\0\0\1\0\0", "the connection was closed"),
        (b"\0\0\0\x06\0\0\0\1\0\0", "cannot be decoded"),
    ):
        with fake_broker(lambda _, raw=raw: raw) as address, pytest.raises(observer.RequestError, match=words):  # type: ignore[misc]
            observer.ask(REAL_TIME, address, request, 9, timeout_s=60.0)


def test_separate_controllers_answer_queries_and_brokers_create_topics() -> None:
    def create(request: Message) -> Message | bytes:
        if isinstance(request, CreateTopicsRequest):
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="log")])
        # A broker passes the question on, and the answer names another node as the leader.
        return broker(quorum(leader=1, epoch=5), cluster_state({4: ("a", 1), 5: ("b", 2)}, leader=4))(request)

    with ExitStack() as stack:
        active = stack.enter_context(fake_broker(lambda _: recently_fetched()))
        standby = stack.enter_context(fake_broker(lambda _: quorum(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=-1)))
        serving = stack.enter_context(fake_broker(create))
        controllers = [member(1, active), member(2, standby), member(3, closed_port())]
        brokers = [member(4, serving), member(5, serving)]
        observer = KafkaObserver(brokers, "log", PATIENCE, controllers)
        view = observer.view()
        created = observer.create_topic([[4, 5]], 60.0)
        observer.close()
    assert (view.controller, view.epoch, view.partitions[0].leader) == ("n1", 7, "n4")
    # n3 has not fetched for long: to be a voter is not to be alive.
    assert view.unfenced == {"n1", "n2", "n4", "n5"}
    assert [complaint.split()[0] for complaint in view.complaints] == ["n3"]
    assert created is None


def recently_fetched() -> DescribeQuorumResponse:
    """Of three voters the first leads, the second fetched just now, the third some time ago, as `PATIENCE` has it."""
    voters = [
        ReplicaState(number, last_fetch_timestamp=int((90_000 - ago_ms) * PATIENCE))
        for number, ago_ms in ((1, 0), (2, 400), (3, 20_000))
    ]
    result = DescribeQuorumPartitionResult(leader_id=1, leader_epoch=7, current_voters=voters)
    return DescribeQuorumResponse(topics=[QuorumTopic(METADATA_TOPIC, [result])])


def test_settings_replicas_and_offsets_of_a_topic_are_read_and_changed() -> None:
    asked: list[Message] = []
    stated = {-1: 90, -2: 0, -4: 40, -5: 59, -6: 60}

    def answer(request: Message) -> Message | bytes:
        asked.append(request)
        if isinstance(request, IncrementalAlterConfigsRequest):
            results = [AlterConfigsResourceResponse()]
            return IncrementalAlterConfigsResponse(responses=results)
        if isinstance(request, AlterPartitionReassignmentsRequest):
            refused = ReassignablePartitionResponse(0, ErrorCode.INVALID_REQUEST, "no")
            topic = Topic("log", [refused])
            return AlterPartitionReassignmentsResponse(responses=[topic])
        if isinstance(request, ListOffsetsRequest):
            offset = stated[request.topics[0].partitions[0].timestamp]
            result = ListOffsetsPartitionResponse(offset=offset)
            return ListOffsetsResponse(topics=[Topic("log", [result])])
        return broker(quorum(), cluster_state({1: ("n1", 1)}))(request)

    with fake_broker(answer) as address:
        observer = KafkaObserver([member(1, address)], "log", PATIENCE)
        assert observer.configure({"local.retention.bytes": "1"}, None) is None
        assert observer.configure({"follower.fetch.last.tiered.offset.enable": "true"}, "n1") is None
        assert observer.reassign(0, ["n1"]) == "INVALID_REQUEST: no"
        found = observer.offsets(0)
        observer.close()
    changes = [each for each in asked if isinstance(each, IncrementalAlterConfigsRequest)]
    assert [(each.resources[0].resource_type, each.resources[0].resource_name) for each in changes] == [
        (2, "log"),
        (4, "1"),
    ]
    names = ("log-start", "local-start", "last-tiered", "pending-upload", "committed-end")
    assert [found[name] for name in names] == [0, 40, 59, 60, 90]  # type: ignore[index]
