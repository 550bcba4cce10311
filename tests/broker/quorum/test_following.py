"""Stories of a follower: finding the leader, copying its log, truncating, and committing."""

import pytest

from broker.errors import ErrorCode
from broker.quorum.effects import AppendAsFollower, CommitEffect, Fail, Persist, Send, TruncateEffect
from broker.quorum.election_state import ElectionState
from broker.quorum.messages import BeginRequest, FetchRequest, OffsetAndEpoch, VoteRequest
from broker.quorum.roles import Candidate, Follower, Prospective, Unattached, Voted
from tests.broker.quorum.story import Story, entries

VOTERS = (1, 2, 3)


# --- the leader


@pytest.mark.conforms("K595-25", "K595-24", "K595-31")
def test_begin_quorum_epoch_makes_a_follower_that_fetches_from_its_log_end() -> None:
    story = Story(log=[1, 2])
    answer = story.begin(3, epoch=4)
    assert (answer.error, answer.leader_id, answer.epoch) == (ErrorCode.NONE, 3, 4)
    assert story.disk.election == ElectionState(4, 3, None, VOTERS)
    to, fetch = story.sent(FetchRequest)[-1]
    assert (to, fetch.epoch, fetch.fetch_from) == (3, 4, OffsetAndEpoch(2, 2))
    assert (fetch.cluster_id, fetch.replica_id) == ("cluster", 1)


@pytest.mark.conforms("K595-24", "K595-9")
def test_begin_quorum_epoch_is_refused_when_stale_or_in_conflict_with_the_leader() -> None:
    story = Story()
    story.follow(3, epoch=4)
    assert story.begin(2, epoch=3).error is ErrorCode.FENCED_LEADER_EPOCH
    assert story.begin(2, epoch=4).error is ErrorCode.INVALID_REQUEST
    assert story.begin(3, epoch=4).error is ErrorCode.NONE
    assert story.is_a(Follower, 4).leader_id == 3
    epoch = story.become_leader()
    assert story.begin(2, epoch).error is ErrorCode.INVALID_REQUEST


@pytest.mark.conforms("K595-24", "K595-42")
def test_begin_quorum_epoch_is_accepted_only_between_voters() -> None:
    assert Story().begin(9, epoch=4).error is ErrorCode.INCONSISTENT_VOTER_SET
    assert Story(node=9).begin(2, epoch=4).error is ErrorCode.INCONSISTENT_VOTER_SET
    assert Story().begin(1, epoch=4).error is ErrorCode.INVALID_REQUEST


@pytest.mark.conforms("K595-25", "K595-47", "K595-8")
def test_an_elected_leader_of_another_cluster_is_fatal() -> None:
    story = Story()
    assert story.begin(2, epoch=1, cluster="another").error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert len(story.done(Fail)) == 1
    story = Story()
    assert story.begin(2, epoch=1, cluster=None).error is ErrorCode.NONE
    story.fetch_refused(2, ErrorCode.INCONSISTENT_CLUSTER_ID, leader=None, epoch=0)
    assert len(story.done(Fail)) == 1
    assert story.node.deadline() is None


@pytest.mark.conforms("K595-47", "K595-48")
def test_a_voter_that_is_not_the_leader_may_belong_to_another_cluster() -> None:
    story = Story()
    voter = story.sent(FetchRequest)[0][0]
    story.fetch_refused(voter, ErrorCode.INCONSISTENT_CLUSTER_ID, leader=None, epoch=0)
    assert story.done(Fail) == []
    story.wait(0.03)
    assert len(story.sent(FetchRequest)) == 1, "it goes on asking"


@pytest.mark.conforms("K595-39", "K595-42")
def test_a_node_without_a_leader_queries_each_voter_and_follows_the_named_leader() -> None:
    story = Story(node=9)
    asked = []
    for _ in range(6):
        asked.append(story.sent(FetchRequest)[0][0])
        story.no_answer(asked[-1], FetchRequest)
        story.wait(0.5)
    assert sorted(asked[:3]) == sorted(asked[3:]) == [1, 2, 3]
    voter = story.sent(FetchRequest)[0][0]
    leader = next(node for node in VOTERS if node != voter)
    story.fetch_refused(voter, ErrorCode.FENCED_LEADER_EPOCH, leader=leader, epoch=6)
    assert story.is_a(Follower, 6).leader_id == leader
    assert story.sent(FetchRequest)[0][0] == leader


