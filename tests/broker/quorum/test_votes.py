"""Stories of elections: when a node becomes a candidate, which candidate gets a vote, and the order of disk writes and
messages."""

import pytest

from broker.clock_rates import PACE
from broker.errors import ErrorCode
from broker.quorum.effects import AppendLeaderChange, Persist, Reply, Send
from broker.quorum.election_state import ElectionState
from broker.quorum.messages import BeginRequest, EndRequest, FetchRequest, Predecessor, VoteRequest, VoteResponse
from broker.quorum.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached, Voted
from tests.broker.quorum.story import Story

VOTERS = (1, 2, 3)


# --- what a leader knows of earlier leaders


@pytest.mark.conforms("H31")
def test_a_leader_knows_until_when_its_voters_heard_an_earlier_leader() -> None:
    story = Story()
    story.follow(2, epoch=3)
    story.wait(0.1)
    story.fetched()
    own = story.now
    epoch = story.become_candidate()
    assert story.now > own + 1.0
    story.answer(3, VoteRequest, VoteResponse(ErrorCode.NONE, None, epoch, True, 0.5))
    later = story.now - 0.5 / PACE
    assert story.is_a(Leader).predecessor == Predecessor(2, later), "voter 3 heard one later, by the fastest clock"


@pytest.mark.conforms("H31")
def test_a_vote_states_for_how_long_no_leader_was_heard() -> None:
    story = Story()
    story.wait(0.25)
    assert story.vote_request(2, epoch=1).silence_s == pytest.approx(0.25), "an earlier process may have heard one"
    story.follow(2, epoch=1)
    story.wait(0.1)
    story.fetched()
    story.wait(0.2)
    assert story.vote_request(3, epoch=2).silence_s == pytest.approx(0.2)


@pytest.mark.conforms("H31")
def test_a_leader_is_silent_only_since_its_own_end() -> None:
    story = Story()
    epoch = story.become_leader()
    story.wait(0.3)
    assert story.vote_request(2, epoch + 1, log=(epoch, 1)).silence_s == 0.0
    story.wait(0.1)
    assert story.vote_request(2, epoch + 1, log=(epoch, 1)).silence_s == pytest.approx(0.1)


# --- standing


@pytest.mark.conforms("K595-12", "K595-15", "K595-48")
def test_a_voter_without_a_leader_sends_pre_votes_and_then_starts_an_election() -> None:
    story = Story()
    story.is_a(Unattached, 0)
    story.wait(0.69)
    assert {to for to, _ in story.sent(FetchRequest)} <= {2, 3}
    story.is_a(Unattached)
    story.wait(0.31)
    story.is_a(Prospective, 0)


@pytest.mark.conforms("K595-48", "K595-15")
def test_an_election_follows_within_the_backoff_when_a_majority_has_no_leader() -> None:
    story = Story()
    voter = story.sent(FetchRequest)[0][0]
    story.fetch_refused(voter, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=None, epoch=0)
    story.wait(0.31)
    story.is_a(Prospective)


@pytest.mark.conforms("K595-12", "K595-15")
def test_a_follower_starts_an_election_after_the_fetch_timeout() -> None:
    story = Story()
    story.follow(2, epoch=3)
    story.wait(0.99)
    story.is_a(Follower)
    story.wait(0.32)
    story.is_a(Prospective, 3)


@pytest.mark.conforms("K595-15", "K595-3")
def test_the_delay_before_an_election_is_random_and_bounded() -> None:
    delays: list[float] = []
    for _ in range(20):
        story = Story()
        for _ in delays:
            story.start()  # each start draws from another seed
        story.follow(2, epoch=3)
        role = story.is_a(Follower)
        assert role.fetch_deadline is not None
        story.wait(role.fetch_deadline - story.now)
        assert role.election_at is not None
        delays.append(role.election_at - story.now)
    assert all(0 <= delay <= 0.3 for delay in delays)
    assert len(set(delays)) == len(delays)


