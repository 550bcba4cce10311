"""The replicas that may lead without an ISR (KIP-966), and elections that may lose data (KIP-704)."""

import pytest

from broker.controller.controller import LogsFound
from broker.controller.eligibility import RECOVERED, RECOVERING
from broker.controller.image import MetadataImage
from broker.controller.image_records import records_of
from broker.controller.partition_elections import LogEnd
from broker.errors import ErrorCode, ProtocolError
from broker.protocol.messages.metadata_records import (
    NO_RECOVERY_CHANGE,
    TOPIC_RESOURCE,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    decode_record,
    encode_record,
)
from broker.protocol.messages.partition_apis import PREFERRED, UNCLEAN, AlterPartitionData, ElectLeadersRequest
from tests.broker.controller.world import FAR_AWAY, World

UNCLEAN_ALLOWED = {"unclean.leader.election.enable": "true"}


def three(*mutants: str, min_insync: int = 2, **configs: str) -> World:
    """Brokers 1, 2 and 3, and a partition that they hold."""
    world = World(*mutants, min_insync_replicas=min_insync)
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3], configs={key.replace("_", "."): value for key, value in configs.items()})
    return world


def sets(world: World) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    partition = world.partition()
    return partition.isr, partition.elr, partition.last_known_elr


# --- eligible leader replicas


@pytest.mark.conforms("H16")
def test_a_replica_that_leaves_an_isr_below_the_minimum_stays_eligible() -> None:
    world = three()
    world.fence(3)
    assert sets(world) == ((1, 2), (), ())
    world.fence(2)
    assert sets(world) == ((1,), (2,), ())
    world.fence(1)
    assert sets(world) == ((), (2, 1), ())
    assert world.partition().leader == -1


@pytest.mark.conforms("H16")
def test_an_eligible_replica_leads_at_once_and_cleanly() -> None:
    world = three()
    for broker in (3, 2, 1):
        world.fence(broker)
    world.heartbeat(3)
    assert world.partition().leader == -1, "it left when the ISR was still large enough: more was committed since"
    world.heartbeat(2)
    partition = world.partition()
    assert (partition.leader, partition.recovering, *sets(world)) == (2, False, (2,), (1,), ())


@pytest.mark.conforms("H16")
def test_a_leader_that_may_commit_alone_empties_the_elr() -> None:
    world = three()
    for broker in (3, 2, 1):
        world.fence(broker)
    assert sets(world) == ((), (2, 1), ())
    world.image.apply(ConfigRecord(TOPIC_RESOURCE, "t", "min.insync.replicas", "1"), world.offset)
    world.offset += 1
    world.heartbeat(2)
    assert (world.partition().leader, *sets(world)) == (2, (2,), (), ())


@pytest.mark.conforms("H16")
def test_an_isr_at_the_minimum_again_empties_the_elr() -> None:
    world = three()
    world.fence(3)
    world.fence(2)
    world.heartbeat(3)
    world.alter(world.proposal(1, [1, 3]))
    assert sets(world) == ((1, 3), (), ())


@pytest.mark.conforms("H16")
def test_a_follower_that_lags_out_of_the_isr_is_eligible_too() -> None:
    world = three()
    world.alter(world.proposal(1, [1]))
    assert sets(world) == ((1,), (2, 3), ())
    world.fence(1)
    assert (world.partition().leader, *sets(world)) == (2, (2,), (3, 1), ())


@pytest.mark.conforms("H16")
def test_an_unclean_shutdown_leaves_the_isr_and_the_eligible() -> None:
    world = three()
    world.fence(3)
    world.fence(2)
    assert sets(world) == ((1,), (2,), ())
    world.register(2, life=2)
    assert sets(world) == ((1,), (), (2,))
    world.register(1, life=2)
    assert sets(world) == ((), (), (1, 2)), "the last leader first"


