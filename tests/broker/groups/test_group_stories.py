"""Groups rebalance, lose members, take them back and keep their offsets, whatever happens to the coordinator."""

import tracemalloc

import pytest

from broker.coordinator.offsets_topic import partition_of
from broker.errors import ErrorCode, ProtocolError
from broker.groups.timers import Timer, Timers
from broker.protocol.messages.group_apis import MemberIdentity
from broker.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue, read_record, record
from tests.broker.groups.story import Story

HOUR_S = 3600.0


@pytest.mark.conforms("CG-1")
def test_two_members_reach_a_generation_with_the_leaders_assignment() -> None:
    story = Story()
    first, ticket = story.joins()
    assert story.join_answer(ticket).leader == first
    second, waiting = story.joins()
    assert not story.is_answered(waiting), "the first member has not rejoined"
    assert story.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    leading = story.join_answer(story.asks_to_join(first))
    assert [member.member_id for member in leading.members] == [first, second]
    assert story.join_answer(waiting).members == []
    follower = story.asks_to_sync(second, 2)
    assert not story.is_answered(follower)
    leader = story.asks_to_sync(first, 2, {first: b"a", second: b"b"})
    assert (story.sync_answer(leader).assignment, story.sync_answer(follower).assignment) == (b"a", b"b")
    assert story.state == "Stable"


@pytest.mark.conforms("CG-1")
def test_the_leader_alone_assigns_and_only_to_members() -> None:
    story = Story()
    first, _ = story.joins()
    second, _ = story.joins()
    story.asks_to_join(first)
    late = story.asks_to_sync(first, 1, {first: b"of the last generation"})
    assert story.sync_answer(late).error_code == ErrorCode.ILLEGAL_GENERATION
    follower = story.asks_to_sync(second, 2, {first: b"x", second: b"y"})
    assert not story.is_answered(follower), "it is not the leader"
    stranger = story.asks_to_sync("stranger", 2)
    assert story.sync_answer(stranger).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leader = story.asks_to_sync(first, 2, {first: b"a", second: b"b", "stranger": b"c"})
    assert (story.sync_answer(leader).assignment, story.sync_answer(follower).assignment) == (b"a", b"b")


@pytest.mark.conforms("CG-2")
def test_an_assignment_is_handed_out_only_when_it_is_committed() -> None:
    story = Story(slow_log=True)
    member, _ = story.joins()
    ticket = story.asks_to_sync(member, 1, {member: b"a"})
    assert not story.is_answered(ticket)
    story.log_catches_up()
    assert story.sync_answer(ticket).assignment == b"a"


@pytest.mark.conforms("CG-2")
def test_the_first_assignment_of_a_leader_counts() -> None:
    story = Story()
    leader, _ = story.joins()
    follower, _ = story.joins()
    generation = story.join_answer(story.asks_to_join(leader)).generation_id
    story.slow_log = True
    waits = story.asks_to_sync(follower, generation)
    story.asks_to_sync(leader, generation, {leader: b"a", follower: b"b"})
    again = story.asks_to_sync(leader, generation, {leader: b"b", follower: b"a"})
    story.log_catches_up()
    assert (story.sync_answer(again).assignment, story.sync_answer(waits).assignment) == (b"a", b"b")
    story.take_over()
    assert story.sync_answer(story.asks_to_sync(leader, generation)).assignment == b"a"
    assert story.sync_answer(story.asks_to_sync(follower, generation)).assignment == b"b"


def test_an_assignment_that_cannot_be_stored_starts_another_rebalance() -> None:
    story = Story()
    member, _ = story.joins()
    story.appends_fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ticket = story.asks_to_sync(member, 1, {member: b"a"})
    assert story.sync_answer(ticket).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.heartbeat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_late_commit_of_an_assignment_does_not_restore_it() -> None:
    story = Story(slow_log=True)
    member, _ = story.joins()
    story.asks_to_sync(member, 1, {member: b"a"})
    story.log_is_late()
    story.log_catches_up()
    assert story.state == "PreparingRebalance"


