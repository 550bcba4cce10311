"""The table of transitions, read aloud."""

import random
from itertools import pairwise

import pytest

from broker.quorum.core import TO_A_LATER_EPOCH, WITHIN_AN_EPOCH, IllegalTransitionError, check_transition
from broker.quorum.request_pacing import FetchLoop, Outreach
from broker.quorum.roles import (
    Ballot,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    Voted,
)
from broker.quorum.settings import QuorumSettings
from tests.broker.quorum.story import Story

ME = 1
SETTINGS = QuorumSettings(ME, None, (1, 2, 3))


def role(kind: type[Role], epoch: int, *, vote: int | None = None, leader: int | None = None) -> Role:
    """A role of some kind; `vote` and `leader` where the kind has a choice."""
    loop = FetchLoop(None, SETTINGS, random.Random(0))
    outreach = Outreach((), SETTINGS)
    ballot = Ballot((1, 2, 3))
    match kind.__name__:
        case "Unattached":
            return Unattached(epoch, loop, 0.0)
        case "Voted":
            return Voted(epoch, vote or ME, loop, 0.0)
        case "Prospective":
            return Prospective(epoch, ballot, outreach, 0.0, leader, vote)
        case "Candidate":
            return Candidate(epoch, ME, ballot, outreach, 0.0)
        case "Follower":
            return Follower(epoch, leader or 2, vote, loop, 0.0)
        case "Resigned":
            return Resigned(epoch, ME, (), outreach, 0.0)
        case _:
            return Leader(epoch, ME, 0, {}, outreach, None)


def allowed(old: Role, new: Role, *, is_voter: bool = True) -> bool:
    try:
        check_transition(old, new, is_voter=is_voter)
    except IllegalTransitionError:
        return False
    return True


KINDS = list(WITHIN_AN_EPOCH)


@pytest.mark.parametrize("old", KINDS)
@pytest.mark.parametrize("new", KINDS)
def test_no_edge_is_allowed_that_is_not_in_the_table(old: type[Role], new: type[Role]) -> None:
    if new not in WITHIN_AN_EPOCH[old]:
        assert not allowed(role(old, 5), role(new, 5))
    if new not in TO_A_LATER_EPOCH[old]:
        assert not allowed(role(old, 5), role(new, 6))
    assert not allowed(role(old, 5), role(new, 4))


def test_the_way_to_power_and_back() -> None:
    way = [
        role(Unattached, 5),
        role(Prospective, 5),
        role(Candidate, 6),
        role(Leader, 6),
        role(Resigned, 6),
        role(Unattached, 7),
        role(Voted, 7, vote=2),
        role(Follower, 7, vote=2, leader=2),
        role(Prospective, 7, vote=2, leader=2),
        role(Follower, 7, vote=2, leader=2),
    ]
    assert all(allowed(old, new) for old, new in pairwise(way))


@pytest.mark.conforms("K595-14", "H18")
def test_vote_and_leader_are_fixed_within_an_epoch() -> None:
    assert not allowed(role(Voted, 5, vote=2), role(Prospective, 5))
    assert not allowed(role(Voted, 5, vote=2), role(Follower, 5, vote=3))
    assert not allowed(role(Prospective, 5, leader=2), role(Follower, 5, leader=3))
    assert not allowed(role(Prospective, 5, leader=2), role(Unattached, 5))
    assert not allowed(role(Resigned, 5), role(Leader, 5))


def test_only_a_candidate_becomes_leader_and_in_the_next_epoch() -> None:
    assert not any(
        allowed(role(kind, 5), role(Leader, epoch)) for kind in KINDS if kind is not Candidate for epoch in (5, 6)
    )
    assert not allowed(role(Prospective, 5), role(Candidate, 7))


@pytest.mark.conforms("K595-42")
def test_observers_find_leaders_and_follow_and_never_start_an_election() -> None:
    assert allowed(role(Unattached, 5), role(Follower, 5), is_voter=False)
    assert allowed(role(Unattached, 5), role(Voted, 6, vote=2), is_voter=False)  # a newer log has made it a voter
    assert not allowed(role(Unattached, 5), role(Prospective, 5), is_voter=False)


def test_a_refused_transition_leaves_the_role_unchanged() -> None:
    story = Story()
    core = story.node._core
    before = core.role
    with pytest.raises(IllegalTransitionError, match="unattached of epoch 0 -> leader of epoch 0"):
        core.transition_durably(role(Leader, 0))
    assert core.role is before
    assert core.take_effects() == []