@pytest.mark.conforms("H16")
def test_a_clean_shutdown_keeps_eligibility() -> None:
    world = three()
    for broker in (3, 2):
        world.heartbeat(broker, leaving=True)
    world.register(2, life=2, clean=True)
    assert sets(world) == ((1,), (2,), ())
    world.heartbeat(1, leaving=True)
    world.restart(1, clean=True)
    assert (world.partition().leader, *sets(world)) == (1, (1,), (2,), ())


@pytest.mark.conforms("H16")
def test_a_clean_mark_of_an_earlier_registration_is_ignored() -> None:
    world = three()
    for broker in (3, 2):
        world.fence(broker)
    earlier = world.image.brokers[2].epoch
    world.register(2, life=2, clean=True)
    assert sets(world) == ((1,), (2,), ())
    assert world.image.brokers[2].epoch > earlier
    world.register(2, life=3)
    assert sets(world) == ((1,), (), (2,))


@pytest.mark.conforms("H16")
@pytest.mark.kills("elect_unclean_shutdown_isr")
def test_with_the_mutant_an_unclean_shutdown_leads_without_its_data() -> None:
    for mutants, leader in (((), -1), (("elect_unclean_shutdown_isr",), 1)):
        world = three(*mutants)
        for broker in (3, 2):
            world.fence(broker)
        world.restart(1)
        assert world.partition().leader == leader


@pytest.mark.conforms("H16")
def test_a_changed_minimum_resets_eligibility() -> None:
    world = three()
    world.fence(3)
    world.fence(2)
    assert world.partition().elr == (2,)
    record = ConfigRecord(TOPIC_RESOURCE, "t", "min.insync.replicas", "1")
    world.image.apply(record, world.offset)
    world.offset += 1
    world.check()
    assert sets(world) == ((1,), (), ())


# --- the most complete log


@pytest.mark.conforms("H16", "K101-15")
@pytest.mark.parametrize(
    ("ends", "leader"),
    [
        ({1: (0, 7), 2: (0, 9)}, 2),
        ({1: (4, 3), 2: (0, 9)}, 1),
        ({1: (0, 5), 2: (0, 5)}, 1),
        ({1: (-1, 0), 2: (0, 1)}, 2),
    ],
)
def test_the_most_complete_eligible_replica_leads(ends: dict[int, tuple[int, int]], leader: int) -> None:
    world = three()
    for broker in (3, 2, 1):
        world.fence(broker)
    world.restart(2)
    world.restart(1)
    epoch = world.partition().leader_epoch
    partition = world.compare(ends)
    assert (partition.leader, partition.leader_epoch, partition.recovering) == (leader, epoch + 1, True)
    assert sets(world) == ((leader,), (), (3 - leader,))
    world.alter(world.proposal(leader, [leader]))
    assert (world.partition().recovering, *sets(world)) == (False, (leader,), (), ())


@pytest.mark.conforms("K101-15")
@pytest.mark.kills("last_known_leader_leads")
def test_with_the_mutant_the_last_leader_leads_without_its_lost_records() -> None:
    for mutants, leader in (((), 2), (("last_known_leader_leads",), 1)):
        world = three(*mutants)
        for broker in (3, 2, 1):
            world.fence(broker)
        world.restart(2)
        world.restart(1)
        assert world.compare({1: (0, 5), 2: (0, 9)}).leader == leader


@pytest.mark.conforms("H16")
def test_an_unknown_log_is_ignored_in_an_election() -> None:
    world = three()
    for broker in (3, 2, 1):
        world.fence(broker)
    world.restart(2)
    world.restart(1)
    assert world.compare({1: (0, 7)}).leader == -1
    world.fence(2)
    assert world.compare({1: (0, 7), 2: (0, 9)}).leader == -1, "the broker disappeared after its report"