def test_a_silent_member_is_removed() -> None:
    story = Story()
    leader, follower, generation = story.stable_pair(session_ms=10_000)
    story.wait(6)
    assert story.heartbeat(leader, generation) is ErrorCode.NONE
    story.wait(6)
    assert story.heartbeat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert story.heartbeat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    again = story.join_answer(story.asks_to_join(leader))
    assert (again.generation_id, len(again.members)) == (generation + 1, 1)


def test_a_dead_leader_is_replaced() -> None:
    story = Story()
    leader, follower, generation = story.stable_pair()
    story.leave(MemberIdentity(leader))
    answer = story.join_answer(story.asks_to_join(follower))
    assert (answer.leader, answer.generation_id) == (follower, generation + 1)


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    story = Story()
    leader, follower, generation = story.stable_pair(rebalance_ms=20_000, session_ms=30_000)
    ticket = story.asks_to_join(leader, rebalance_ms=20_000, session_ms=30_000)
    story.wait(10)
    assert story.heartbeat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not story.is_answered(ticket)
    story.wait(11)
    assert [member.member_id for member in story.join_answer(ticket).members] == [leader]


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    story = Story()
    first, _ = story.joins(rebalance_ms=20_000, session_ms=30_000)
    second, _ = story.joins(rebalance_ms=20_000, session_ms=30_000)
    story.asks_to_join(first, rebalance_ms=20_000, session_ms=30_000)
    story.asks_to_sync(first, 2, {first: b"a", second: b"b"})
    story.wait(21)
    assert story.heartbeat(second, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.heartbeat(first, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_initial_delay_is_extended_while_members_join() -> None:
    story = Story(initial_rebalance_delay_s=3.0)
    _, first = story.joins()
    story.wait(2)
    _, second = story.joins()
    story.wait(2)
    assert not story.is_answered(first), "a member joined within the delay, which restarts"
    story.wait(2)
    assert story.join_answer(first).generation_id == story.join_answer(second).generation_id == 1


def test_the_protocol_with_the_most_votes_among_those_that_all_support_wins() -> None:
    story = Story(initial_rebalance_delay_s=3.0)
    tickets = [
        story.joins(protocols=protocols)[1]
        for protocols in (("sticky", "range", "own"), ("range", "sticky"), ("range", "sticky"))
    ]
    story.wait(10)
    assert {story.join_answer(ticket).protocol_name for ticket in tickets} == {"range"}
    refused = story.join_answer(story.asks_to_join(protocols=("own",)))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = story.join_answer(story.asks_to_join(protocol_type="connect"))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_unused_invitation_delays_a_rebalance_by_at_most_a_session() -> None:
    story = Story()
    leader, follower, generation = story.stable_pair()
    story.is_invited(session_ms=6_000)
    ticket = story.asks_to_join(leader)
    story.asks_to_join(follower)
    assert not story.is_answered(ticket)
    story.wait(7)
    assert story.join_answer(ticket).generation_id == generation + 1


def test_a_client_of_an_older_version_becomes_a_member_at_once() -> None:
    story = Story()
    ticket = story.asks_to_join(version=3)
    assert story.join_answer(ticket).error_code == ErrorCode.NONE


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_out_of_bounds_is_refused(session_ms: int) -> None:
    story = Story()
    refused = story.join_answer(story.asks_to_join(session_ms=session_ms))
    assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_has_a_maximum_of_members() -> None:
    story = Story(max_size=1)
    story.joins()
    refused = story.join_answer(story.asks_to_join())
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("takes_over", [False, True], ids=["the same coordinator", "another coordinator"])
def test_a_generation_with_only_absent_members_is_checked_periodically(*, takes_over: bool) -> None:
    story = Story()
    dynamic, _ = story.joins()
    ticket = story.asks_to_join(instance="i", rebalance_ms=0)
    story.asks_to_join(dynamic)
    static, generation = story.join_answer(ticket).member_id, story.join_answer(ticket).generation_id
    story.asks_to_sync(static, generation, instance="i")
    story.asks_to_sync(dynamic, generation, {dynamic: b"d", static: b"s"})
    if takes_over:
        story.take_over()
    assert story.state == "Stable"
    story.leave(MemberIdentity(dynamic))
    assert story.ticks(8.0) < 20, "the coordinator waits for no time before a rejoin"
    assert story.state == "PreparingRebalance"
    assert story.heartbeat(static, generation, "i") is ErrorCode.REBALANCE_IN_PROGRESS
    back = story.join_answer(story.asks_to_join(static, instance="i", rebalance_ms=0))
    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, generation + 1)


def test_a_deadline_set_by_a_tick_is_due_in_a_later_tick() -> None:
    timers = Timers()
    timers.set(Timer("early"), 1.0)
    timers.set(Timer("due"), 2.0)
    found = []
    for timer in timers.due(2.0):
        found.append(timer.kind)
        timers.set(timer, 2.0)
    assert found == ["early", "due"]
    assert timers.next() == 2.0
    assert {timer.kind for timer in timers.due(2.0)} == {"early", "due"}


def test_a_deadline_that_is_moved_often_or_cancelled_uses_bounded_memory() -> None:
    timers, often = Timers(), Timer("often")
    timers.set(Timer("near"), 1.0)
    timers.set(Timer("withdrawn"), 2.0)
    timers.cancel(Timer("withdrawn"))
    tracemalloc.start()
    try:
        for number in range(10_000):
            timers.set(often, 1800.0 + number)
        for number in range(50):
            timers.set(Timer("long", f"{number:030000}"), 1800.0)
            timers.cancel(Timer("long", f"{number:030000}"))
        assert tracemalloc.get_traced_memory()[0] < 50_000, "each time something was kept, or a name was"
    finally:
        tracemalloc.stop()
    assert list(timers.due(11_798.0)) == [Timer("near")]
    assert list(timers.due(11_799.0)) == [often]
    assert timers.next() is None


# --- static members


def test_a_restarted_static_member_gets_its_assignment_without_a_rebalance() -> None:
    story = Story()
    first = story.join_answer(story.asks_to_join(instance="i")).member_id
    story.asks_to_sync(first, 1, {first: b"a"}, instance="i")
    back = story.join_answer(story.asks_to_join(instance="i"))
    assert (back.error_code, back.generation_id, back.skip_assignment) == (ErrorCode.NONE, 1, True)
    assert back.member_id != first
    assert story.sync_answer(story.asks_to_sync(back.member_id, 1, instance="i")).assignment == b"a"
    assert story.state == "Stable"
    assert story.heartbeat(first, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert story.commits(5, first, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    story.take_over()
    assert story.heartbeat(back.member_id, 1, "i") is ErrorCode.NONE


def test_a_static_leader_of_an_old_version_returns_as_a_follower() -> None:
    story = Story()
    first = story.join_answer(story.asks_to_join(instance="i", version=8)).member_id
    story.asks_to_sync(first, 1, {first: b"a"}, instance="i")
    back = story.join_answer(story.asks_to_join(instance="i", version=8))
    assert (back.leader, back.members, back.skip_assignment) == (first, [], False)


def test_two_processes_with_one_instance_id_do_not_share_a_place() -> None:
    story = Story(initial_rebalance_delay_s=3.0)
    waiting = story.asks_to_join(instance="i")
    story.asks_to_join(instance="i")
    assert story.join_answer(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_the_later_of_two_processes_with_one_instance_id_is_the_member() -> None:
    story = Story()
    first = story.join_answer(story.asks_to_join(instance="i")).member_id
    story.asks_to_sync(first, 1, {first: b"a"}, instance="i")
    story.slow_log = True
    older, newer = story.asks_to_join(instance="i"), story.asks_to_join(instance="i")
    story.log_catches_up()
    fenced, has_the_place = story.join_answer(older), story.join_answer(newer)
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert (has_the_place.error_code, has_the_place.generation_id) == (ErrorCode.NONE, 1)
    assert fenced.member_id != has_the_place.member_id
    assert story.heartbeat(has_the_place.member_id, 1, "i") is ErrorCode.NONE
    assert story.heartbeat(fenced.member_id, 1, "i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_removed_during_its_return_gets_an_error() -> None:
    story = Story()
    first = story.join_answer(story.asks_to_join(instance="i")).member_id
    story.asks_to_sync(first, 1, {first: b"a"}, instance="i")
    story.slow_log = True
    back = story.asks_to_join(instance="i")
    assert story.leave(MemberIdentity("", "i")) == [ErrorCode.NONE]
    story.log_catches_up()
    assert story.join_answer(back).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_cannot_be_stored_keeps_its_earlier_id() -> None:
    story = Story()
    first = story.join_answer(story.asks_to_join(instance="i")).member_id
    story.asks_to_sync(first, 1, {first: b"a"}, instance="i")
    story.appends_fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = story.join_answer(story.asks_to_join(instance="i"))
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.heartbeat(first, 1, "i") is ErrorCode.NONE


def test_an_administrator_removes_static_members_by_their_instances() -> None:
    story = Story()
    story.asks_to_join(instance="i")
    codes = story.leave(MemberIdentity("", "i"), MemberIdentity("", "other"), MemberIdentity("wrong", "i"))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]


# --- offsets


@pytest.mark.conforms("CG-3")
def test_an_offset_is_acknowledged_and_shown_once_it_is_committed() -> None:
    story = Story(slow_log=True)
    ticket = story.asks_to_commit(7)
    assert not story.is_answered(ticket)
    assert story.committed() == -1
    story.log_catches_up()
    assert story.commit_answer(ticket) is ErrorCode.NONE
    assert story.committed() == 7


def test_an_offset_that_was_late_counts_once_it_is_committed_after_all() -> None:
    story = Story(slow_log=True)
    ticket = story.asks_to_commit(7)
    story.log_is_late()
    assert story.commit_answer(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.committed() == -1
    story.log_catches_up()
    assert story.committed() == 7


def test_a_commit_of_another_generation_is_refused() -> None:
    story = Story()
    leader, follower, generation = story.stable_pair()
    assert story.commits(5, leader, generation) is ErrorCode.NONE
    assert story.commits(9, leader, generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert story.commits(9, "stranger", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.commits(9) is ErrorCode.UNKNOWN_MEMBER_ID
    story.leave(MemberIdentity(follower))
    assert story.commits(6, leader, generation) is ErrorCode.NONE, "before the rejoin it may still commit"
    story.asks_to_join(leader)
    assert story.commits(9, leader, generation + 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert story.committed() == 6


def test_a_group_that_does_not_exist_has_no_generation_to_commit_in() -> None:
    assert Story().commits(1, "m", 3) is ErrorCode.ILLEGAL_GENERATION


def test_offsets_of_partitions_that_do_not_exist_are_refused() -> None:
    assert Story().commits(1, partition=4) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_group_does_not_expire_while_a_commit_is_on_its_way() -> None:
    story = Story(offsets_retention_ms=3_600_000, retention_check_interval_s=HOUR_S + 1)
    story.commits(5, partition=0)
    story.wait(HOUR_S)
    story.slow_log = True
    ticket = story.asks_to_commit(6, partition=1)
    story.wait(2)
    story.log_catches_up()
    assert story.commit_answer(ticket) is ErrorCode.NONE
    assert (story.committed(0), story.committed(1)) == (-1, 6)
    assert story.state == "Empty"
    story.slow_log = False
    story.wait(2 * (HOUR_S + 1))
    assert (story.committed(1), story.state) == (-1, "Dead")


@pytest.mark.parametrize("takes_over", [False, True], ids=["the same coordinator", "another coordinator"])
def test_an_offset_may_have_the_longest_retention_of_a_request(*, takes_over: bool) -> None:
    story = Story(offsets_retention_ms=1000)
    assert story.commits(5, retention_ms=(1 << 63) - 1) is ErrorCode.NONE
    if takes_over:
        story.take_over()
    story.wait(HOUR_S)
    assert story.committed() == 5


def test_offsets_expire_when_a_group_has_been_empty_for_the_time_of_retention() -> None:
    story = Story(offsets_retention_ms=3_600_000)
    leader, follower, generation = story.stable_pair()
    story.commits(5, leader, generation)
    for _ in range(900):  # a group that lives keeps its offsets
        story.wait(8.0)
        story.heartbeat(leader, generation)
        story.heartbeat(follower, generation)
    assert story.committed() == 5
    story.leave(MemberIdentity(leader), MemberIdentity(follower))
    story.wait(0.9 * HOUR_S)
    assert story.committed() == 5
    story.wait(0.3 * HOUR_S)
    assert story.committed() == -1
    assert story.state == "Dead"
    story.take_over()
    assert story.committed() == -1
    assert story.state == "Dead"


# --- fail-over


@pytest.mark.conforms("CG-4")
def test_a_group_continues_in_its_generation_under_another_coordinator() -> None:
    story = Story()
    leader, follower, generation = story.stable_pair()
    story.commits(5, leader, generation)
    story.take_over()
    assert story.committed() == 5
    assert story.heartbeat(leader, generation) is ErrorCode.NONE
    assert story.sync_answer(story.asks_to_sync(follower, generation)).assignment == b"b"
    story.wait(11)
    assert story.heartbeat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.conforms("CG-4")
def test_a_member_silent_to_the_next_coordinator_is_removed_after_a_session() -> None:
    story = Story()
    leader, follower, generation = story.stable_pair()
    story.take_over()
    story.wait(9)
    assert story.heartbeat(leader, generation) is ErrorCode.NONE
    story.wait(2)
    assert story.heartbeat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert story.heartbeat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.conforms("CG-4")
def test_a_coordinator_elected_during_a_rebalance_continues_from_the_last_committed_generation() -> None:
    story = Story()
    leader, follower, generation = story.stable_pair()
    newcomer, _ = story.joins()
    story.asks_to_join(leader)
    story.asks_to_join(follower)
    story.slow_log = True
    story.asks_to_sync(leader, generation + 1, {newcomer: b"c"})
    story.take_over()
    assert story.heartbeat(newcomer, generation + 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.heartbeat(leader, generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert story.sync_answer(story.asks_to_sync(follower, generation)).assignment == b"b"


@pytest.mark.parametrize("takes_over", [False, True], ids=["the same coordinator", "another coordinator"])
@pytest.mark.parametrize(("asked_h", "ours_h"), [(1, 10), (10, 1)], ids=["shorter than ours", "longer than ours"])
def test_an_offset_expires_at_the_time_requested_by_its_client(asked_h: int, ours_h: int, *, takes_over: bool) -> None:
    story = Story(offsets_retention_ms=ours_h * 3_600_000)
    assert story.commits(5, retention_ms=asked_h * 3_600_000) is ErrorCode.NONE
    if takes_over:
        story.take_over()
    story.wait(0.9 * asked_h * HOUR_S)
    assert story.committed() == 5
    story.wait(0.3 * asked_h * HOUR_S)
    assert story.committed() == -1


# --- what others must be able to read


@pytest.mark.conforms("CG-5")
def test_records_are_those_of_kafka() -> None:
    key, value = record(OffsetCommitKey("g", "t", 2), OffsetCommitValue(7, 3, "m", 1000))
    assert key == b"\0\1\0\1g\0\1t\0\0\0\2"
    assert value == b"\0\3" + (7).to_bytes(8, "big") + b"\0\0\0\3\0\1m" + (1000).to_bytes(8, "big")
    assert read_record(key, value) == (OffsetCommitKey("g", "t", 2), OffsetCommitValue(7, 3, "m", 1000))
    assert read_record(b"\0\x09", None) is None, "a key of another version is passed over"


@pytest.mark.conforms("CG-5")
@pytest.mark.parametrize(
    ("group", "partition"), [("g", 3), ("console-consumer-1", 24), ("", 0), ("é", 33), ("\U0001d11e", 44)]
)
def test_a_group_has_the_partition_that_kafka_gives_it(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


@pytest.mark.parametrize("name", ["g" * 32_000, "é" * 16_000], ids=["g", "é"])
def test_a_name_that_no_record_can_hold_has_no_partition(name: str) -> None:
    assert 0 <= partition_of(name, 50) < 50
    with pytest.raises(ProtocolError) as refused:
        partition_of(name + "g", 50)
    assert refused.value.code is ErrorCode.INVALID_GROUP_ID
