"""The oracle of check quorum: leaders of the quorum contact a majority in time, except for a planted bug."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.quorum.leading import Leading
from broker.quorum.roles import Leader, ReplicaProgress
from broker.quorum.settings import QuorumSettings
from broker.quorum.voters import VoterSet
from simulator.cluster import SimulatedCluster
from tests.simulator.storm import QUICK


def never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Leader.__init__

    def made(leader: Leader, *args: Any, **fields: Any) -> None:
        make(leader, *args, **{**fields, "check_quorum_at": None})

    monkeypatch.setattr(Leader, "__init__", made)


def asks_late(monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = property(lambda settings: 2 * settings.fetch_timeout_s)
    monkeypatch.setattr(QuorumSettings, "check_quorum_timeout_s", timeout)


def needs_one_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    endorsed = Leader.endorsed

    def endorsed_by_one(leader: Leader, voter: int, majority: int, resign_at: float) -> None:
        endorsed(leader, voter, min(majority, 2), resign_at)

    monkeypatch.setattr(Leader, "endorsed", endorsed_by_one)


def asks_one_less(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Leading.heard_from

    def heard_from(leading: Leading, now: float, role: Leader, replica: ReplicaProgress) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(VoterSet, "majority", property(lambda voters: len(voters.keys) // 2))
            heard(leading, now, role, replica)

    monkeypatch.setattr(Leading, "heard_from", heard_from)


def asks_observers(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Leading.heard_from

    def heard_from(leading: Leading, now: float, role: Leader, replica: ReplicaProgress) -> None:
        voters, role.voters = role.voters, dict(enumerate(role.replicas()))
        heard(leading, now, role, replica)
        role.voters = voters

    monkeypatch.setattr(Leading, "heard_from", heard_from)


def counts_any_fetch_with_a_voters_id(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Leading.heard_from

    def heard_from(leading: Leading, now: float, role: Leader, replica: ReplicaProgress) -> None:
        its = next((known for known, progress in role.observers.items() if progress is replica), None)
        heard(leading, now, role, replica if its is None else role.voters.get(its, replica))

    monkeypatch.setattr(Leading, "heard_from", heard_from)


def looks_at_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "deadline", lambda leader: leader.outreach.deadline())


async def lead_and_be_left(cluster: SimulatedCluster) -> None:
    cluster.start()
    await cluster.ready()
    leader = cluster.controller()
    assert leader is not None
    cluster.partition([leader], [name for name in cluster.machines if name != leader])
    cluster.let_drift(leader, -0.01)
    await asyncio.sleep(3)
    cluster.heal()
    await asyncio.sleep(1)


@pytest.mark.conforms("K595-43", "H19")
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_a_leader_without_followers_resigns_in_time(nodes: int) -> None:
    with SimulatedCluster(1, nodes, properties={**QUICK, "default.replication.factor": "1"}) as cluster:
        if nodes == 1:
            cluster.start()
            cluster.run(cluster.ready())
        else:
            cluster.run(lead_and_be_left(cluster))
        assert bool(cluster.watch.findings.checks["leads-unheard"]) is (nodes > 1)


@pytest.mark.conforms("K595-43", "H19")
@pytest.mark.parametrize(
    ("plant", "how"),
    [
        (never_asks, "without a fetch, for longer than 1.500 s"),
        (asks_late, "without a fetch, for longer than 1.500 s"),
        (needs_one_fetch, "for the fetches of [1] alone, of 5 voters"),
        (asks_one_less, "for the fetches of [1] alone, of 5 voters"),
        (asks_observers, "for the fetches of [1] and of others, which are not voters"),
        (counts_any_fetch_with_a_voters_id, "for the fetches of [1] and of others, which are not voters"),
        (looks_at_no_clock, "without a fetch, for longer than 1.500 s"),
    ],
)
def test_a_leader_that_would_not_resign_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with SimulatedCluster(1, 5, properties=QUICK, mutants=["tier_above_hw"]) as cluster:
        cluster.start()
        cluster.run(cluster.ready())
    (found,) = (finding for finding in cluster.watch.findings.found if finding.oracle == "leads-unheard")
    assert f"would lead on {how}" in found.sentence