@pytest.mark.conforms("H16")
def test_a_log_end_of_an_earlier_process_is_ignored_in_an_election() -> None:
    world = three()
    for broker in (3, 2, 1):
        world.fence(broker)
    world.restart(2)
    world.restart(1)
    ends = {broker: (world.image.brokers[broker].epoch, LogEnd(0, 7 + broker)) for broker in (1, 2)}
    world.restart(2, life=3)
    found = LogsFound(world.image.topics["t"].id, 0, world.partition().partition_epoch, ends)
    assert not world.rules.elect_most_complete(world.image, [found]).records, (
        "it may have lost more records since its report"
    )


# --- unclean elections


@pytest.mark.conforms("K704-1")
def test_an_unclean_election_happens_only_when_enabled() -> None:
    for configs, leader in (({}, -1), (UNCLEAN_ALLOWED, 3)):
        world = World(min_insync_replicas=2)
        world.start(1, 2, 3)
        world.create("t", [1, 2, 3], configs=configs)
        world.alter(world.proposal(1, [1, 2]))
        world.fence(2)
        world.fence(1)
        partition = world.partition()
        assert (partition.leader, partition.recovering) == (leader, leader == 3)
        if leader == 3:
            assert sets(world) == ((3,), (), ()), "the ISR is exactly the leader"


@pytest.mark.conforms("K704-1")
def test_the_brokers_setting_applies_to_topics_without_their_own() -> None:
    for own, leader in ((None, 2), ("false", -1), ("true", 2)):
        world = World(unclean_leader_election_enable=True)
        world.start(1, 2)
        world.create("t", [1, 2], configs={} if own is None else {"unclean.leader.election.enable": own})
        world.alter(world.proposal(1, [1]))
        world.fence(1)
        assert world.partition().leader == leader


@pytest.mark.conforms("K704-1")
def test_the_first_returning_replica_leads_uncleanly_when_enabled() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2], configs=UNCLEAN_ALLOWED)
    world.fence(2)
    world.fence(1)
    world.heartbeat(2)
    assert (world.partition().leader, world.partition().recovering, *sets(world)) == (2, True, (2,), (), ())


@pytest.mark.conforms("K704-1")
def test_a_client_may_request_an_unclean_election() -> None:
    world = three()
    for broker in (3, 2, 1):
        world.fence(broker)
    assert world.elect(UNCLEAN) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    world.heartbeat(3)
    assert world.partition().leader == -1
    assert world.elect(PREFERRED) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert world.elect(UNCLEAN) == [ErrorCode.NONE]
    assert (world.partition().leader, world.partition().recovering, *sets(world)) == (3, True, (3,), (), ())
    assert world.elect(UNCLEAN) == [ErrorCode.ELECTION_NOT_NEEDED]


def test_a_client_may_request_the_preferred_leader() -> None:
    world = three()
    world.fence(1)
    world.heartbeat(1)
    assert world.partition().leader == 2
    assert world.elect(PREFERRED) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    world.alter(world.proposal(2, [2, 3, 1]))
    epoch = world.partition().leader_epoch
    assert world.elect(PREFERRED) == [ErrorCode.NONE]
    assert (world.partition().leader, world.partition().leader_epoch) == (-1, epoch + 1)
    assert world.elect(PREFERRED) == world.elect(UNCLEAN) == [ErrorCode.ELECTION_NOT_NEEDED]
    world.hand_over()
    assert (world.partition().leader, world.partition().leader_epoch) == (1, epoch + 2)
    assert world.elect(PREFERRED) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert world.elect(PREFERRED, "t", 0, 7) == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_an_election_for_all_partitions_reports_only_those_that_needed_one() -> None:
    world = three()
    world.create("u", [2, 1], [1, 2])
    world.fence(1)
    world.heartbeat(1)
    world.alter(world.proposal(2, [2, 1], "u", 1))
    response = world.decide(world.rules.elect_leaders(world.image, ElectLeadersRequest(PREFERRED, None)))
    errors = {
        (topic.topic, partition.partition_id): partition.error_code
        for topic in response.replica_election_results
        for partition in topic.partition_result
    }
    assert errors == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ("u", 1): ErrorCode.NONE}
    with pytest.raises(ProtocolError, match="election type 7"):
        world.rules.elect_leaders(world.image, ElectLeadersRequest(7, None))