@pytest.mark.conforms("H20")
def test_pre_votes_leave_epoch_and_disk_unchanged() -> None:
    story = Story()
    story.wait(1.1)
    story.is_a(Prospective, 0)
    assert all(request.pre_vote for _, request in story.sent(VoteRequest))
    assert story.disk.election == ElectionState(0, None, None, VOTERS)


@pytest.mark.conforms("K595-13")
def test_the_self_vote_is_on_disk_before_vote_requests_are_sent() -> None:
    story = Story()
    epoch = story.become_candidate()
    assert epoch == 1
    assert story.disk.election == ElectionState(1, None, 1, VOTERS)
    votes = [effect for effect in story.done(Send) if isinstance(effect.request, VoteRequest)]  # type: ignore[union-attr]
    real = next(effect for effect in votes if not effect.request.pre_vote)  # type: ignore[union-attr]
    assert story.journal.index(Persist(story.disk.election)) < story.journal.index(real)
    assert [to for to, request in story.sent(VoteRequest) if not request.pre_vote] == [2, 3]


@pytest.mark.conforms("K595-21")
def test_a_majority_elects_a_leader_that_persists_appends_and_announces() -> None:
    story = Story(log=[1, 1])
    epoch = story.become_leader()
    assert story.disk.election == ElectionState(epoch, 1, 1, VOTERS)
    change = AppendLeaderChange(epoch, 1, VOTERS, (1, 2))
    begins = [e for e in story.done(Send) if isinstance(e.request, BeginRequest)]  # type: ignore[union-attr]
    order = [story.journal.index(effect) for effect in (Persist(story.disk.election), change, begins[0])]
    assert order == sorted(order)
    assert story.epochs_in_log == [1, 1, epoch]
    assert [to for to, _ in story.sent(BeginRequest)] == [2, 3]


@pytest.mark.conforms("K595-21")
def test_an_answer_of_an_ended_election_is_ignored() -> None:
    story = Story(voters=(1, 2, 3, 4, 5))
    story.become_candidate()
    late = next(request for to, request in story.sent(VoteRequest) if to == 2 and not request.pre_vote)
    story.wait(2.0)
    epoch = story.become_candidate()
    assert epoch > late.epoch
    story.vote(3)
    story.requests.append((2, late))
    story.vote(2, epoch=late.epoch)
    story.is_a(Candidate, epoch)


@pytest.mark.conforms("K595-21")
def test_a_duplicated_grant_counts_once() -> None:
    story = Story(voters=(1, 2, 3, 4, 5))
    story.become_candidate()
    request = next(request for to, request in story.sent(VoteRequest) if to == 2 and not request.pre_vote)
    story.vote(2)
    story.requests.append((2, request))
    story.vote(2)
    story.is_a(Candidate)
    story.vote(3)
    story.is_a(Leader)


@pytest.mark.conforms("K595-22")
def test_a_candidate_that_cannot_win_backs_off_at_once_and_keeps_its_vote() -> None:
    story = Story()
    epoch = story.become_candidate()
    story.vote(2, granted=False)
    story.is_a(Candidate)
    story.vote(3, granted=False)
    voted = story.is_a(Voted, epoch)
    assert voted.voted_id == 1
    assert voted.election_at is not None
    assert voted.election_at <= story.now + 0.3


@pytest.mark.conforms("K595-22", "K595-15")
def test_a_candidate_without_answers_backs_off_after_the_election_timeout_and_tries_again() -> None:
    story = Story()
    epoch = story.become_candidate()
    give_up_at = story.is_a(Candidate).give_up_at
    assert 0.7 <= give_up_at - story.now <= 1.0
    story.wait(give_up_at - story.now)
    story.is_a(Voted, epoch)
    assert story.become_candidate() == epoch + 1


