"""Leases where the files of controllers differ, as while they are changed one after the other (H31)."""

import asyncio

import pytest

from broker.clock_rates import PACE
from broker.controller.image import MetadataImage, MetadataImageError
from broker.errors import ErrorCode
from broker.protocol.messages.metadata_records import NO_LEADER, ConfigRecord
from broker.protocol.messages.partition_apis import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from broker.protocol.schema import Topic
from broker.quorum.messages import Predecessor
from tests.broker.controller.clock import play
from tests.broker.controller.node import COMMIT_DELAY, LEASE, SESSION, Node
from tests.broker.controller.world import topic_request
from tests.stories import run_by

STORIES = run_by(play)

LONG_SESSION, LONG_LEASE = 10.0, 8.0


def record(value: str | None) -> ConfigRecord:
    return ConfigRecord(4, "", "broker.session.timeout.ms", value)


async def after_one_with_a_longer_session(*brokers: int) -> Node:
    """The controller with the usual file, right after a controller with the longer times at which the brokers
    registered."""
    before, node = Node(session=LONG_SESSION, lease=LONG_LEASE), Node()
    before.lead()
    await before.start(*brokers)
    await before.controller.handle_create_topics(topic_request("t", [2, 1]), 7)
    node.lead_after(before)
    return node


@pytest.mark.conforms("H31")
async def test_the_controllers_file_sets_the_length_of_a_lease() -> None:
    for session, lease in ((SESSION, LEASE), (LONG_SESSION, LONG_LEASE)):
        node = Node(session=session, lease=lease)
        node.lead()
        await node.start(1)
        assert (await node.heartbeat(1)).lease_ms == 1000 * (lease - COMMIT_DELAY), "counted from the proof"
        leaves = await node.heartbeat(1, want_shut_down=True)
        assert (leaves.is_fenced, leaves.lease_ms) == (True, 0)


@pytest.mark.conforms("H31")
async def test_the_maximum_lease_is_committed_before_the_first_lease() -> None:
    before, node = Node(), Node(session=LONG_SESSION, lease=LONG_LEASE)
    before.lead()
    await before.start(1)
    assert before.image.session_timeout_ms == 1000 * SESSION
    node.quorum.may_commit.clear()
    node.lead_after(before)
    beat = asyncio.ensure_future(node.heartbeat(1))
    await asyncio.sleep(1.0)
    assert not beat.done()
    node.quorum.may_commit.set()
    assert (await beat).lease_ms == 1000 * (LONG_LEASE - COMMIT_DELAY)
    assert node.quorum.log[0] == record("10000")


@pytest.mark.conforms("H31")
async def test_without_that_record_no_lease_is_given() -> None:
    node = Node()
    node.quorum.most_records = 1  # the first records are refused as a whole
    node.lead()
    node.image.apply(ConfigRecord(4, "", "cluster.id", "brownout-cluster"), 1)
    await node.register(1)
    assert (await node.heartbeat(1)).error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.conforms("H31")
async def test_an_earlier_controllers_longer_leases_are_waited_for() -> None:
    node = await after_one_with_a_longer_session(1, 2)
    await node.heartbeat(2)  # the answer to this one is lost
    node.controller.broker_looks_dead(2, node.image.brokers[2].epoch)
    await node.beat(LONG_SESSION - 0.4, 1)
    assert not node.image.brokers[2].fenced
    await node.beat(1.0, 1)
    partition = node.image.topics["t"].partitions[0]
    assert (node.image.brokers[2].fenced, partition.leader) == (True, 1)


@pytest.mark.conforms("H31")
async def test_a_leadership_that_an_earlier_controller_took_waits_for_its_longer_leases() -> None:
    before, node = Node(session=LONG_SESSION, lease=LONG_LEASE), Node()
    before.lead()
    await before.start(1, 2)
    await before.controller.handle_create_topics(topic_request("t", [2, 1]), 7)
    without_2 = Topic("t", [ReassignablePartition(0, [1])])
    request = AlterPartitionReassignmentsRequest(topics=[without_2], timeout_ms=100)
    await before.controller.handle_alter_reassignments(request, 0)
    assert before.image.topics["t"].partitions[0].leader == NO_LEADER, "2 has not reported the new offset"
    node.lead_after(before)
    await node.beat(LONG_SESSION - 0.4, 1)
    assert node.image.topics["t"].partitions[0].leader == NO_LEADER
    await node.beat(1.0, 1)
    assert node.image.topics["t"].partitions[0].leader == 1


