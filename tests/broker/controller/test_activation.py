"""CreateTopics and CreatePartitions are answered when the leaders of the new partitions lead, and in time."""

import asyncio

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.topic_apis import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsResponse,
)
from tests.broker.controller.clock import play
from tests.broker.controller.node import SESSION, Node, a_node
from tests.broker.controller.world import topic_request
from tests.stories import run_by

pytestmark = pytest.mark.conforms("TOP-1")
STORIES = run_by(play)
SOON_S = 0.1
TIMEOUT_MS = 10_000


def created(node: Node, *assignments: list[int], name: str = "t") -> asyncio.Task[CreateTopicsResponse]:
    request = topic_request(name, *assignments)
    request.timeout_ms = TIMEOUT_MS
    return asyncio.create_task(node.controller.handle_create_topics(request, 7))


def enlarged(
    node: Node, count: int, *replicas: list[int], timeout_ms: int = TIMEOUT_MS
) -> asyncio.Task[CreatePartitionsResponse]:
    more = [CreatePartitionsAssignment(each) for each in replicas]
    request = CreatePartitionsRequest([CreatePartitionsTopic("t", count, more)], timeout_ms)
    return asyncio.create_task(node.controller.handle_create_partitions(request, 3))


async def is_waiting(task: asyncio.Task[CreateTopicsResponse] | asyncio.Task[CreatePartitionsResponse]) -> bool:
    await asyncio.sleep(SOON_S)
    return not task.done()


async def test_the_answer_is_sent_after_the_leader_applied_the_record() -> None:
    node = await a_node(1, 2)
    node.behind = {1}
    creating = created(node, [1, 2], [2, 1])
    assert await is_waiting(creating)
    assert node.image.topics["t"].partitions[0].leader == 1
    await node.heartbeat(1, current_metadata_offset=node.image.offset - 1)
    assert await is_waiting(creating), "it acts on what was before"
    await node.heartbeat(1)
    assert (await creating).topics[0].error_code == ErrorCode.NONE


async def test_followers_are_not_waited_for() -> None:
    node = await a_node(1, 2)
    node.behind = {2}
    assert (await created(node, [1, 2])).topics[0].error_code == ErrorCode.NONE


async def test_topics_without_active_leaders_are_answered_in_half_the_timeout_as_created() -> None:
    node = await a_node(1, 2)
    node.behind = {1}
    request = topic_request("late", [2], [1])
    request.topics += topic_request("led", [2]).topics
    request.timeout_ms = 500
    begun = asyncio.get_running_loop().time()
    late, led = (await node.controller.handle_create_topics(request, 7)).topics
    assert asyncio.get_running_loop().time() - begun == pytest.approx(0.25, abs=0.05)
    assert (late.error_code, led.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert node.image.topics.keys() == {"late", "led"}


async def test_creation_waits_for_a_leader_elected_meanwhile() -> None:
    node = await a_node(1, 2)
    node.behind = {1}
    creating = created(node, [1, 2])
    await node.beat(SESSION + 0.5, 2)
    assert node.image.topics["t"].partitions[0].leader == 2
    assert (await creating).topics[0].error_code == ErrorCode.NONE


async def test_an_earlier_registration_does_not_lead() -> None:
    node = await a_node(1)
    epoch = node.image.brokers[1].epoch
    node.behind = {1}
    creating = created(node, [1])
    await asyncio.sleep(SOON_S)
    node.controller.broker_acts(1, epoch - 1, 1_000_000)
    assert await is_waiting(creating)
    await node.heartbeat(1)
    assert (await creating).topics[0].error_code == ErrorCode.NONE


async def test_the_end_of_the_controllers_term_ends_the_wait() -> None:
    node = await a_node(1)
    node.behind = {1}
    creating = created(node, [1])
    assert await is_waiting(creating)
    node.controller.leadership_changed(None)
    begun = asyncio.get_running_loop().time()
    assert (await creating).topics[0].error_code == ErrorCode.NONE, "it is committed"
    assert asyncio.get_running_loop().time() - begun < SOON_S


async def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    from broker.protocol.messages.topic_apis import DeleteTopicsRequest, DeleteTopicState

    node = await a_node(1)
    node.behind = {1}
    creating = created(node, [1])
    assert await is_waiting(creating)
    await node.controller.handle_delete_topics(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=1000), 6)
    assert (await creating).topics[0].error_code == ErrorCode.NONE


async def test_a_validation_is_answered_immediately() -> None:
    node = await a_node(1)
    node.behind = {1}
    request = topic_request("t", [1])
    request.validate_only = True
    answer = await node.controller.handle_create_topics(request, 7)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def test_only_the_new_partitions_of_a_topic_are_waited_for() -> None:
    node = await a_node(1, 2)
    assert (await created(node, [1])).topics[0].error_code == ErrorCode.NONE
    await node.beat(SESSION + 0.5, 2)
    assert node.image.topics["t"].partitions[0].leader < 0, "broker 1 is gone"
    assert (await enlarged(node, 2, [2])).results[0].error_code == ErrorCode.NONE
    node.behind = {2}
    adding = enlarged(node, 3, [2])
    assert await is_waiting(adding)
    await node.heartbeat(2)
    assert (await adding).results[0].error_code == ErrorCode.NONE


async def test_partitions_without_active_leaders_are_answered_in_half_the_timeout_as_created() -> None:
    node = await a_node(1, 2)
    assert (await created(node, [1])).topics[0].error_code == ErrorCode.NONE
    node.behind = {2}
    begun = asyncio.get_running_loop().time()
    result = (await enlarged(node, 2, [2], timeout_ms=500)).results[0]
    assert asyncio.get_running_loop().time() - begun == pytest.approx(0.25, abs=0.05)
    assert result.error_code == ErrorCode.NONE
    assert len(node.image.topics["t"].partitions) == 2