@pytest.mark.conforms("K595-22")
def test_a_rejection_cuts_the_wait_for_voters_that_may_be_dead() -> None:
    story = Story()
    epoch = story.become_candidate()
    story.vote(2, granted=False)
    story.wait(0.31)
    story.is_a(Voted, epoch)


@pytest.mark.conforms("K595-3", "K595-2")
def test_a_silent_voter_gets_repeated_requests_with_backoff() -> None:
    story = Story(election_timeout_s=10.0)
    story.become_candidate()
    gaps = []
    for _ in range(7):
        asked = story.now
        story.no_answer(2, VoteRequest)
        while not [to for to, _ in story.sent(VoteRequest) if to == 2]:
            story.wait(0.01)
        gaps.append(round(story.now - asked, 2))
    assert gaps == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]


@pytest.mark.conforms("H20", "K595-43")
def test_an_isolated_node_keeps_its_epoch_and_repeats_pre_votes() -> None:
    story = Story()
    story.follow(2, epoch=3)
    for _ in range(20):
        story.wait(0.5)
        for to, request in list(story.requests):
            story.no_answer(to, type(request))
    assert story.role.epoch == 3
    assert story.role.leader_id == 2
    assert story.disk.election.epoch == 3
    story.wait(1.5)
    assert story.sent(VoteRequest), "it asks for votes again and again"


def lost_sight_of_its_leader() -> Story:
    story = Story()
    story.follow(2, epoch=3)
    story.wait(1.31)
    story.is_a(Prospective, 3)
    return story


@pytest.mark.conforms("K595-12", "H20")
def test_a_leader_that_refuses_a_pre_vote_has_the_whole_fetch_timeout_again() -> None:
    story = lost_sight_of_its_leader()
    story.vote(2, granted=False, leader=2)
    heard_at = story.now
    story.vote(3, granted=False, leader=2)
    assert story.is_a(Follower, 3).fetch_deadline == heard_at + 1.0
    story.wait(0.99)
    story.is_a(Follower, 3)
    story.wait(0.32)
    story.is_a(Prospective, 3)


@pytest.mark.conforms("K595-12", "H20")
def test_a_leaders_refusal_of_a_pre_vote_counts_when_the_third_voter_is_dead() -> None:
    story = lost_sight_of_its_leader()
    story.vote(2, granted=False, leader=2)
    heard_at = story.now
    story.wait(0.31)
    assert story.is_a(Follower, 3).fetch_deadline == heard_at + 1.0, "from when it was heard, not from now"


@pytest.mark.conforms("K595-12", "K595-22")
@pytest.mark.parametrize("resigned", [False, True], ids=["the leader does not answer", "it leads no more"])
def test_a_pre_vote_refused_only_by_others_is_repeated_within_the_backoff(resigned: bool) -> None:
    story = lost_sight_of_its_leader()
    story.vote(3, granted=False, leader=2)
    if resigned:
        story.vote(2, granted=False, leader=None)
    else:
        story.wait(0.31)
    story.is_a(Follower, 3)
    story.requests.clear()
    story.wait(0.31)
    assert story.sent(VoteRequest)


# --- being asked


@pytest.mark.conforms("K595-14", "K595-16", "K595-19")
def test_a_vote_is_on_disk_before_the_grant_is_sent_and_never_changes() -> None:
    story = Story()
    assert story.vote_request(2, epoch=1).granted
    reply = next(effect for effect in story.done(Reply))
    assert story.journal.index(Persist(ElectionState(1, None, 2, VOTERS))) < story.journal.index(reply)
    assert not story.vote_request(3, epoch=1).granted
    assert story.vote_request(2, epoch=1).granted
    story.lose_power()
    assert not story.vote_request(3, epoch=1).granted
    assert story.vote_request(2, epoch=1).granted


@pytest.mark.conforms("K595-14")
def test_a_vote_left_unsynced_by_a_crash_is_written_again_before_it_is_repeated() -> None:
    story = Story(remembers=ElectionState(4, None, 2, VOTERS))
    assert story.journal[0] == Persist(ElectionState(4, None, 2, VOTERS))