@pytest.mark.conforms("H31")
def test_an_election_behind_a_lease_is_needed_unless_a_leader_will_follow() -> None:
    world = three()
    for broker in (3, 2, 1):
        world.fence(broker)
    world.heartbeat(3)
    assert sets(world) == ((), (2, 1), ())
    world.rules.handovers.begin_after(("t", 0), FAR_AWAY)
    assert world.elect(UNCLEAN) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    assert world.elect(PREFERRED) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    world.heartbeat(2)
    assert world.elect(UNCLEAN) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert world.elect(PREFERRED) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    world.elect_successors(FAR_AWAY)
    assert world.partition().leader == 2


# --- the recovery of an unclean leader, as the controller keeps it


def unclean(*mutants: str) -> World:
    """Broker 2 leads, elected uncleanly; it has not recovered yet."""
    world = World(*mutants)
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    world.alter(world.proposal(1, [1]))
    world.fence(1)
    assert world.elect(UNCLEAN) == [ErrorCode.NONE]
    assert (world.partition().leader, world.partition().recovering) == (2, True)
    return world


@pytest.mark.conforms("K704-4", "K704-8")
@pytest.mark.kills("isr_grows_while_recovering")
def test_no_replica_joins_a_leader_in_recovery() -> None:
    for mutants, error in (((), ErrorCode.INVALID_REQUEST), (("isr_grows_while_recovering",), ErrorCode.NONE)):
        world = World(*mutants)
        world.start(1, 2)
        world.create("t", [1, 2])
        world.alter(world.proposal(1, [1]))
        world.fence(1)
        world.elect(UNCLEAN)
        world.heartbeat(1)
        request = world.proposal(2, [2, 1], "t", 0, leader_recovery_state=1)
        decision = world.rules.alter_partition(world.image, request, 3)
        assert decision.answer(world.image).topics[0].partitions[0].error_code == error
        if mutants:
            with pytest.raises(AssertionError):
                world.decide(decision)


@pytest.mark.conforms("K704-7", "K704-11")
@pytest.mark.parametrize("version", [2, 3])
def test_the_leader_ends_its_recovery_and_gets_the_new_state(version: int) -> None:
    world = unclean()
    leader = world.partition().leader
    request = world.proposal(leader, [leader])
    request.topics[0].partitions[0].new_isr = [leader]
    assert world.rules.alter_partition(world.image, request, version).records != []
    result = world.alter(request, version)
    assert (result.error_code, result.leader_recovery_state, result.isr) == (0, 0, [leader])
    assert not world.partition().recovering
    assert AlterPartitionData().leader_recovery_state == 0, "who does not know the flag has recovered"


@pytest.mark.conforms("K704-7")
def test_a_leader_still_in_recovery_gets_that_state() -> None:
    world = unclean()
    leader = world.partition().leader
    result = world.alter(world.proposal(leader, [leader], "t", 0, leader_recovery_state=1))
    assert (result.error_code, result.leader_recovery_state) == (0, 1)
    assert world.partition().recovering


@pytest.mark.conforms("K704-2")
@pytest.mark.parametrize("state", [NO_RECOVERY_CHANGE, RECOVERED, RECOVERING])
def test_a_change_without_a_recovery_state_keeps_it(state: int) -> None:
    world = unclean()
    topic, recovering = world.image.topics["t"].id, world.partition()
    recovered = recovering.changed(PartitionChangeRecord(0, topic, leader_recovery_state=RECOVERED))
    assert not recovered.recovering
    for before in (recovering, recovered):
        after = before.changed(PartitionChangeRecord(0, topic, leader=3, leader_recovery_state=state))
        assert after.recovering is (before.recovering if state == NO_RECOVERY_CHANGE else state == RECOVERING)


