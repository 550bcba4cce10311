"""Hypothetical requests to the members of a quorum: each refuses what it must refuse, except for a bug."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.quorum.core import Core
from broker.quorum.effects import Flush, Persist, TruncateEffect
from broker.quorum.leading import VoterChanges
from broker.quorum.messages import VoteRequest
from broker.quorum.raft_node import Following, RaftNode, Votes
from broker.quorum.request_pacing import Outreach
from broker.quorum.roles import Ballot, Follower, Leader, Role
from broker.quorum.settings import QuorumSettings
from simulator.cluster import SimulatedCluster
from simulator.oracles.findings import WOULD_OBEY
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC

UNREACHED = "tier_above_hw"
"""A mutant whose branch these stories do not reach: a cluster with a mutant may have findings."""


def sentences(*mutants: str) -> list[str]:
    """The findings of a cluster of three voters whose first leader is killed and returns."""
    with SimulatedCluster(3, properties=QUICK, mutants=mutants) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC)
            first = str(cluster.controller())
            cluster.kill(first)
            await cluster.until(lambda: cluster.controller() not in (None, first))
            cluster.start(first)
            await cluster.ready()

        cluster.run(story())
        assert cluster.watch.findings.checks[WOULD_OBEY] > 50
        return [finding.sentence for finding in cluster.watch.findings.found if finding.oracle == WOULD_OBEY]


@pytest.mark.conforms(
    *(f"K595-{number}" for number in (14, 16, 18, 21, 22, 23, 24, 25, 26, 27, 28, 29, 34, 35, 36, 38, 39, 42, 47)),
    *("H7", "H18", "H20", "H22", "H24", "H30"),
)
def test_the_members_of_a_quorum_keep_the_rules_in_all_their_roles() -> None:
    assert sentences() == []


@pytest.mark.parametrize(
    ("mutant", "text"),
    [
        pytest.param("vote_ignores_log", "a vote of", marks=pytest.mark.kills("vote_ignores_log")),
        pytest.param("vote_length_only", "a vote of", marks=pytest.mark.kills("vote_length_only")),
        pytest.param("voter_key_ignored", "its disk is another one", marks=pytest.mark.kills("voter_key_ignored")),
        pytest.param("fetch_no_epoch_check", "(K595-35)", marks=pytest.mark.kills("fetch_no_epoch_check")),
        pytest.param("minority_wins", "with 1 of 3 votes", marks=pytest.mark.kills("minority_wins")),
    ],
)
def test_a_member_with_a_known_bug_is_found(mutant: str, text: str) -> None:
    assert any(text in sentence for sentence in sentences(mutant))


def without_vote(decide: Callable[..., Any]) -> Callable[..., Any]:
    """A voter that refuses a repeated request of the candidate that it has voted for."""

    def changed(votes: Votes, now: float, request: VoteRequest, up_to_date: bool) -> bool:
        role = votes._core.role
        is_repeated = (role.epoch, role.voted_id) == (request.epoch, request.candidate_id)
        return not is_repeated and bool(decide(votes, now, request, up_to_date))

    return changed


def without_wait(due: Callable[..., Any]) -> Callable[..., Any]:
    """A leader that takes the last change of the voters for committed."""

    def changed(changes: VoterChanges, now: float, role: Leader) -> Any:
        history = changes._core.history
        sets = list(history._sets)
        history._sets[:] = [(0, voters) for _, voters in sets]
        try:
            return due(changes, now, role)
        finally:
            history._sets[:] = sets

    return changed


@pytest.mark.parametrize(
    ("owner", "name", "change", "text"),
    [
        pytest.param(
            Role, "may_vote_for", lambda _: lambda *_: True, "a vote of", id="a second vote in the epoch is given"
        ),
        pytest.param(Follower, "has_live_leader", lambda _: property(lambda _: False), "", id="an allowed difference"),
        pytest.param(
            Outreach, "failed", lambda _: lambda *_: None, "only once (K595-23)", id="an announcement is not repeated"
        ),
        pytest.param(Votes, "_grant", without_vote, "(K595-16)", id="a repeated request is refused"),
        pytest.param(
            Core, "fetch_error", lambda of: lambda core, _: of(core, ErrorCode.NONE), "K595-38", id="an error is lost"
        ),
        pytest.param(Core, "observe", lambda _: lambda *_: None, "(K595-26, K595-39)", id="a newer epoch is ignored"),
        pytest.param(
            Leader,
            "majority_offset",
            lambda _: lambda _role, own_end, **_options: own_end,
            "on 1 of 3 disks (K595-36)",
            id="the leader's disk alone commits",
        ),
        pytest.param(
            VoterChanges,
            "due",
            without_wait,
            "(H22)",
            id="an uncommitted change of the voters does not count",
        ),
        pytest.param(
            Leader,
            "endorsed",
            lambda _: lambda role, _voter, _majority, at: setattr(role, "check_quorum_at", at),
            "(K595-23)",
            id="a fetch endorses a leader in vain",
        ),
        pytest.param(
            Leader,
            "preferred_successors",
            lambda _: lambda role: tuple(sorted(role.voters, key=lambda voter: role.voters[voter].fetch_offset or -1)),
            "(K595-28)",
            id="the shortest log succeeds",
        ),
        pytest.param(
            QuorumSettings, "successor_delay", lambda _: lambda *_: 0.0, "as successor 2", id="all successors at once"
        ),
        pytest.param(
            Ballot, "lost", lambda _: property(lambda _: False), "(K595-22)", id="a lost election is not given up"
        ),
        pytest.param(Votes, "_is_current", lambda _: lambda *_: True, "(K595-21)", id="late votes count"),
        pytest.param(
            Following,
            "_truncate",
            lambda _: lambda part, diverging: part._core.emit(TruncateEffect(diverging.offset), Flush()),
            "would truncate to",
            id="committed records are truncated",
        ),
        pytest.param(Core, "fail", lambda _: lambda *_: None, "(K595-47)", id="a foreign leader is followed"),
    ],
)
def test_a_planted_bug_of_a_member_is_found(
    owner: type, name: str, change: Callable[[Any], Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))
    found = sentences(UNREACHED)
    assert bool(found) is bool(text)
    assert all(text in sentence for sentence in found)


@pytest.mark.conforms("K595-13", "K595-19")
def test_a_member_that_promises_before_its_disk_knows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = RaftNode.receive

    def hasty(member: RaftNode, now: float, ticket: int, request: Any) -> list[Any]:
        effects = receive(member, now, ticket, request)
        if ticket >= 0:  # the real requests are handled as always
            return effects
        return sorted(effects, key=lambda effect: isinstance(effect, Persist))

    monkeypatch.setattr(RaftNode, "receive", hasty)
    (sentence,) = sentences(UNREACHED)
    assert "would answer, before the disk has the new state," in sentence