@pytest.mark.conforms("K595-42", "K595-39")
def test_an_observer_searches_for_a_leader_without_end_in_its_own_order() -> None:
    story = Story(node=9)
    asked_first = set()
    for _ in range(20):
        story.start()  # each start draws from another seed
        asked_first.add(story.sent(FetchRequest)[0][0])
        for _ in range(40):
            asked = story.sent(FetchRequest)
            assert len(asked) == 1
            story.no_answer(asked[0][0], FetchRequest)
            story.wait(0.6)
    assert asked_first == {1, 2, 3}


@pytest.mark.conforms("K595-48")
def test_a_starting_node_fetches_with_its_stored_state() -> None:
    story = Story(remembers=ElectionState(5, None, None, VOTERS), log=[4, 4])
    ((voter, fetch),) = story.sent(FetchRequest)
    assert voter in (2, 3)
    assert (fetch.epoch, fetch.cluster_id, fetch.fetch_from) == (5, "cluster", OffsetAndEpoch(4, 2))


@pytest.mark.conforms("K595-49")
def test_a_node_sends_no_cluster_id_until_it_is_committed() -> None:
    story = Story(node=9, cluster_id=None)
    ((voter, fetch),) = story.sent(FetchRequest)
    assert fetch.cluster_id is None
    story.node.learn_cluster_id("cluster")
    story.no_answer(voter, FetchRequest)
    story.wait(0.6)
    ((_, fetch),) = story.sent(FetchRequest)
    assert fetch.cluster_id == "cluster"


@pytest.mark.conforms("K595-39")
def test_a_fenced_follower_follows_the_new_leader_or_searches_for_it() -> None:
    story = Story()
    story.follow(2, epoch=4)
    story.fetch_refused(2, ErrorCode.FENCED_LEADER_EPOCH, leader=3, epoch=5)
    assert story.is_a(Follower, 5).leader_id == 3
    story.fetch_refused(3, ErrorCode.FENCED_LEADER_EPOCH, leader=None, epoch=6)
    story.is_a(Unattached, 6)
    assert story.disk.election == ElectionState(6, None, None, VOTERS)
    assert len(story.sent(FetchRequest)) >= 1


@pytest.mark.conforms("H18")
def test_a_node_does_not_lead_by_the_answer_of_another_node() -> None:
    story = Story()
    story.follow(2, epoch=4)
    story.fetch_refused(2, ErrorCode.FENCED_LEADER_EPOCH, leader=1, epoch=5)
    story.is_a(Unattached, 5)


@pytest.mark.conforms("K595-42", "K595-39")
def test_a_leader_that_does_not_answer_is_queried_in_turn_with_the_others() -> None:
    story = Story(node=9)
    story.no_answer(story.sent(FetchRequest)[0][0], FetchRequest)
    story.wait(0.03)
    story.fetch_refused(story.sent(FetchRequest)[0][0], ErrorCode.FENCED_LEADER_EPOCH, leader=2, epoch=4)
    asked = []
    for _ in range(6):
        asked.append(story.sent(FetchRequest)[-1][0])
        story.no_answer(asked[-1], FetchRequest)
        story.wait(0.6)
    assert asked[::2] == [2, 2, 2]
    assert 2 not in asked[1::2]


# --- copying


@pytest.mark.conforms("K595-7")
def test_fetched_records_are_on_disk_before_the_next_fetch_vouches_for_them() -> None:
    story = Story(slow_disk=True)
    story.follow(2, epoch=1)
    story.fetched([1, 1])
    assert isinstance(story.journal[-2], AppendAsFollower)
    story.wait(0.5)
    assert story.sent(FetchRequest) == [] or story.sent(FetchRequest)[-1][1].epoch == 0
    story.disk_catches_up()
    assert story.sent(FetchRequest)[-1][1].fetch_from == OffsetAndEpoch(1, 2)


