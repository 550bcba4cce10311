"""Stories of a leader: announcing, serving fetches, committing, and giving up in time."""

import pytest

from broker.errors import ErrorCode
from broker.quorum.effects import AppendAsLeader, CommitEffect, LeadershipEstablished, LeadershipLost, RefuseAppend
from broker.quorum.election_state import ElectionState
from broker.quorum.messages import BeginRequest, EndRequest, OffsetAndEpoch, Response
from broker.quorum.roles import Follower, Leader, Resigned, Unattached
from broker.server.handlers.quorum_handler import status_response
from tests.broker.quorum.memory import LEADER_CHANGE
from tests.broker.quorum.story import Story, entries


def leading(log: tuple[int, ...] = (), **options: object) -> tuple[Story, int]:
    story = Story(log=log, **options)  # type: ignore[arg-type]
    return story, story.become_leader()


# --- announcing


@pytest.mark.conforms("K595-23", "K595-3")
def test_begin_quorum_epoch_is_repeated_until_the_voter_answers_or_fetches() -> None:
    story, epoch = leading()
    story.no_answer(2, BeginRequest)
    story.no_answer(3, BeginRequest)
    story.wait(0.03)
    assert [to for to, _ in story.sent(BeginRequest)] == [2, 3]
    story.answer(2, BeginRequest, Response(ErrorCode.NONE, 1, epoch))
    story.fetch(3, epoch, 0, -1)
    story.no_answer(3, BeginRequest)
    story.wait(0.7)
    assert story.sent(BeginRequest) == []


@pytest.mark.conforms("K595-26", "K595-32")
def test_a_leader_that_receives_a_higher_epoch_follows_durably() -> None:
    story, epoch = leading()
    story.answer(2, BeginRequest, Response(ErrorCode.FENCED_LEADER_EPOCH, 3, epoch + 4))
    story.is_a(Follower, epoch + 4)
    assert (story.disk.election.epoch, story.disk.election.leader_id) == (epoch + 4, 3)


# --- serving


@pytest.mark.conforms("K595-34", "K595-38", "K595-9", "K595-11")
def test_a_fetch_is_checked_for_epoch_and_leadership_and_the_answer_names_the_leader() -> None:
    story = Story()
    story.follow(2, epoch=5)
    for epoch, error in (
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        answer = story.fetch(3, epoch, 0, -1)
        assert answer is not None
        assert (answer.error, answer.leader_id, answer.epoch) == (error, 2, 5)
    story, epoch = leading()
    foreign = story.fetch(3, epoch, 0, -1, cluster="another")
    assert foreign is not None
    assert foreign.error is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_fetch_without_a_replica_id_is_refused() -> None:
    story, epoch = leading()
    answer = story.fetch(-1, epoch, 0, -1)
    assert answer is not None
    assert answer.error is ErrorCode.INVALID_REQUEST


@pytest.mark.conforms("K595-35")
@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (0, -1, None),
        (2, 1, None),
        (1, 1, None),
        (3, 3, None),
        (3, 1, (1, 2)),  # past the end of epoch 1
        (2, 2, (1, 2)),  # an epoch that this log has not
        (5, 3, (3, 4)),
        (9, 5, (5, 5)),
        (1, 0, (-1, 0)),  # before the first epoch
    ],
)
def test_a_fetch_must_continue_a_prefix_of_the_log(
    offset: int, last_epoch: int, diverging: tuple[int, int] | None
) -> None:
    story = Story(log=[1, 1, 3, 3], remembers=ElectionState(4))
    story.become_leader()
    assert story.epochs_in_log == [1, 1, 3, 3, 5]
    answer = story.fetch(2, 5, offset, last_epoch)
    assert answer is not None
    if diverging is None:
        assert answer.diverging is None
        assert [epoch for epoch, _ in entries(answer)] == story.epochs_in_log[offset:]
    else:
        assert answer.diverging == OffsetAndEpoch(*diverging)
        assert entries(answer) == []


