"""A leadership that moves while its holder lives: taken first, given to another once the holder cannot act (H31)."""

import asyncio

import pytest

from broker.controller.image import MetadataImage
from broker.controller.partition_elections import Handovers
from broker.errors import ErrorCode
from broker.protocol.messages.partition_apis import (
    PREFERRED,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from broker.protocol.schema import Topic
from tests.broker.controller.world import FAR_AWAY, World
from tests.stories import run_by

KEY = ("t", 0)


def moving() -> World:
    """Broker 2 leads a partition of 1, 2 and 3, and 1 has been asked for."""
    world = World(min_insync_replicas=2)
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    world.fence(1)
    world.heartbeat(1)
    world.alter(world.proposal(2, [2, 3, 1]))
    assert world.partition().leader == 2
    assert world.elect(PREFERRED) == [ErrorCode.NONE]
    assert (world.partition().leader, world.partition().isr) == (-1, (2, 3, 1))
    return world


@pytest.mark.conforms("H31")
def test_no_successor_leads_before_the_old_leader_is_informed() -> None:
    world = moving()
    handovers = world.rules.handovers
    taken_at = world.image.offset
    assert handovers.heard(3, taken_at), "another broker may go on as it is"
    assert not handovers.heard(2, taken_at - 1), "its lease must not be renewed"
    world.elect_successors()
    assert world.partition().leader == -1
    assert handovers.heard(2, taken_at)
    world.elect_successors()
    assert world.partition().leader == 1
    assert not handovers.holds(KEY)


@pytest.mark.conforms("H31")
def test_a_leader_with_an_ended_lease_gets_no_new_one_before_it_is_informed() -> None:
    world = moving()
    handovers = world.rules.handovers
    taken_at = world.image.offset
    handovers.lease_over(2)
    world.elect_successors()
    assert world.partition().leader == 1
    assert not handovers.heard(2, taken_at - 1), "it would answer beside the other"
    assert handovers.heard(2, taken_at)


@pytest.mark.conforms("H31")
def test_a_new_controller_grants_leases_only_to_brokers_with_the_earlier_records() -> None:
    handovers = Handovers()
    handovers.begin_term(7)
    assert not handovers.heard(2, 6)
    assert handovers.heard(2, 7)
    handovers.clear()
    assert handovers.heard(2, 0)


@pytest.mark.conforms("H31")
def test_or_before_its_lease_has_ended() -> None:
    world = moving()
    assert world.rules.handovers.next_end() == FAR_AWAY
    world.elect_successors(FAR_AWAY - 1)
    assert world.partition().leader == -1
    world.elect_successors(FAR_AWAY)
    assert world.partition().leader == 1


def test_a_returning_broker_does_not_end_a_handover() -> None:
    world = moving()
    world.fence(3)
    world.heartbeat(3)
    assert world.partition().leader == -1
    assert world.partition().isr == (2, 1)
    world.hand_over()
    assert world.partition().leader == 1


def test_without_a_live_replica_the_first_returning_one_leads() -> None:
    world = moving()
    for broker in (1, 2, 3):
        world.fence(broker)
    world.rules.handovers.lease_over(2)
    world.elect_successors()
    assert world.partition().leader == -1
    world.heartbeat(2)
    assert world.partition().leader == 2


@pytest.mark.conforms("H31")
def test_a_successor_that_lost_its_log_waits_for_the_old_leader_too() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1])
    move = Topic("t", [ReassignablePartition(0, [2])])
    world.decide(world.rules.alter_reassignments(world.image, AlterPartitionReassignmentsRequest(topics=[move])))
    world.alter(world.proposal(1, [1, 2]))
    assert (world.partition().leader, world.partition().isr) == (-1, (2,))
    world.restart(2)
    assert (world.partition().isr, world.partition().last_known_elr) == ((), (2,))
    assert world.compare({2: (0, 0)}).leader == -1, "broker 1 answers as the leader as long as its lease lasts"
    world.hand_over()
    assert not world.rules.handovers.holds(KEY)
    assert world.compare({2: (0, 0)}).leader == 2


def test_a_leader_that_is_fenced_is_replaced_at_once() -> None:
    world = moving()
    world.hand_over()
    world.fence(1)
    assert world.partition().leader == 2


@pytest.mark.conforms("H31")
def test_an_uncommitted_handover_does_not_keep_a_departing_leader() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2])
    world.rules.handovers.begin(KEY, 1)  # and then its record was refused
    world.fence(1)
    assert (world.partition().leader, world.partition().isr) == (2, (2,))


def test_the_lease_is_read_when_the_record_is_committed() -> None:
    handovers, world = Handovers(), moving()
    image: MetadataImage = world.image
    handovers.begin(KEY, 2)
    assert handovers.take_over(FAR_AWAY) == []
    assert not handovers.heard(2, image.offset + 10), "the record is not in the log yet"
    handovers.applied(image, lambda broker: 5.0 if broker == 2 else None)
    assert (handovers.take_over(4.9), handovers.next_end()) == ([], 5.0)
    assert handovers.take_over(5.0) == [KEY]
    assert (handovers.take_over(6.0), handovers.next_end()) == ([], None)
    handovers.begin(KEY, 2)
    handovers.applied(image, lambda _: None)
    assert handovers.take_over(0.0) == [KEY], "a broker without a session has no lease"


def test_a_postponed_handover_ends_later() -> None:
    handovers = Handovers()
    handovers.begin_after(KEY, 3.0)
    assert handovers.take_over(3.0) == [KEY]
    handovers.put_off([KEY, ("gone", 0)], 4.0)
    assert handovers.next_end() == 4.0
    assert (handovers.take_over(3.9), handovers.take_over(4.0)) == ([], [KEY])


def test_a_new_controller_waits_for_every_possible_lease_holder() -> None:
    handovers = Handovers()
    handovers.begin_after(KEY, 3.0)
    assert handovers.heard(2, 0)
    assert (handovers.take_over(2.9), handovers.take_over(3.0)) == ([], [KEY])


@run_by(asyncio.run)
async def test_a_waiter_resumes_when_all_handovers_ended() -> None:
    handovers = Handovers()
    await handovers.all_over()
    handovers.begin_after(KEY, 3.0)
    handovers.begin_after(("t", 1), 3.0)
    waiting = asyncio.create_task(handovers.all_over())
    await asyncio.sleep(0)
    handovers.give_up(KEY)
    await asyncio.sleep(0)
    assert not waiting.done()
    handovers.clear()
    await waiting