@pytest.mark.conforms("K595-36", "K595-7")
def test_a_follower_commits_up_to_the_leaders_high_watermark_and_its_own_disk() -> None:
    story = Story(slow_disk=True)
    story.follow(2, epoch=1)
    story.fetched([1, 1, 1], high_watermark=2)
    assert story.node.high_watermark == 0
    story.disk_catches_up()
    assert story.done(CommitEffect) == [CommitEffect(2, 1)]
    story.fetched(high_watermark=9)
    assert story.done(CommitEffect) == [CommitEffect(2, 1), CommitEffect(3, 1)]
    story.fetched(high_watermark=-1)
    assert story.node.high_watermark == 3


@pytest.mark.conforms("K595-35")
def test_a_late_fetch_answer_is_not_appended() -> None:
    story = Story()
    story.follow(2, epoch=1)
    late = story.sent(FetchRequest)[-1][1]
    story.follow(3, epoch=2)
    story.requests.append((2, late))
    story.fetched([1], leader=2)
    assert story.epochs_in_log == []


@pytest.mark.conforms("K595-12")
def test_every_answer_of_the_leader_puts_the_election_off() -> None:
    story = Story()
    story.follow(2, epoch=1)
    for _ in range(5):
        story.wait(0.9)
        story.fetched()
    story.is_a(Follower)
    story.wait(1.31)
    story.is_a(Prospective)


# --- truncating


@pytest.mark.conforms("K595-40", "K595-37", "H25")
@pytest.mark.parametrize(
    ("log", "diverging", "kept"),
    [
        ([1, 1, 2, 2], (2, 3), [1, 1, 2]),  # the same epoch, longer than the leader's
        ([1, 1, 2, 2], (1, 2), [1, 1]),
        ([1, 1, 2, 2], (1, 1), [1]),
        ([1, 1, 3, 3], (2, 9), [1, 1]),  # the leader's epoch 2 is unknown here: every epoch above it goes
        ([2, 2], (1, 5), []),
        ([2, 2], (-1, 0), []),
    ],
)
def test_a_divergence_is_cut_where_the_leaders_epoch_ends_or_ours_does(
    log: list[int], diverging: tuple[int, int], kept: list[int]
) -> None:
    story = Story(log=log)
    story.follow(2, epoch=5)
    story.fetched(diverging=diverging)
    assert story.epochs_in_log == kept
    assert story.sent(FetchRequest)[-1][1].fetch_from == OffsetAndEpoch(kept[-1] if kept else -1, len(kept))


@pytest.mark.conforms("K595-37", "K595-40")
def test_logs_that_have_parted_more_than_once_are_reconciled_in_several_rounds() -> None:
    leader = Story(node=2, log=[1, 1, 3, 3, 5], remembers=ElectionState(6))
    epoch = leader.become_leader()
    follower = Story(log=[1, 1, 1, 2, 2, 4, 4])
    follower.follow(2, epoch)
    answers: list[OffsetAndEpoch | None] = []
    while follower.epochs_in_log != leader.epochs_in_log:
        assert len(answers) < 9, "they do not come together"
        asked = follower.sent(FetchRequest)[-1][1].fetch_from
        answer = leader.fetch(1, epoch, asked.offset, asked.epoch)
        assert answer is not None
        parted = answer.diverging
        answers.append(parted)
        if parted is None:
            follower.fetched([record_epoch for record_epoch, _ in entries(answer)])
        else:
            follower.fetched(diverging=(parted.epoch, parted.offset))
    assert answers == [OffsetAndEpoch(3, 4), OffsetAndEpoch(1, 2), None]


@pytest.mark.conforms("H7", "K595-40")
def test_the_high_watermark_of_a_divergence_is_not_for_this_log() -> None:
    story = Story(log=[1, 1, 1])
    story.follow(2, epoch=5)
    story.fetched(diverging=(1, 1), high_watermark=3)
    assert story.node.high_watermark == 0