@pytest.mark.conforms("H6")
def test_a_fetch_that_diverges_does_not_count_as_progress() -> None:
    story, epoch = leading(log=(1, 1))
    story.fetch(2, epoch, 9, 1)
    assert story.is_a(Leader).voters[2].fetch_offset is None
    assert story.node.high_watermark == 0


def test_a_fetch_at_the_end_is_parked_until_records_arrive() -> None:
    story, epoch = leading()
    story.fetch(2, epoch, 1, epoch)
    assert story.fetch(2, epoch, 1, epoch) is None
    story.append(7, 8)
    assert entries(story.answer_to_last_fetch()) == [(epoch, 7), (epoch, 8)]


def test_a_parked_fetch_is_answered_at_its_deadline() -> None:
    story, epoch = leading()
    story.fetch(2, epoch, 1, epoch)
    story.fetch(2, epoch, 1, epoch)
    story.wait(0.2)
    assert story.answer_to_last_fetch() is None
    story.wait(0.06)
    assert entries(story.answer_to_last_fetch()) == []


def test_a_parked_fetch_is_answered_as_soon_as_the_high_watermark_moves() -> None:
    story, epoch = leading()
    first = story.fetch(2, epoch, 0, -1)
    assert first is not None
    assert first.high_watermark == -1
    assert story.fetch(3, epoch, 0, -1) is not None
    assert story.fetch(3, epoch, 1, epoch) is not None, "this fetch itself commits the first record"
    committed = story.fetch(2, epoch, 1, epoch)
    assert committed is not None
    assert committed.high_watermark == 1
    assert story.fetch(2, epoch, 1, epoch) is None, "nothing is new to it"
    story.append(7)
    assert story.answer_to_last_fetch() is not None
    assert story.fetch(2, epoch, 2, epoch) is not None, "its own fetch commits, and it learns so at once"


def test_a_second_fetch_of_a_replica_ends_its_parked_one() -> None:
    story, epoch = leading()
    story.fetch(2, epoch, 1, epoch)
    assert story.fetch(2, epoch, 1, epoch) is None
    older = story._last_fetch
    assert story.fetch(2, epoch, 1, epoch) is None
    assert older in story.replies


@pytest.mark.conforms("H24", "K595-38")
def test_parked_fetches_get_an_error_when_the_leader_resigns() -> None:
    story, epoch = leading()
    story.fetch(2, epoch, 1, epoch)
    assert story.fetch(2, epoch, 1, epoch) is None
    story.vote_request(3, epoch + 1, log=(epoch, 1))
    answer = story.answer_to_last_fetch()
    assert answer is not None
    assert (answer.error, answer.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch + 1)


# --- committing


@pytest.mark.conforms("K595-36")
def test_the_first_commit_needs_an_entry_of_the_epoch_on_a_majority() -> None:
    """Raft's figure 8: an old entry on a majority may still be replaced (mutant commit_old_epoch)."""
    story, epoch = leading(log=(1, 2), voters=(1, 2, 3, 4, 5))
    for voter in (2, 3, 4, 5):
        story.fetch(voter, epoch, 2, 2)
    assert story.node.high_watermark == 0
    assert story.done(CommitEffect, LeadershipEstablished) == []
    story.fetch(2, epoch, 3, epoch)
    assert story.done(CommitEffect) == []
    story.fetch(3, epoch, 3, epoch)
    assert story.done(CommitEffect, LeadershipEstablished) == [CommitEffect(3, epoch), LeadershipEstablished(epoch)]


@pytest.mark.conforms("K595-36")
def test_the_high_watermark_follows_a_majority_of_voters_without_observers() -> None:
    story, epoch = leading(voters=(1, 2, 3, 4, 5))
    story.append(7, 8)
    for observer in (8, 9):
        story.fetch(observer, epoch, 3, epoch)
    story.fetch(2, epoch, 3, epoch)
    assert story.node.high_watermark == 0
    story.fetch(3, epoch, 2, epoch)
    assert story.node.high_watermark == 2
    story.fetch(4, epoch, 1, epoch)
    assert story.node.high_watermark == 2
    story.fetch(3, epoch, 3, epoch)
    assert story.node.high_watermark == 3


