"""More partitions for a topic, and other replicas for its partitions."""

import pytest

from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode
from broker.protocol.messages.partition_apis import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
)
from broker.protocol.messages.topic_apis import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from broker.protocol.schema import Topic
from tests.broker.controller.world import World


def world() -> World:
    it = World()
    it.start(1, 2, 3, 4)
    it.create("t", [1, 2, 3])
    return it


def create(it: World, count: int, *assignments: list[int], name: str = "t", validate_only: bool = False) -> int:
    explicit = [CreatePartitionsAssignment(ids) for ids in assignments] or None
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, explicit)], 1000, validate_only)
    return it.decide(it.rules.create_partitions(it.image, request)).results[0].error_code


def reassign(it: World, replicas: list[int] | None, *, keep_factor: bool = False, index: int = 0) -> int:
    topic = Topic("t", [ReassignablePartition(index, replicas)])
    request = AlterPartitionReassignmentsRequest(1000, not keep_factor, [topic])
    response = it.decide(it.rules.alter_reassignments(it.image, request))
    return response.responses[0].partitions[0].error_code


def moving(it: World) -> list[tuple[list[int], list[int], list[int]]]:
    response = it.decide(it.rules.list_reassignments(it.image, ListPartitionReassignmentsRequest()))
    return [
        (found.replicas, found.adding_replicas, found.removing_replicas)
        for topic in response.topics
        for found in topic.partitions
    ]


def test_new_partitions_are_added_after_the_existing_ones() -> None:
    it = world()
    assert create(it, 3, validate_only=True) == ErrorCode.NONE
    assert sorted(it.image.topics["t"].partitions) == [0]
    assert create(it, 3) == ErrorCode.NONE
    assert sorted(it.image.topics["t"].partitions) == [0, 1, 2]
    assert all(len(partition.replicas) == 3 for partition in it.image.topics["t"].partitions.values())
    assert create(it, 4, [4, 3, 2]) == ErrorCode.NONE
    assert it.partition(index=3).replicas == (4, 3, 2)
    assert it.partition(index=3).leader == 4


@pytest.mark.parametrize(
    ("count", "assignments", "name", "error"),
    [
        (1, [], "t", ErrorCode.INVALID_PARTITIONS),
        (0, [], "t", ErrorCode.INVALID_PARTITIONS),
        (20_000, [], "t", ErrorCode.POLICY_VIOLATION),
        (2, [], "u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (3, [[1, 2, 3]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [[1, 2]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [[1, 1, 2]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [[1, 2, 9]], "t", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_invalid_new_partitions_are_refused(
    count: int, assignments: list[list[int]], name: str, error: ErrorCode
) -> None:
    it = world()
    assert create(it, count, *assignments, name=name) == error
    assert sorted(it.image.topics["t"].partitions) == [0]


def test_a_partition_that_moves_meanwhile_does_not_count_twice() -> None:
    it = world()
    assert reassign(it, [4, 2, 3]) == ErrorCode.NONE
    assert len(it.partition().replicas) == 4
    assert create(it, 2) == ErrorCode.NONE
    assert len(it.partition(index=1).replicas) == 3


def test_the_partitions_of_the_offsets_topic_are_fixed() -> None:
    it = world()
    it.create(OFFSETS_TOPIC, [1], [2])
    assert create(it, 3, name=OFFSETS_TOPIC) == ErrorCode.INVALID_PARTITIONS
    assert sorted(it.image.topics[OFFSETS_TOPIC].partitions) == [0, 1]


def test_a_replica_moves_through_the_isr() -> None:
    it = world()
    epoch = it.partition().leader_epoch
    assert reassign(it, [4, 2, 3]) == ErrorCode.NONE
    partition = it.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 2, 3, 1), (1, 2, 3), 1)
    assert (partition.adding, partition.removing) == ((4,), (1,))
    assert partition.leader_epoch == epoch, "no replica has left yet"
    assert moving(it) == [([4, 2, 3, 1], [4], [1])]

    assert it.alter(it.proposal(1, [1, 2, 3, 4])).error_code == ErrorCode.NONE
    partition = it.partition()
    assert (partition.replicas, set(partition.isr)) == ((4, 2, 3), {2, 3, 4})
    assert partition.leader == -1
    it.hand_over()
    assert it.partition().leader == 4
    assert it.partition().leader_epoch > epoch
    assert (partition.adding, partition.removing) == ((), ())
    assert moving(it) == []


def test_a_removal_without_an_addition_is_immediate() -> None:
    it = world()
    assert reassign(it, [2, 3]) == ErrorCode.NONE
    partition = it.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3), (2, 3), -1)
    it.hand_over()
    assert it.partition().leader == 2
    assert reassign(it, [2, 3]) == ErrorCode.NONE