@pytest.mark.conforms("H25", "K595-40")
def test_a_truncation_below_the_high_watermark_is_refused() -> None:
    story = Story()
    story.follow(2, epoch=1)
    story.fetched([1, 1, 1], high_watermark=2)
    story.follow(3, epoch=2)
    story.fetched(diverging=(1, 1))
    assert story.done(TruncateEffect) == []
    assert len(story.done(Fail)) == 1
    assert story.epochs_in_log == [1, 1, 1]


# --- a leader whose process has ended


@pytest.mark.conforms("K595-12")
def test_a_leader_that_refuses_connections_is_replaced_without_waiting_for_the_fetch_timeout() -> None:
    story = Story()
    story.follow(2, epoch=4)
    story.fetched()
    story.no_answer(2, FetchRequest, refused=True)
    story.wait(story.settings.election_backoff_max_s)
    story.is_a(Prospective, 4)


def test_a_leader_that_only_keeps_silent_has_the_whole_fetch_timeout() -> None:
    story = Story()
    story.follow(2, epoch=4)
    story.fetched()
    story.no_answer(2, FetchRequest)
    story.wait(story.settings.election_backoff_max_s)
    story.is_a(Follower, 4)


# --- EndQuorumEpoch


@pytest.mark.conforms("K595-12", "K595-29")
def test_the_first_successor_starts_an_election_immediately() -> None:
    story = Story()
    story.follow(2, epoch=4)
    story.fetched()
    assert story.end(2, epoch=4, successors=(1, 3)).error is ErrorCode.NONE
    story.is_a(Prospective, 4)


@pytest.mark.conforms("K595-29")
@pytest.mark.parametrize(("position", "delay"), [(1, 0.02), (2, 0.04), (3, 0.08)])
def test_later_successors_wait_their_turn(position: int, delay: float) -> None:
    story = Story(voters=(1, 2, 3, 4, 5))
    story.follow(2, epoch=4)
    story.fetched()
    successors = [3, 4, 5]
    successors.insert(position, 1)
    story.end(2, epoch=4, successors=successors)
    assert story.vote_request(3, epoch=4, pre_vote=True).granted, "it helps those before it"
    story.wait(delay * 0.9)
    story.is_a(Follower)
    story.wait(delay * 0.2)
    story.is_a(Prospective)


@pytest.mark.conforms("K595-30")
def test_end_is_refused_when_stale_unknown_or_not_about_us() -> None:
    story = Story()
    story.follow(2, epoch=4)
    assert story.end(2, epoch=3).error is ErrorCode.FENCED_LEADER_EPOCH
    assert story.end(2, epoch=5).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert story.end(3, epoch=4).error is ErrorCode.INVALID_REQUEST
    assert story.end(9, epoch=4).error is ErrorCode.INCONSISTENT_VOTER_SET
    assert story.end(2, epoch=4, successors=(3,)).error is ErrorCode.INCONSISTENT_VOTER_SET
    story.is_a(Follower, 4)


@pytest.mark.conforms("K595-27", "K595-12")
def test_a_resigning_candidate_shortens_the_wait_of_its_voters() -> None:
    story = Story()
    assert story.vote_request(2, epoch=4).granted
    assert story.end(None, epoch=4, successors=(1, 3)).error is ErrorCode.NONE
    story.is_a(Prospective, 4)


@pytest.mark.conforms("K595-31")
def test_a_successor_persists_its_vote_before_it_collects_others() -> None:
    story = Story()
    story.follow(2, epoch=4)
    story.end(2, epoch=4)
    story.vote(3)
    story.is_a(Candidate, 5)
    assert story.disk.election == ElectionState(5, None, 1, VOTERS)
    votes = [(to, request) for to, request in story.sent(VoteRequest) if not request.pre_vote]
    assert [request.epoch for _, request in votes] == [5, 5]
    assert story.journal.index(Persist(story.disk.election)) < story.journal.index(Send(*votes[0]))


def test_a_voted_node_follows_the_leader_it_elected() -> None:
    story = Story()
    story.vote_request(2, epoch=4)
    story.is_a(Voted, 4)
    assert story.follow(2, epoch=4).voted_id == 2
    assert story.sent(BeginRequest) == []
