"""Replicas that started after the last tiered offset are the last choice as leaders, if that is on (KIP-1023)."""

from dataclasses import replace

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.broker_apis import TieredStarts
from broker.protocol.messages.metadata_records import ConfigRecord
from broker.protocol.messages.partition_apis import (
    PREFERRED,
    UNCLEAN,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from broker.protocol.schema import Topic
from broker.topic_settings import LEAD_LAST
from tests.broker.controller.world import World

BROKER = 4


def led_by_1(*, is_on: bool) -> World:
    """Broker 1 leads `t` and `u`; 2 and 3 are in sync; 2 comes first, and has few local records of `t`."""
    world = World(min_insync_replicas=1)
    world.start(1, 2, 3)
    world.image.apply(ConfigRecord(BROKER, "", LEAD_LAST, str(is_on).lower()), world.offset)
    world.offset += 1
    world.create("t", [1, 2, 3])
    world.create("u", [1, 2, 3])
    report(world, 2, "t")
    return world


def report(world: World, broker: int, *topics: str) -> None:
    starts = [TieredStarts(world.image.topics[name].id, [0]) for name in topics]
    world.rules.tiered_starts.reported(broker, world.image.brokers[broker].epoch, starts)


def reassign(world: World, topic: str, replicas: list[int]) -> None:
    moves = [Topic(topic, [ReassignablePartition(0, replicas)])]
    request = AlterPartitionReassignmentsRequest(topics=moves, timeout_ms=1_000)
    answer = world.decide(world.rules.alter_reassignments(world.image, request))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    world.hand_over()


def leaders(world: World) -> dict[str, int]:
    return {topic.name: partition.leader for topic, _, partition in world.image.partitions()}


@pytest.mark.parametrize(("is_on", "leader"), [(True, 3), (False, 2)])
def test_another_replica_in_sync_leads_before_it(is_on: bool, leader: int) -> None:
    world = led_by_1(is_on=is_on)
    world.fence(1)
    assert leaders(world) == {"t": leader, "u": 2}


def test_a_last_choice_replica_leads_if_no_other_is_in_sync() -> None:
    world = led_by_1(is_on=True)
    world.fence(3)
    world.fence(1)
    assert leaders(world)["t"] == 2


def test_a_broker_without_the_report_has_the_same_rank_as_the_others() -> None:
    world = led_by_1(is_on=True)
    report(world, 2)
    world.fence(1)
    assert leaders(world) == {"t": 2, "u": 2}


@pytest.mark.parametrize(("is_on", "leader"), [(True, 3), (False, 2)])
def test_another_replica_leads_before_it_after_a_reassignment(is_on: bool, leader: int) -> None:
    world = led_by_1(is_on=is_on)
    reassign(world, "t", [2, 3])
    assert leaders(world)["t"] == leader


@pytest.mark.parametrize(("is_on", "leader"), [(True, 3), (False, 2)])
def test_another_eligible_replica_leads_before_it(is_on: bool, leader: int) -> None:
    """Both are eligible and out of sync, and both become available: only a starting controller sees that state."""
    world = led_by_1(is_on=is_on)
    partitions = world.image.topics["t"].partitions
    partitions[0] = replace(partitions[0], leader=-1, isr=(), elr=(2, 3))
    assert world.elect(UNCLEAN) == [ErrorCode.NONE]
    assert leaders(world)["t"] == leader


@pytest.mark.parametrize(
    ("is_on", "error", "leader"),
    [(True, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1), (False, ErrorCode.NONE, 2)],
)
def test_a_last_choice_replica_is_not_elected_as_the_preferred_leader(
    is_on: bool, error: ErrorCode, leader: int
) -> None:
    world = led_by_1(is_on=is_on)
    reassign(world, "t", [2, 1, 3])
    assert leaders(world)["t"] == 1
    assert world.elect(PREFERRED) == [error]
    world.hand_over()
    assert leaders(world)["t"] == leader