@pytest.mark.conforms("K595-18")
@pytest.mark.parametrize(
    ("candidate", "granted"),
    [((3, 1), True), ((2, 4), True), ((2, 3), True), ((2, 2), False), ((1, 9), False), ((-1, 0), False)],
)
def test_a_vote_needs_a_log_that_ends_as_late(candidate: tuple[int, int], granted: bool) -> None:
    assert Story(log=[1, 2, 2]).vote_request(2, epoch=5, log=candidate).granted is granted
    assert Story(log=[1, 2, 2]).vote_request(2, epoch=5, log=candidate, pre_vote=True).granted is granted


@pytest.mark.conforms("K595-16", "K595-9", "K595-11")
def test_a_stale_candidate_gets_the_epoch_and_the_leader() -> None:
    story = Story()
    story.follow(3, epoch=7)
    answer = story.vote_request(2, epoch=6)
    assert (answer.error, answer.granted) == (ErrorCode.FENCED_LEADER_EPOCH, False)
    assert (answer.leader_id, answer.epoch) == (3, 7)


@pytest.mark.conforms("K595-19")
def test_a_rejection_adopts_the_epoch_durably_too() -> None:
    story = Story(log=[4])
    answer = story.vote_request(2, epoch=6)
    assert (answer.granted, answer.epoch) == (False, 6)
    assert story.disk.election == ElectionState(6, None, None, VOTERS)


@pytest.mark.conforms("K595-17", "K595-42", "H30")
@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_candidate_outside_of_the_voters_is_refused_and_its_epoch_is_not_adopted(pre_vote: bool) -> None:
    story = Story()
    epoch = story.node.role.epoch
    answer = story.vote_request(9, epoch=2**31 - 2, pre_vote=pre_vote)
    assert (answer.error, answer.granted, answer.epoch) == (ErrorCode.INCONSISTENT_VOTER_SET, False, epoch)
    assert story.node.role.epoch == epoch
    assert story.vote_request(2, epoch=epoch + 1).granted, "elections go on"


@pytest.mark.conforms("H30")
def test_the_largest_epoch_is_refused_from_every_node() -> None:
    story = Story()
    epoch, last = story.node.role.epoch, 2**31 - 1
    assert story.vote_request(2, epoch=last).error is ErrorCode.INVALID_REQUEST
    assert story.begin(2, epoch=last).error is ErrorCode.INVALID_REQUEST
    assert story.end(2, epoch=last).error is ErrorCode.INVALID_REQUEST
    assert story.node.role.epoch == epoch
    own = story.become_candidate()
    story.vote(2, granted=False, leader=None, epoch=last)
    story.is_a(Candidate, own)


@pytest.mark.conforms("K595-20")
def test_a_candidate_steps_down_for_a_higher_epoch_and_may_grant() -> None:
    story = Story()
    epoch = story.become_candidate()
    assert not story.vote_request(2, epoch=epoch).granted
    assert story.vote_request(2, epoch=epoch + 1).granted
    story.is_a(Voted, epoch + 1)


@pytest.mark.conforms("K595-20", "K595-26")
def test_a_candidate_follows_the_leader_of_its_epoch_and_keeps_its_vote() -> None:
    story = Story()
    epoch = story.become_candidate()
    story.vote(2, granted=False, leader=3)
    follower = story.is_a(Follower, epoch)
    assert (follower.leader_id, follower.voted_id) == (3, 1)
    assert story.disk.election == ElectionState(epoch, 3, 1, VOTERS)


@pytest.mark.conforms("H20")
def test_the_vote_survives_learning_of_the_leader_and_a_restart() -> None:
    story = Story()
    assert story.vote_request(3, epoch=4).granted
    story.follow(2, epoch=4)
    assert story.disk.election == ElectionState(4, 2, 3, VOTERS)
    story.lose_power()
    assert not story.vote_request(3, epoch=4).granted