@pytest.mark.conforms("H31")
async def test_a_shorter_time_is_written_once_no_earlier_lease_lasts_by_anybodys_clock() -> None:
    node = await after_one_with_a_longer_session(1)
    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    await node.beat(PACE * LONG_SESSION - 0.4, 1)
    assert node.image.session_timeout_ms == 1000 * LONG_SESSION
    while node.image.session_timeout_ms > 1000 * SESSION:
        await node.beat(0.1, 1)
    assert PACE * LONG_SESSION <= loop.time() - began <= PACE * LONG_SESSION + 1.0
    third = Node()
    third.lead_after(node, 3)
    await asyncio.sleep(SESSION + 0.1)
    assert third.image.brokers[1].fenced, "from then on everybody waits for the shorter one"


@pytest.mark.conforms("H31")
async def test_a_term_that_ends_before_the_commit_passes_the_longer_time_to_the_next() -> None:
    node = await after_one_with_a_longer_session(1)
    await node.beat(LONG_SESSION - 1.0, 1)
    node.controller.leadership_changed(None)
    await asyncio.sleep(LONG_SESSION)
    assert node.image.session_timeout_ms == 1000 * LONG_SESSION
    node.lead(3)
    await asyncio.sleep(LONG_SESSION - 0.1)
    assert not node.image.brokers[1].fenced


@pytest.mark.conforms("H31")
async def test_a_lease_counts_from_the_proof_that_the_controller_leads() -> None:
    node = Node()
    node.lead()
    await node.start(1)
    loop = asyncio.get_running_loop()
    for _ in range(20):
        await asyncio.sleep(0.13)
        proven_at = loop.time()
        commits = len(node.quorum.log)
        lease_ms = (await node.heartbeat(1)).lease_ms
        assert lease_ms <= 1000 * LEASE
        if len(node.quorum.log) == commits:
            assert lease_ms < 1000 * (LEASE - COMMIT_DELAY), "the proof is older than this heartbeat"
        assert lease_ms >= 1000 * (LEASE - (SESSION - LEASE)), f"at {proven_at}"


@pytest.mark.conforms("H31")
async def test_a_lease_ends_within_a_session_by_any_clock() -> None:
    node = Node(session=SESSION, lease=2.9)
    node.lead()
    await node.start(1)
    assert (await node.heartbeat(1)).lease_ms * PACE <= 1000 * SESSION


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("predecessor", [1, 2, 3])
async def test_the_session_of_the_previous_leader_counts_from_its_last_sign(predecessor: int) -> None:
    before, node = Node(), Node()
    before.lead()
    await before.start(1, 2, 3)
    await before.controller.handle_create_topics(topic_request("t", [2, 1]), 7)
    loop = asyncio.get_running_loop()
    heard_at = loop.time()
    await asyncio.sleep(1.5)
    node.lead_after(before, predecessor=Predecessor(predecessor, heard_at))
    began = loop.time()
    fenced: dict[int, float] = {}
    while len(fenced) < 3:
        await asyncio.sleep(0.01)
        for broker in node.image.brokers.values():
            if broker.fenced:
                fenced.setdefault(broker.id, loop.time())
    for fenced_broker, at in fenced.items():
        since = heard_at if fenced_broker == predecessor != 1 else began
        assert since + SESSION <= at <= since + SESSION + 0.1, "node 1 is the controller itself"


@pytest.mark.conforms("H31")
async def test_the_previous_leader_has_the_time_for_a_heartbeat() -> None:
    before, node = Node(), Node()
    before.lead()
    await before.start(1, 2)
    heard_at = asyncio.get_running_loop().time()
    await asyncio.sleep(2 * SESSION)
    node.lead_after(before, predecessor=Predecessor(2, heard_at))
    await asyncio.sleep(0.2)
    assert not (await node.heartbeat(2)).is_fenced
    await asyncio.sleep(SESSION - 0.3)
    assert not node.image.brokers[2].fenced


@pytest.mark.parametrize("value", [None, "", "-1", "3.5", "9" * 30])
def test_an_invalid_time_is_refused_as_a_record(value: str | None) -> None:
    with pytest.raises(MetadataImageError, match=r"offset 0: broker\.session\.timeout\.ms is "):
        MetadataImage().apply(record(value), 0)