@pytest.mark.conforms("K595-36")
def test_half_of_the_voters_do_not_commit() -> None:
    story, epoch = leading(voters=(1, 2, 3, 4))
    story.append(7)
    story.fetch(2, epoch, 2, epoch)
    story.fetch(3, epoch, 1, epoch)
    assert story.node.high_watermark < 2
    story.fetch(3, epoch, 2, epoch)
    assert story.node.high_watermark == 2


@pytest.mark.conforms("K595-7")
def test_the_leader_counts_its_own_records_only_once_they_are_on_disk() -> None:
    story = Story(slow_disk=True)
    epoch = story.become_leader()
    story.fetch(2, epoch, 1, epoch)
    assert story.node.high_watermark == 0
    story.fetch(3, epoch, 1, epoch)
    assert story.node.high_watermark == 1, "two others have it"
    story.append(7)
    story.fetch(2, epoch, 2, epoch)
    assert story.node.high_watermark == 1
    story.disk_catches_up()
    assert story.node.high_watermark == 2


@pytest.mark.conforms("K595-53", "K595-21")
def test_appends_are_batches_of_the_leaders_epoch_and_refused_elsewhere() -> None:
    story, epoch = leading()
    ticket = story.append(7, 8)
    records = ((7).to_bytes(8, "big"), (8).to_bytes(8, "big"))
    assert story.done(AppendAsLeader) == [AppendAsLeader(epoch, records, ticket)]
    assert story.log.entries == [(epoch, LEADER_CHANGE), (epoch, 7), (epoch, 8)]
    story.follow(2, epoch + 1)
    ticket = story.append(9)
    assert story.done(LeadershipLost, RefuseAppend) == [LeadershipLost(epoch), RefuseAppend(ticket)]


# --- giving up


@pytest.mark.conforms("K595-43", "H19")
def test_a_leader_that_no_majority_fetches_from_resigns() -> None:
    story, epoch = leading()
    story.wait(1.4)
    story.fetch(2, epoch, 0, -1)
    story.wait(1.45)
    story.is_a(Leader)
    story.wait(0.06)
    story.is_a(Resigned, epoch)
    assert story.role.leader_id is None
    answer = story.fetch(2, epoch, 1, epoch)
    assert answer is not None
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    story.wait(1.01)
    assert story.role.epoch > epoch, "it holds an election of its own"


@pytest.mark.conforms("K595-27")
def test_a_failed_controller_resigns_only_its_own_epoch() -> None:
    story, epoch = leading()
    story.resign(epoch - 1)
    story.is_a(Leader, epoch)
    story.resign(epoch)
    story.is_a(Resigned, epoch)
    story.resign(epoch)
    story.wait(1.01)
    assert story.role.epoch > epoch, "it may stand again"


@pytest.mark.conforms("K595-43", "H19")
def test_observers_do_not_keep_a_leader_in_office() -> None:
    story, epoch = leading()
    for _ in range(16):
        story.wait(0.1)
        story.fetch(9, epoch, 0, -1)
    story.is_a(Resigned)


@pytest.mark.conforms("K595-43", "H19")
def test_a_leader_without_any_fetch_resigns() -> None:
    story, epoch = leading()
    story.wait(1.49)
    story.is_a(Leader)
    story.wait(0.02)
    story.is_a(Resigned, epoch)


@pytest.mark.conforms("K595-43", "H19")
def test_the_fetches_of_a_minority_do_not_keep_a_leader_in_office() -> None:
    story, epoch = leading(voters=(1, 2, 3, 4, 5))
    for _ in range(4):
        story.wait(0.4)
        story.fetch(2, epoch, 0, -1)
    story.is_a(Resigned, epoch)


@pytest.mark.conforms("K595-43", "H19")
def test_the_fetches_of_a_majority_within_the_timeout_keep_a_leader_in_office() -> None:
    story, epoch = leading(voters=(1, 2, 3, 4, 5))
    for _ in range(8):
        story.wait(0.7)
        story.fetch(2, epoch, 0, -1)
        story.wait(0.7)
        story.fetch(3, epoch, 0, -1)
    story.is_a(Leader)


