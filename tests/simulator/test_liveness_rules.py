"""Liveness during faults: untouched parts make progress, and an unreachable replica leaves the ISR."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from broker.controller.active import Sessions
from broker.quorum.raft_node import Votes
from broker.replica.leader import PartitionLeader
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC

STILL, KEEPS = "stands-still", "isr-keeps-unreachable"
SET = {**QUICK, "min.insync.replicas": "2", "log.flush.interval.messages": "1"}
LONG_S = 25.0
"""More than twice the bound of these settings."""


async def write(client: SimulatedClient, number: int) -> None:
    while True:
        with contextlib.suppress(RefusedError, UncertainError):
            await client.produce(TOPIC, 0, [b"%d" % number], timeout=2)
        await asyncio.sleep(0.2)


def found(
    harm: Callable[[SimulatedCluster, str, str], None], broken: Callable[[], None] | None = None, seed: int = 1
) -> tuple[set[str], dict[str, int]]:
    """What the oracles of liveness find, and how often they compared, in a cluster under load that `harm` is done to;
    it is given the leader's machine and a follower's, which does not control."""
    with SimulatedCluster(seed, properties=SET, mutants=["tier_above_hw"]) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC, replication_factor=3)
            writing = asyncio.create_task(write(client, 0))
            await asyncio.sleep(2)
            leader = f"n{await client.leader_of(TOPIC, 0)}"
            follower = next(name for name in cluster.machines if name not in (leader, cluster.controller()))
            if broken is not None:
                broken()
            harm(cluster, leader, follower)
            await asyncio.sleep(LONG_S)
            writing.cancel()

        cluster.run(story())
    findings = cluster.watch.findings
    return {it.oracle for it in findings.found}, {oracle: findings.checks[oracle] for oracle in (STILL, KEEPS)}


def no_harm(cluster: SimulatedCluster, leader: str, follower: str) -> None:
    del cluster, leader, follower


def kill_leader(cluster: SimulatedCluster, leader: str, follower: str) -> None:
    del follower
    cluster.kill(leader)


def kill_controller(cluster: SimulatedCluster, leader: str, follower: str) -> None:
    del leader, follower
    cluster.kill(str(cluster.controller()))


def kill_follower(cluster: SimulatedCluster, leader: str, follower: str) -> None:
    del leader
    cluster.kill(follower)


def pause_follower(cluster: SimulatedCluster, leader: str, follower: str) -> None:
    del leader
    cluster.stand_still(follower)


def cut_off_leader(cluster: SimulatedCluster, leader: str, follower: str) -> None:
    del follower
    cluster.partition([leader], [name for name in cluster.machines if name != leader])


def hang_disk(cluster: SimulatedCluster, leader: str, follower: str) -> None:
    del leader
    cluster.machines[follower].disk.faults.hung = True


def kill_two(cluster: SimulatedCluster, leader: str, follower: str) -> None:
    cluster.kill(leader, follower)


HARMS = [no_harm, kill_leader, kill_controller, kill_follower, pause_follower, cut_off_leader, hang_disk, kill_two]


@pytest.mark.rotating(10, among="storms")
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_correct_broker_makes_progress_when_possible(
    harm: Callable[[SimulatedCluster, str, str], None], seed: int
) -> None:
    oracles, checks = found(harm, seed=seed)
    assert oracles == set()
    assert (checks[KEEPS] > 0) == (harm not in (no_harm, hang_disk, kill_two))
    assert (checks[STILL] > 0) == (harm is not kill_two), "without a majority nothing is demanded"


def commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLeader, "_advance_high_watermark", lambda _: False)


def never_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Votes, "_grant", lambda *_: False)


def never_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLeader, "lagging", lambda *_: ())


def never_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sessions, "expired", lambda *_: [])
    monkeypatch.setattr(Sessions, "next_deadline", lambda _: None)


def never_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    never_fences(monkeypatch)
    never_shrinks(monkeypatch)


@pytest.mark.rotating(10, among="storms")
@pytest.mark.parametrize(
    ("broken", "harm", "oracles"),
    [
        pytest.param(commits_nothing, no_harm, {STILL}, id="the broker stands still without any fault"),
        pytest.param(commits_nothing, kill_follower, {STILL}, id="the broker stands still during a fault"),
        pytest.param(never_fences, kill_leader, {STILL, KEEPS}, id="no other leader is elected"),
        pytest.param(never_votes, kill_controller, {STILL}, id="no other controller is elected"),
        pytest.param(never_shrinks, hang_disk, {STILL}, id="a replica that lags blocks every commit"),
        pytest.param(never_lets_go, kill_follower, {STILL, KEEPS}, id="an ISR that never shrinks"),
    ],
)
def test_a_stalled_partition_and_an_unreachable_isr_member_are_found(
    broken: Callable[[pytest.MonkeyPatch], None],
    harm: Callable[[SimulatedCluster, str, str], None],
    oracles: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names, _ = found(harm, lambda: broken(monkeypatch))
    assert names >= oracles
