"""The running controller moves leaderships: no other broker leads while the last leader may act."""

import asyncio

import pytest

from broker.clock_rates import PACE
from broker.errors import ErrorCode
from broker.protocol.messages.partition_apis import (
    PREFERRED,
    UNCLEAN,
    AlterPartitionData,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionTopicData,
    BrokerState,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
    ReassignablePartition,
)
from broker.protocol.schema import Topic
from tests.broker.controller.clock import play
from tests.broker.controller.node import LEASE, SESSION, Node, a_node
from tests.broker.controller.world import topic_request
from tests.stories import run_by

STORIES = run_by(play)
BEAT_S = 0.1
TO_THE_FIRST = AlterPartitionReassignmentsRequest(
    topics=[Topic("t", [ReassignablePartition(0, [1])])], timeout_ms=1_000
)


async def led_by_the_second() -> Node:
    """Broker 2 leads a partition of 2 and 1, though 1 is its first replica: it was not there."""
    node = Node()
    node.lead()
    await node.start(1, 2)
    response = await node.controller.handle_create_topics(topic_request("t", [1, 2]), 7)
    assert response.topics[0].error_code == 0
    await node.heartbeat(1, want_shut_down=True)
    await node.register(1, life=2)
    await node.heartbeat(1)
    topic = node.image.topics["t"]
    partition = topic.partitions[0]
    assert partition.leader == 2
    isr = [BrokerState(broker, node.image.brokers[broker].epoch) for broker in (2, 1)]
    data = AlterPartitionData(0, partition.leader_epoch, [], isr, 0, partition.partition_epoch)
    request = AlterPartitionRequest(2, node.image.brokers[2].epoch, [AlterPartitionTopicData(topic.id, [data])])
    answer = await node.controller.handle_alter_partition(request, 3)
    assert answer.topics[0].partitions[0].isr == [2, 1]
    return node


def asked(node: Node, kind: int = PREFERRED, *, all_of_them: bool = False) -> asyncio.Task[ElectLeadersResponse]:
    request = ElectLeadersRequest(
        kind, None if all_of_them else [ElectLeadersTopicPartitions("t", [0])], timeout_ms=60_000
    )
    return asyncio.create_task(node.controller.handle_elect_leaders(request, 2))


def leader(node: Node) -> int:
    return node.image.topics["t"].partitions[0].leader


async def taken(node: Node) -> None:
    """Return once the partition has no leader."""
    while leader(node) != -1:  # noqa: ASYNC110 - an image has no event for it, and no other code needs one
        await asyncio.sleep(0.01)


async def in_handover() -> tuple[Node, asyncio.Task[ElectLeadersResponse]]:
    """Broker 2 has lost the partition at a client's wish, and no broker leads it yet."""
    node = await led_by_the_second()
    await node.heartbeat(2)
    answer = asked(node)
    await taken(node)
    return node, answer


async def elected_after_a_session(node: Node, *brokers: int, most_beats: int = 3) -> None:
    """The next controller, which gets heartbeats of these brokers, elects broker 1 after a session."""
    node.lead(epoch=2)
    began = asyncio.get_running_loop().time()
    while leader(node) == -1:
        await asyncio.gather(*map(node.heartbeat, brokers))
        await asyncio.sleep(BEAT_S)
    assert SESSION - BEAT_S <= asyncio.get_running_loop().time() - began < SESSION + most_beats * BEAT_S
    assert leader(node) == 1


@pytest.mark.conforms("H31")
async def test_an_uninformed_leader_gets_no_lease_and_its_successor_waits_for_the_last_one() -> None:
    node = await led_by_the_second()
    loop = asyncio.get_running_loop()
    before = node.image.offset
    assert not (await node.heartbeat(2)).is_fenced
    began = loop.time()
    lease_until = began + PACE * LEASE
    answer = asked(node)
    while leader(node) != 1:
        response = await node.heartbeat(2, current_metadata_offset=before)
        assert response.error_code == ErrorCode.REQUEST_TIMED_OUT or loop.time() < began + BEAT_S
        await node.heartbeat(1)
        await asyncio.sleep(BEAT_S)
    assert lease_until - BEAT_S <= loop.time() < lease_until + 3 * BEAT_S
    assert (await answer).replica_election_results[0].partition_result[0].error_code == 0
    await node.controller.stop()


@pytest.mark.conforms("H31")
async def test_an_informed_leader_is_replaced_at_its_next_heartbeat() -> None:
    node, answer = await in_handover()
    assert not answer.done()
    assert not (await node.heartbeat(2)).is_fenced
    await answer
    assert leader(node) == 1
    await node.controller.stop()


@pytest.mark.conforms("H31")
async def test_the_next_controller_continues_a_handover_after_every_possible_lease() -> None:
    node, answer = await in_handover()
    node.controller.leadership_changed(None)
    await answer
    await elected_after_a_session(node, 1, 2)
    await node.controller.stop()


@pytest.mark.conforms("H31")
async def test_the_next_controller_keeps_a_handover_to_an_absent_successor() -> None:
    node = await led_by_the_second()
    await node.heartbeat(2)
    answer = await node.controller.handle_alter_reassignments(TO_THE_FIRST, 0)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    await node.heartbeat(1, want_shut_down=True)
    partition = node.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1,))
    node.controller.leadership_changed(None)
    await elected_after_a_session(node, 1)
    await node.controller.stop()


@pytest.mark.conforms("H31")
async def test_the_next_controller_keeps_a_handover_to_a_successor_without_its_log() -> None:
    node = await led_by_the_second()
    await node.heartbeat(2)
    await node.controller.handle_alter_reassignments(TO_THE_FIRST, 0)
    await node.register(1, life=3)
    partition = node.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.last_known_elr) == (-1, (), (1,))
    node.controller.leadership_changed(None)
    node.log_ends[1] = (0, 0)
    await elected_after_a_session(node, 1, most_beats=5)
    assert [event["partitions"] for event in node.events if event["event"] == "logs_compared"] == [1]
    await node.controller.stop()


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("all_of_them", [False, True], ids=["one", "all partitions"])
async def test_an_unclean_election_that_waits_for_the_next_controller_does_not_count_as_held(all_of_them: bool) -> None:
    """No other replica will lead: a client with that answer would not retry."""
    node = await a_node(1, 2)
    await node.controller.handle_create_topics(topic_request("t", [1, 2]), 7)
    await node.heartbeat(2, want_shut_down=True)
    await node.register(2, life=2)
    assert not (await node.heartbeat(2)).is_fenced
    await node.heartbeat(1, want_shut_down=True)
    partition = node.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (1,))
    node.controller.leadership_changed(None)
    node.lead(epoch=2)
    for code in (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, ErrorCode.NONE):
        answer = asked(node, UNCLEAN, all_of_them=all_of_them)
        while not answer.done():
            await node.heartbeat(2)
            await asyncio.sleep(BEAT_S)
        (topic,) = (await answer).replica_election_results
        assert topic.partition_result[0].error_code == code
    assert leader(node) == 2
    await node.controller.stop()


async def test_an_election_that_was_refused_is_held_again() -> None:
    node, answer = await in_handover()
    node.quorum.most_records = 0
    assert not (await node.heartbeat(2)).is_fenced
    await asyncio.sleep(BEAT_S)
    assert leader(node) == -1
    node.quorum.most_records = 1
    await answer
    assert leader(node) == 1
    await node.controller.stop()