@pytest.mark.conforms("H20")
def test_a_follower_with_a_live_leader_refuses_pre_votes() -> None:
    story = Story()
    story.follow(2, epoch=4)
    assert story.vote_request(3, epoch=4, pre_vote=True).granted, "it has not heard from the leader yet"
    story.fetched()
    assert not story.vote_request(3, epoch=4, pre_vote=True).granted
    story.wait(1.0)
    assert story.vote_request(3, epoch=4, pre_vote=True).granted, "the fetch timeout has passed"


@pytest.mark.conforms("H20")
def test_a_leader_refuses_pre_votes() -> None:
    story = Story()
    epoch = story.become_leader()
    assert not story.vote_request(2, epoch=epoch, log=(epoch, 9), pre_vote=True).granted
    story.is_a(Leader, epoch)


@pytest.mark.conforms("K595-34", "K595-47", "K595-16")
def test_a_candidate_of_another_cluster_is_only_rejected_and_one_without_cluster_id_passes() -> None:
    story = Story()
    assert story.vote_request(2, epoch=9, cluster="another").error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert story.role.epoch == 0
    assert story.vote_request(2, epoch=9, cluster=None).granted


@pytest.mark.conforms("K595-47", "K595-48")
def test_a_candidate_continues_when_a_voter_names_another_cluster() -> None:
    story = Story()
    story.become_candidate()
    story.answer(2, VoteRequest, VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, None, 0, False))
    story.is_a(Candidate)
    story.vote(3)
    story.is_a(Leader)


@pytest.mark.conforms("K595-42")
def test_an_observer_does_not_vote_or_start_elections() -> None:
    story = Story(node=9)
    answer = story.vote_request(2, epoch=5)
    assert (answer.error, answer.granted) == (ErrorCode.INCONSISTENT_VOTER_SET, False)
    assert story.role.epoch == 0
    story.wait(60.0)
    story.is_a(Unattached, 0)
    assert story.sent(VoteRequest) == []


# --- starting


@pytest.mark.conforms("H18", "K595-27")
def test_a_restarted_leader_resigns_and_announces_it_and_continues_in_the_next_epoch() -> None:
    story = Story(remembers=ElectionState(5, 1, 1, VOTERS), log=[5])
    story.is_a(Resigned, 5)
    assert story.role.leader_id is None
    assert [to for to, _ in story.sent(EndRequest)] == [2, 3]
    assert not story.vote_request(2, epoch=5, log=(5, 9)).granted
    assert story.disk.election == ElectionState(5, 1, 1, VOTERS)
    story.wait(1.01)
    assert story.role.epoch == 6
    assert story.become_leader() == 7
    assert story.epochs_in_log == [5, 7]


@pytest.mark.conforms("H18")
def test_a_restarted_candidate_starts_an_election_in_a_new_epoch() -> None:
    story = Story(remembers=ElectionState(5, None, 1, VOTERS))
    story.is_a(Voted, 5)
    assert story.become_candidate() == 6


def test_a_restarted_follower_fetches_from_its_stored_leader() -> None:
    story = Story(remembers=ElectionState(5, 2, 3, VOTERS))
    assert story.is_a(Follower, 5).voted_id == 3
    assert [to for to, _ in story.sent(FetchRequest)] == [2]


def test_a_log_that_is_ahead_of_a_lost_quorum_state_file_sets_the_epoch() -> None:
    story = Story(remembers=ElectionState(), log=[1, 4])
    story.is_a(Unattached, 4)
    assert story.disk.election.epoch == 4


@pytest.mark.conforms("K595-12", "K595-21")
def test_a_single_voter_leads_as_soon_as_it_starts() -> None:
    story = Story(voters=(1,))
    story.is_a(Leader, 1)
    assert story.node.high_watermark == 1
    story.lose_power()
    story.is_a(Leader, 3)