@pytest.mark.conforms("K595-27", "K595-28", "K595-32")
def test_a_leader_that_stops_names_its_successors_in_the_order_of_their_logs() -> None:
    story, epoch = leading(voters=(1, 2, 3, 4, 5))
    story.append(7)
    story.fetch(4, epoch, 2, epoch)
    story.fetch(3, epoch, 1, epoch)
    story.stop()
    ends = story.sent(EndRequest)
    assert [to for to, _ in ends] == [2, 3, 4, 5]
    assert ends[0][1].preferred_successors == (4, 3, 2, 5)
    assert (ends[0][1].leader_id, ends[0][1].epoch) == (1, epoch)
    story.no_answer(2, EndRequest)
    story.answer(3, EndRequest, Response(ErrorCode.FENCED_LEADER_EPOCH, 4, epoch + 1))
    story.is_a(Resigned, epoch)
    story.wait(5.0)
    assert len(story.sent(EndRequest)) == 2, "best effort: not repeated"


@pytest.mark.conforms("K595-32")
def test_a_leader_that_has_resigned_follows_the_one_that_a_voter_names() -> None:
    story, epoch = leading()
    story.resign(epoch)
    story.answer(2, EndRequest, Response(ErrorCode.NONE, None, epoch))
    story.is_a(Resigned, epoch)
    story.answer(3, EndRequest, Response(ErrorCode.FENCED_LEADER_EPOCH, 2, epoch + 1))
    assert story.is_a(Follower, epoch + 1).leader_id == 2
    assert (story.disk.election.epoch, story.disk.election.leader_id) == (epoch + 1, 2)


@pytest.mark.conforms("K595-27")
def test_a_stopping_candidate_sends_an_end_request() -> None:
    story = Story()
    epoch = story.become_candidate()
    story.stop()
    assert [(to, end.leader_id, end.epoch) for to, end in story.sent(EndRequest)] == [
        (2, None, epoch),
        (3, None, epoch),
    ]


@pytest.mark.conforms("K595-20")
def test_a_leader_yields_to_a_candidate_of_a_higher_epoch() -> None:
    story, epoch = leading()
    assert not story.vote_request(2, epoch + 1, log=(-1, 0)).granted
    story.is_a(Unattached, epoch + 1)


# --- telling


@pytest.mark.conforms("K595-44", "K595-51")
def test_describe_quorum_returns_log_ends_and_caught_up_times() -> None:
    story, epoch = leading()
    began = story.now
    story.fetch(2, epoch, 1, epoch)
    story.fetch(9, epoch, 0, -1)
    story.append(7)
    story.wait(0.1)
    story.fetch(2, epoch, 1, epoch)
    status = story.node.describe(story.now)
    assert status is not None
    assert (status.leader_id, status.epoch, status.high_watermark) == (1, epoch, 1)
    assert [(voter.replica_id, voter.log_end_offset) for voter in status.voters] == [(1, 2), (2, 1), (3, None)]
    assert [observer.replica_id for observer in status.observers] == [9]
    second = status.voters[1]
    assert (second.last_fetch_at, second.last_caught_up_at) == (story.now, began)
    described = status_response(status, story.now, 1_700_000_000_000, (), "CONTROLLER").topics[0].partitions[0]
    assert [voter.log_end_offset for voter in described.current_voters] == [2, 1, -1]
    assert [observer.replica_id for observer in described.observers] == [9]
    silent = described.current_voters[2]
    assert (silent.last_fetch_timestamp, silent.last_caught_up_timestamp) == (-1, -1)
    story.follow(2, epoch + 1)
    assert story.node.describe(story.now) is None


@pytest.mark.conforms("K595-42")
def test_silent_observers_are_removed() -> None:
    story = Story(voters=(1,))
    epoch = story.is_a(Leader).epoch
    story.fetch(8, epoch, 0, -1)
    story.wait(301.0)
    story.fetch(9, epoch, 0, -1)
    assert list(story.is_a(Leader).observers) == [9]