@pytest.mark.conforms("K704-2", "K704-9")
def test_a_snapshot_has_an_unfinished_recovery() -> None:
    world = unclean()
    restored = MetadataImage()
    restored.restore(world.offset, [encode_record(record) for record in records_of(world.image)])
    assert restored.partition("t", 0) == world.partition()
    assert world.partition().recovering


@pytest.mark.conforms("K704-8")
def test_a_recovered_leader_cannot_return_to_recovery() -> None:
    world = unclean()
    leader = world.partition().leader
    world.alter(world.proposal(leader, [leader]))
    again = world.proposal(leader, [leader], "t", 0, leader_recovery_state=1)
    assert world.alter(again).error_code == ErrorCode.INVALID_REQUEST
    assert not world.partition().recovering


@pytest.mark.conforms("K704-9")
@pytest.mark.kills("recovery_flag_lost")
@pytest.mark.parametrize("clean", [True, False])
def test_a_leader_that_dies_while_it_recovers_still_has_to(clean: bool) -> None:
    world = unclean()
    leader, epoch = world.partition().leader, world.partition().leader_epoch
    world.fence(leader)
    assert world.partition().recovering
    world.restart(leader, clean=clean)
    if not clean:
        world.compare({leader: (0, 5)})
    partition = world.partition()
    assert (partition.leader, partition.leader_epoch, partition.recovering) == (leader, epoch + 2, True)
    mutated = unclean("recovery_flag_lost")
    mutated.fence(leader)
    mutated.heartbeat(leader)
    assert not mutated.partition().recovering, "the broker would not know that recovery is pending"


@pytest.mark.conforms("K704-1")
@pytest.mark.kills("unclean_keeps_isr")
def test_an_unclean_election_empties_the_elr() -> None:
    for mutants, leader in (((), -1), (("unclean_keeps_isr",), 1)):
        world = World(*mutants, min_insync_replicas=2)
        world.start(1, 2, 3)
        world.create("t", [1, 2, 3])
        world.alter(world.proposal(1, [1]))
        for broker in (2, 3, 1):
            world.fence(broker)
        world.register(2, life=2)
        world.register(3, life=2)
        world.heartbeat(3)
        assert world.partition().elr == (1,)
        assert world.elect(UNCLEAN) == [ErrorCode.NONE]
        world.alter(world.proposal(3, [3]))
        world.restart(3, life=3)
        assert world.partition().leader == -1
        world.heartbeat(1)
        assert world.partition().leader == leader, "what 3 alone has committed since, 1 does not have"


# --- records


@pytest.mark.conforms("K704-2", "K704-3", "H16")
def test_records_carry_recovery_and_eligibility_as_apache_kafka_has_them() -> None:
    topic = b"t" * 16
    change = PartitionChangeRecord(
        0, topic, [3], 3, leader_recovery_state=1, eligible_leader_replicas=[], last_known_elr=[1]
    )
    assert decode_record(encode_record(change)) == change
    plain = PartitionChangeRecord(0, topic)
    assert (plain.leader_recovery_state, plain.eligible_leader_replicas, plain.last_known_elr) == (-1, None, None)
    assert PartitionRecord(0, topic).leader_recovery_state == 0, "missing means recovered"
    record = PartitionRecord(0, topic, [1, 2], [1], leader=1, leader_recovery_state=1, eligible_leader_replicas=[2])
    assert decode_record(encode_record(record)) == record
    # Frame, type, version; then, of the tagged fields, isr (0), leader (1), recovery state (5), ELR (6), last ELR (7).
    tail = bytes.fromhex("05 0005 02 00000003 0104 00000003 0501 01 0601 01 0705 02 00000001".replace(" ", ""))
    assert encode_record(change) == bytes([1, 5, 2]) + bytes(4) + topic + tail