@pytest.mark.conforms("H16")
def test_a_removed_replica_is_not_eligible() -> None:
    it = World(min_insync_replicas=2)
    it.start(1, 2, 3)
    it.create("t", [1, 2, 3])
    it.fence(3)
    it.fence(2)
    assert (it.partition().isr, it.partition().elr) == ((1,), (2,))
    assert reassign(it, [1, 3]) == ErrorCode.NONE
    partition = it.partition()
    assert (partition.replicas, partition.isr, partition.elr) == ((1, 3), (1,), ())


def test_a_replica_is_added_only_once_it_is_in_sync() -> None:
    it = world()
    assert reassign(it, [1, 2, 3, 4]) == ErrorCode.NONE
    assert it.partition().adding == (4,)
    assert it.alter(it.proposal(1, [1, 2])).error_code == ErrorCode.NONE
    assert it.partition().adding == (4,)
    assert it.alter(it.proposal(1, [1, 2, 4])).error_code == ErrorCode.NONE
    assert (it.partition().adding, it.partition().replicas) == ((), (1, 2, 3, 4))
    assert set(it.partition().isr) == {1, 2, 4}


@pytest.mark.parametrize(
    ("replicas", "is_new"),
    [([1, 2, 3, 4], False), ([3, 1, 2], False), ([1, 2], True), ([1, 3, 4], False), ([2, 3], True)],
)
def test_a_leader_epoch_ends_only_with_a_removed_replica_or_another_leader(replicas: list[int], is_new: bool) -> None:
    """As in Apache Kafka (`PartitionChangeBuilder`). While [1, 3, 4] replaces [1, 2, 3], 2 is still a replica."""
    it = world()
    before = it.partition()
    assert reassign(it, replicas) == ErrorCode.NONE
    after = it.partition()
    assert (after.leader_epoch > before.leader_epoch) == is_new
    assert after.partition_epoch > before.partition_epoch


@pytest.mark.parametrize(("replicas", "is_new"), [([1, 2, 3, 4], False), ([1, 3, 4], True)])
def test_a_completed_reassignment_has_a_new_leader_epoch_if_it_removes_a_replica(
    replicas: list[int], is_new: bool
) -> None:
    it = world()
    epoch = it.partition().leader_epoch
    reassign(it, replicas)
    assert it.alter(it.proposal(1, [1, 2, 3, 4])).error_code == ErrorCode.NONE
    assert (it.partition().leader, it.partition().adding) == (1, ())
    assert (it.partition().leader_epoch > epoch) == is_new


def test_a_cancelled_reassignment_has_a_new_leader_epoch() -> None:
    """The added replica may fetch until then, and must not count after that."""
    it = world()
    reassign(it, [1, 2, 3, 4])
    epoch = it.partition().leader_epoch
    assert reassign(it, None) == ErrorCode.NONE
    assert it.partition().replicas == (1, 2, 3)
    assert it.partition().leader_epoch > epoch


def test_a_reassignment_is_cancelled() -> None:
    it = world()
    assert reassign(it, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(it, [4, 2, 3])
    assert reassign(it, None) == ErrorCode.NONE
    partition = it.partition()
    assert (set(partition.replicas), partition.adding, partition.removing) == ({1, 2, 3}, (), ())
    assert partition.leader == 1


def test_a_move_may_change_its_mind() -> None:
    it = world()
    it.start(5)
    reassign(it, [4, 2, 3])
    assert reassign(it, [5, 2, 3]) == ErrorCode.NONE
    partition = it.partition()
    assert (set(partition.replicas), partition.adding, partition.removing) == ({1, 2, 3, 5}, (5,), (1,))


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_moves_are_refused(replicas: list[int], error: ErrorCode) -> None:
    it = world()
    before = it.partition()
    assert reassign(it, replicas, keep_factor=True) == error
    assert reassign(it, [1, 2, 3], index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert it.partition() == before


@pytest.mark.conforms("H31")
def test_a_refused_reassignment_starts_no_handover() -> None:
    """A handover without a record would keep the controller from renewing the leader's lease, and would never end."""
    it = World()
    it.start(1, 2, 3)
    it.create("t", [1])
    reassign(it, [2, 3])
    it.alter(it.proposal(1, [1, 2]))
    it.fence(1)
    assert (it.partition().leader, it.partition().isr) == (2, (2,))
    topic = Topic("t", [ReassignablePartition(0, [3, 1])])
    decision = it.rules.alter_reassignments(it.image, AlterPartitionReassignmentsRequest(1000, True, [topic]))
    assert decision.records == []
    answer = decision.answer(it.image).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not it.rules.handovers.holds(("t", 0))
    assert it.rules.handovers.heard(2, it.image.offset)
