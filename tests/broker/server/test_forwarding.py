"""Requests for the controller, sent to any broker: in the simulated world, with its faults."""

import asyncio

import pytest

from broker.errors import ErrorCode
from broker.protocol.api import encode_request
from broker.protocol.messages.broker_apis import EnvelopeRequest
from broker.protocol.messages.quorum_apis import DescribeQuorumPartitionData, DescribeQuorumRequest, VoteRequest
from broker.protocol.messages.topic_apis import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from broker.protocol.schema import QuorumTopic
from broker.server.work_budget import MOST_ENTRIES_ELSEWHERE
from simulator.cluster import SimulatedCluster
from tests.broker.server.asking import ready
from tests.simulator.stories import in_cluster

ASK_QUORUM = DescribeQuorumRequest([QuorumTopic("__cluster_metadata", [DescribeQuorumPartitionData(0)])])


def create(name: str, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, 1, 3)], timeout_ms=timeout_ms)


def not_controllers(cluster: SimulatedCluster) -> list[int]:
    controller = cluster.controller()
    return [machine.node_id for machine in cluster.machines.values() if machine.name != controller]


@pytest.mark.conforms("K595-44")
@in_cluster(1)
async def test_any_broker_forwards_controller_queries(cluster: SimulatedCluster, /) -> None:
    client = await ready(cluster)
    for broker in (1, 2, 3):
        created = await client.ask(broker, create(f"t{broker}"), 7)
        assert created.topics[0].error_code == ErrorCode.NONE
        described = await client.ask(broker, ASK_QUORUM, 2)
        (partition,) = described.topics[0].partitions
        assert partition.error_code == ErrorCode.NONE
        assert f"n{partition.leader_id}" == cluster.controller()
        assert [voter.replica_id for voter in partition.current_voters] == [1, 2, 3]
    for broker in (1, 2, 3):
        deletion = DeleteTopicsRequest([DeleteTopicState(f"t{broker % 3 + 1}")], timeout_ms=10_000)
        deleted = await client.ask(broker, deletion, 6)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        again = await client.ask(broker, deletion, 6)
        assert again.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("seed", range(4))
@in_cluster("seed")
async def test_a_request_waits_for_the_next_controller_within_its_time(cluster: SimulatedCluster, /) -> None:
    client = await ready(cluster)
    others = not_controllers(cluster)
    cluster.kill(str(cluster.controller()))
    answers = await asyncio.gather(*(client.ask(broker, create(f"t{broker}"), 7) for broker in others))
    assert [answer.topics[0].error_code for answer in answers] == [ErrorCode.NONE] * 2


@pytest.mark.parametrize(("timeout_ms", "within_s"), [(2_000, 2.5), ((1 << 31) - 1, 61.0)])
@in_cluster(3)
async def test_a_forwarded_request_without_an_answer_times_out(
    cluster: SimulatedCluster, /, timeout_ms: int, within_s: float
) -> None:
    client = await ready(cluster)
    (left, other) = not_controllers(cluster)
    cluster.kill(str(cluster.controller()), f"n{other}")
    started = cluster.loop.time()
    answer = await client.ask(left, create("t", timeout_ms), 7, 120.0)
    assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert cluster.loop.time() - started < within_s


@in_cluster(5)
async def test_a_request_with_a_possible_effect_is_not_repeated(cluster: SimulatedCluster, /) -> None:
    """The controller gets the request and its answer is lost: the client must not get an error that excludes an
    effect."""
    client = await ready(cluster)
    (asked, _) = not_controllers(cluster)
    controller = str(cluster.controller())
    await client.ask(asked, create("first"), 7)  # the way is open
    cluster.cut(controller, f"n{asked}")
    answer = await client.ask(asked, create("second", 1_000), 7)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    cluster.heal()
    await cluster.until(lambda: "second" in cluster.node(controller).image.topics)


@in_cluster(1, nodes=1)
async def test_an_envelope_has_only_controller_requests(cluster: SimulatedCluster, /) -> None:
    client = await ready(cluster)
    vote = bytes(encode_request(VoteRequest(), 2, 0, None)[4:])
    too_many_topics = CreateTopicsRequest([CreatableTopic("t")] * (MOST_ENTRIES_ELSEWHERE + 1))
    large = bytes(encode_request(too_many_topics, 7, 0, None)[4:])
    for content in (vote, b"", b"\0" * 9, vote[:7], large):
        answer = await client.ask(1, EnvelopeRequest(request_data=content), 0)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
