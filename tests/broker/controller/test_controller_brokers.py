"""The life of a broker as the controller sees it: registration, bounce, fencing, return, and the leader at each
stage."""

import pytest

from broker.controller.image import MetadataImage, MetadataImageError
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.broker_apis import BrokerHeartbeatRequest
from broker.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from tests.broker.controller.world import World, registration


def test_a_broker_registers_and_is_unfenced_when_it_has_caught_up() -> None:
    world = World()
    world.offset = 10
    epoch = world.register(1)
    assert epoch == 10, "the epoch is the offset of the registration"
    assert world.image.brokers[1].fenced
    assert world.heartbeat(1, at=9).fenced
    assert not world.heartbeat(1, at=10).fenced


@pytest.mark.conforms("K595-53")
def test_a_repeated_registration_makes_no_change() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2])
    before = world.image.brokers[1], world.partition()
    assert world.register(1) == before[0].epoch
    assert (world.image.brokers[1], world.partition()) == before


@pytest.mark.conforms("H12")
def test_a_new_incarnation_is_taken_at_once_and_loses_the_places_of_the_old_one() -> None:
    world = World()
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    old_epoch = world.image.brokers[2].epoch
    assert world.register(2, life=2) > old_epoch
    assert world.image.brokers[2].fenced
    partition = world.partition()
    assert (partition.leader, partition.isr) == (1, (1, 3))
    with pytest.raises(ProtocolError) as caught:
        world.decide(world.rules.heartbeat(world.image, BrokerHeartbeatRequest(2, old_epoch, 99)))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    world.heartbeat(2)
    assert world.partition().isr == (1, 3), "back, but in the ISR only when the leader says so"


@pytest.mark.conforms("K101-10", "H12")
def test_a_second_process_with_the_same_number_is_refused_while_the_first_lives() -> None:
    world = World()
    world.start(1, 2)
    before = world.image.brokers[2]
    with pytest.raises(ProtocolError, match="broker 2 is alive at n2:9092") as caught:
        world.register(2, life=2, directory=b"e" * 16)
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert world.image.brokers[2] == before
    world.fence(2)
    assert world.register(2, life=2, directory=b"e" * 16) > before.epoch, "its disk was lost: the first one is gone"


@pytest.mark.conforms("K101-10")
def test_a_bounced_leader_hands_over_and_every_partition_it_was_in_gets_a_new_epoch() -> None:
    world = World()
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3], [2, 3, 1])
    world.create("u", [2, 3])
    world.register(1, life=2)
    led, followed, elsewhere = world.partition("t", 0), world.partition("t", 1), world.partition("u")
    assert (led.leader, led.isr, led.leader_epoch, led.partition_epoch) == (2, (2, 3), 1, 1)
    assert (followed.leader, followed.isr, followed.leader_epoch) == (2, (2, 3), 1)
    assert (elsewhere.leader, elsewhere.leader_epoch, elsewhere.partition_epoch) == (2, 0, 0)


@pytest.mark.conforms("K101-10")
def test_a_bounced_last_member_leads_again_in_a_higher_epoch_once_its_log_is_known() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2])
    world.fence(2)
    assert world.partition().isr == (1,)
    world.register(1, life=2)
    alone = world.partition()
    assert (alone.leader, alone.isr, alone.last_known_elr, alone.leader_epoch) == (-1, (), (1,), 1)
    world.heartbeat(1)
    again = world.compare({1: (0, 7)})
    assert (again.leader, again.isr, again.leader_epoch, again.recovering) == (1, (1,), 2, True)


def test_with_the_mutant_only_the_epoch_shows_a_bounce() -> None:
    world = World("bounce_unseen")
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3], [2, 1, 3])
    epoch = world.image.brokers[1].epoch
    world.register(1, life=2)
    assert world.image.brokers[1].epoch > epoch
    assert not world.image.brokers[1].fenced
    led, followed = world.partition("t", 0), world.partition("t", 1)
    assert (led.leader, led.isr, led.leader_epoch) == (1, (1, 2, 3), 1)
    assert (followed.leader, followed.isr, followed.leader_epoch) == (2, (2, 1, 3), 0)
    world.fence(2)
    assert world.partition("t", 1).leader == 1, "what it lost in the bounce, it leads with"


def test_with_the_mutant_a_broker_that_was_fenced_still_returns_in_the_ordinary_way() -> None:
    world = World("bounce_unseen")
    world.start(1, 2)
    world.create("t", [1, 2])
    world.fence(1)
    world.register(1, life=2)
    assert world.image.brokers[1].fenced
    assert world.partition().isr == (2,)


