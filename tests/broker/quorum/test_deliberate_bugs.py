"""The mutants of the quorum's state machine: each breaks its rule, and without it the rule holds."""

import pytest

from broker.quorum.effects import Fail
from broker.quorum.messages import VoteRequest
from broker.quorum.roles import Candidate, Leader, Prospective
from tests.broker.quorum.story import Story

OFF_AND_ON = (False, True)


def mutated(name: str, on: bool) -> tuple[str, ...]:
    return (name,) if on else ()


@pytest.mark.conforms("K595-18")
@pytest.mark.kills("vote_ignores_log")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_only_the_mutant_votes_for_a_shorter_log(on: bool) -> None:
    story = Story(log=[1, 1], mutants=mutated("vote_ignores_log", on))
    assert story.vote_request(2, 5, log=(1, 1)).granted is on


@pytest.mark.conforms("K595-18")
@pytest.mark.kills("vote_length_only")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_only_the_mutant_votes_for_a_longer_log_of_an_old_epoch(on: bool) -> None:
    story = Story(log=[1, 3], mutants=mutated("vote_length_only", on))
    assert story.vote_request(2, 5, log=(2, 9)).granted is on


@pytest.mark.conforms("K595-21")
@pytest.mark.kills("late_vote_counted")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_only_the_mutant_counts_a_grant_of_an_ended_election(on: bool) -> None:
    story = Story(voters=(1, 2, 3, 4, 5), mutants=mutated("late_vote_counted", on))
    story.become_candidate()
    late = next(request for to, request in story.sent(VoteRequest) if to == 2 and not request.pre_vote)
    story.wait(2.0)
    epoch = story.become_candidate()
    story.vote(3)
    story.requests.append((2, late))
    story.vote(2, epoch=late.epoch)
    assert story.role.epoch == epoch > late.epoch
    assert isinstance(story.role, Leader if on else Candidate)


@pytest.mark.conforms("K595-21")
@pytest.mark.kills("minority_wins")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_one_vote_less_than_a_majority_elects_only_where_a_minority_wins(on: bool) -> None:
    story = Story(voters=(1, 2, 3, 4), mutants=mutated("minority_wins", on))
    story.become_candidate()
    story.vote(2)
    assert isinstance(story.role, Leader) is on


@pytest.mark.conforms("K595-21")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_a_minority_of_pre_votes_makes_no_candidate(on: bool) -> None:
    story = Story(voters=(1, 2, 3, 4), mutants=mutated("minority_wins", on))
    for _ in range(60):
        if not story.sent(VoteRequest):
            story.wait(0.05)
    story.vote(2)
    assert isinstance(story.role, Prospective)


@pytest.mark.conforms("K595-36")
@pytest.mark.kills("commit_old_epoch")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_only_the_mutant_commits_records_of_earlier_epochs_alone(on: bool) -> None:
    story = Story(log=[1, 1], mutants=mutated("commit_old_epoch", on))
    epoch = story.become_leader()
    story.fetch(2, epoch, 2, 1)
    assert story.node.high_watermark == (2 if on else 0)


@pytest.mark.conforms("K595-40", "H25")
@pytest.mark.kills("truncate_below_hw")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_only_the_mutant_truncates_committed_records(on: bool) -> None:
    story = Story(mutants=mutated("truncate_below_hw", on))
    story.follow(2, 1)
    story.fetched([1, 1, 1])
    story.fetched(high_watermark=3)
    assert story.node.high_watermark == 3
    story.fetched(diverging=(1, 1))
    assert story.log.log_end_offset == (1 if on else 3)
    assert bool(story.done(Fail)) is not on


@pytest.mark.conforms("H25")
@pytest.mark.kills("diverging_strictly_less")
@pytest.mark.parametrize("on", OFF_AND_ON)
def test_only_the_mutant_reports_divergence_within_a_shared_epoch(on: bool) -> None:
    story = Story(log=[1, 1, 2, 2], mutants=mutated("diverging_strictly_less", on))
    epoch = story.become_leader()
    answer = story.fetch(2, epoch, 2, 1)
    assert answer is not None
    assert (answer.diverging is not None) is on
