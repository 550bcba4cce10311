"""AlterPartition: the changes that a leader may make to its ISR, and the races that it loses."""

from dataclasses import replace

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.partition_apis import AlterPartitionTopicData, BrokerState
from tests.broker.controller.world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.start(1, 2, 3, 4)
    world.create("t", [1, 2, 3])
    return world


def test_a_leader_shrinks_and_grows_its_isr(world: World) -> None:
    result = world.alter(world.proposal(1, [1, 3]))
    assert (result.error_code, result.isr, result.leader_id) == (0, [1, 3], 1)
    assert (result.leader_epoch, result.partition_epoch) == (0, 1)
    result = world.alter(world.proposal(1, [1, 3, 2]))
    assert (result.isr, result.partition_epoch) == ([1, 3, 2], 2)
    assert world.partition().isr == (1, 3, 2)


def test_version_2_names_brokers_without_their_epochs(world: World) -> None:
    request = world.proposal(1, [], new_isr=[1, 2], new_isr_with_epochs=[])
    assert world.alter(request, version=2).isr == [1, 2]


def test_an_unchanged_isr_is_granted_without_a_record(world: World) -> None:
    request = world.proposal(1, [3, 2, 1])
    assert world.rules.alter_partition(world.image, request, 3).records == []
    result = world.alter(request)
    assert (result.error_code, result.isr, result.partition_epoch) == (0, [1, 2, 3], 0)


def test_a_proposal_from_before_another_change_is_refused(world: World) -> None:
    stale = world.proposal(1, [1, 2, 3])
    world.alter(world.proposal(1, [1, 2]))
    assert world.alter(stale).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert world.partition().isr == (1, 2)


def test_a_proposal_that_a_fencing_has_overtaken_is_refused(world: World) -> None:
    late = world.proposal(1, [1, 2, 3])
    world.fence(3)
    assert world.alter(late).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert world.partition().isr == (1, 2)


def test_the_proposal_of_a_deposed_leader_is_refused(world: World) -> None:
    late = world.proposal(1, [1])
    world.fence(1)
    world.heartbeat(1)
    assert world.alter(late).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.partition().isr == (2, 3)


@pytest.mark.conforms("H14")
def test_a_fenced_broker_does_not_join(world: World) -> None:
    world.fence(3)
    request = world.proposal(1, [1, 2, 3])
    assert world.alter(request).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert world.partition().isr == (1, 2)
    world.heartbeat(3)
    assert world.alter(world.proposal(1, [1, 2, 3])).error_code == 0


@pytest.mark.conforms("H13", "H14")
def test_a_refusal_is_final_for_later_copies_of_the_proposal(world: World) -> None:
    """The leader commits without the replica once it has the answer; the replica's fence may go at any time."""
    world.fence(3)
    request = world.proposal(1, [1, 2, 3])
    before = world.partition()
    assert world.alter(request).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert world.partition() == replace(before, partition_epoch=before.partition_epoch + 1)
    world.heartbeat(3)
    assert world.alter(request).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert world.partition().isr == (1, 2)


@pytest.mark.conforms("H15")
def test_a_broker_that_bounced_since_the_leader_saw_it_does_not_join(world: World) -> None:
    world.alter(world.proposal(1, [1, 2]))
    seen = world.image.brokers[3].epoch
    world.register(3, life=2)
    world.heartbeat(3)
    members = [BrokerState(1, world.image.brokers[1].epoch), BrokerState(2, -1), BrokerState(3, seen)]
    request = world.proposal(1, [], new_isr_with_epochs=members)
    assert world.alter(request).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert world.partition().isr == (1, 2)


@pytest.mark.conforms("H15")
def test_a_sender_from_an_earlier_registration_is_refused_as_a_whole(world: World) -> None:
    request = world.proposal(1, [1])
    world.register(1, life=2)
    response = world.decide(world.rules.alter_partition(world.image, request, 3))
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert response.topics == []
    request.broker_id = 77
    unknown = world.rules.alter_partition(world.image, request, 3).answer(world.image)
    assert unknown.error_code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": []}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": [BrokerState(2)]}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": [BrokerState(1), BrokerState(4)]}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": [BrokerState(1), BrokerState(2), BrokerState(2)]}, ErrorCode.INVALID_REQUEST),
        ({"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_proposal_that_makes_no_sense_is_refused(world: World, changes: dict[str, object], error: ErrorCode) -> None:
    result = world.alter(world.proposal(1, [1, 2], "t", 0, **changes))
    assert result.error_code == error
    assert (world.partition().isr, world.partition().partition_epoch) == ((1, 2, 3), 0)


def test_only_the_leader_proposes(world: World) -> None:
    assert world.alter(world.proposal(2, [1, 2])).error_code == ErrorCode.INVALID_REQUEST


def test_a_deleted_topic_is_unknown(world: World) -> None:
    request = world.proposal(1, [1])
    request.topics.append(AlterPartitionTopicData(b"?" * 16, request.topics[0].partitions))
    response = world.decide(world.rules.alter_partition(world.image, request, 3))
    assert [topic.partitions[0].error_code for topic in response.topics] == [0, ErrorCode.UNKNOWN_TOPIC_ID]


def test_one_request_changes_a_partition_once(world: World) -> None:
    request = world.proposal(1, [1, 2])
    request.topics[0].partitions.append(request.topics[0].partitions[0])
    response = world.decide(world.rules.alter_partition(world.image, request, 3))
    assert [result.error_code for result in response.topics[0].partitions] == [0, ErrorCode.INVALID_REQUEST]
    assert world.partition().partition_epoch == 1


@pytest.mark.conforms("H13")
@pytest.mark.kills("stale_partition_epoch_ok")
def test_with_the_mutant_a_proposal_from_before_another_change_is_granted() -> None:
    for mutants, isr in (((), (1, 2)), (("stale_partition_epoch_ok",), (1, 2, 3))):
        world = three_brokers(*mutants)
        stale = world.proposal(1, [1, 2, 3])
        world.alter(world.proposal(1, [1, 2]))
        world.alter(stale)
        assert world.partition().isr == isr


@pytest.mark.conforms("H14")
@pytest.mark.kills("fenced_in_isr")
def test_with_the_mutant_a_fenced_broker_joins() -> None:
    for mutants, error in (((), ErrorCode.INELIGIBLE_REPLICA), (("fenced_in_isr",), ErrorCode.NONE)):
        world = three_brokers(*mutants)
        world.fence(3)
        decision = world.rules.alter_partition(world.image, world.proposal(1, [1, 2, 3]), 3)
        assert decision.answer(world.image).topics[0].partitions[0].error_code == error


@pytest.mark.conforms("H15")
@pytest.mark.kills("stale_broker_epoch_ok")
def test_with_the_mutant_a_broker_joins_by_the_log_of_its_earlier_process() -> None:
    for mutants, isr in (((), (1, 2)), (("stale_broker_epoch_ok",), (1, 2, 3))):
        world = three_brokers(*mutants)
        world.alter(world.proposal(1, [1, 2]))
        seen = world.image.brokers[3].epoch
        world.register(3, life=2)
        world.heartbeat(3)
        members = [BrokerState(1, -1), BrokerState(2, -1), BrokerState(3, seen)]
        world.alter(world.proposal(1, [], new_isr_with_epochs=members))
        assert world.partition().isr == isr


def three_brokers(*mutants: str) -> World:
    world = World(*mutants)
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    return world