def test_the_first_available_in_sync_replica_succeeds_a_fenced_leader() -> None:
    world = World()
    world.start(1, 2, 3, 4)
    world.create("t", [1, 3, 2, 4])
    world.alter(world.proposal(1, [1, 2, 4]))
    world.fence(2)
    assert world.partition().isr == (1, 4)
    epoch = world.partition().leader_epoch
    world.fence(1)
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (4, (4,), epoch + 1)


def test_a_fenced_broker_is_unfenced_after_it_has_read_its_losses() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2])
    before = world.offset - 1
    world.fence(1)
    assert world.partition().leader == 2
    # It was cut off: it still takes itself for the leader, and a lease would let it answer as one.
    assert world.heartbeat(1, at=before).fenced
    assert not world.heartbeat(1).fenced


def test_a_fenced_follower_leaves_the_isr_and_the_leader_keeps_its_epoch() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2])
    world.fence(2)
    partition = world.partition()
    assert (partition.leader, partition.isr) == (1, (1,))
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


def test_the_partition_waits_for_the_last_member_of_the_isr() -> None:
    world = World()
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    for broker in (3, 1, 2):
        world.fence(broker)
    assert (world.partition().leader, world.partition().isr, world.partition().elr) == (-1, (), (2,))
    for broker in (1, 3):
        world.heartbeat(broker)
        assert (world.partition().leader, world.partition().elr) == (-1, (2,))
    epoch = world.partition().leader_epoch
    world.heartbeat(2)
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())
    assert (partition.leader_epoch, partition.recovering) == (epoch + 1, False)


def test_a_broker_that_shuts_down_is_released_immediately() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2])
    assert world.heartbeat(1, leaving=True).fenced
    assert (world.partition().leader, world.partition().isr) == (2, (2,))


def test_fencing_a_fenced_or_returned_broker_makes_no_change() -> None:
    world = World()
    world.start(1)
    world.register(2)
    assert world.rules.fence(world.image, 2, world.image.brokers[2].epoch).records == []
    assert world.rules.fence(world.image, 1, world.image.brokers[1].epoch - 1).records == []
    assert world.rules.fence(world.image, 9, 0).records == []


def test_heartbeats_of_strangers_are_refused() -> None:
    world = World()
    world.start(1)
    with pytest.raises(ProtocolError) as caught:
        world.rules.heartbeat(world.image, BrokerHeartbeatRequest(7, 0, 0))
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.conforms("K595-46")
def test_the_first_controller_writes_the_clusters_id_and_only_the_first() -> None:
    world = World()
    first = world.rules.first_records(world.image)
    assert ConfigRecord(4, "", "cluster.id", "brownout-cluster") in first.records
    world.decide(first)
    assert world.image.cluster_id == "brownout-cluster"
    assert world.rules.first_records(world.image).records == [NoOpRecord()]


def test_a_broker_of_another_cluster_is_refused() -> None:
    world = World()
    world.decide(world.rules.first_records(world.image))
    with pytest.raises(ProtocolError, match="not 'other'") as caught:
        world.rules.register(world.image, registration(1, cluster_id="other"))
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_broker_without_a_listener_is_refused() -> None:
    world = World()
    request = registration(1)
    request.listeners = []
    with pytest.raises(ProtocolError) as caught:
        world.rules.register(world.image, request)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_the_image_returns_the_changes_of_a_batch() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2], [2, 1])
    topic = world.image.topics["t"]
    change = PartitionChangeRecord(1, topic.id, isr=[2])
    changes = world.image.apply(change, world.image.offset + 1)
    assert (changes.partitions, changes.brokers) == ({("t", 1)}, set())
    changes = world.image.apply(RemoveTopicRecord(topic.id), world.image.offset + 1)
    assert changes.partitions == {("t", 0), ("t", 1)}
    assert world.image.partition("t", 0) is None
    assert world.image.topic_by_id(topic.id) is None


@pytest.mark.parametrize(
    "record",
    [
        PartitionChangeRecord(0, b"x" * 16, leader=1),
        PartitionRecord(0, b"x" * 16),
        RemoveTopicRecord(b"x" * 16),
        BrokerRegistrationChangeRecord(1, 5, fenced=1),
        ConfigRecord(2, "t", "min.insync.replicas", "2"),
        RegisterBrokerRecord(1),
    ],
)
def test_a_log_that_cannot_be_is_refused(record: PartitionChangeRecord) -> None:
    image = MetadataImage()
    with pytest.raises(MetadataImageError, match="offset 3"):
        image.apply(record, 3)


def test_the_same_record_is_not_applied_twice() -> None:
    image = MetadataImage()
    image.apply(NoOpRecord(), 3)
    with pytest.raises(MetadataImageError, match="applied before"):
        image.apply(NoOpRecord(), 3)
