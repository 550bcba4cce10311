"""Hypothetical requests to leaders at states of a run: no answer in another epoch or in recovery, except for a bug."""

from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.replica.leader import PartitionLeader
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC

UNCLEAN = {**QUICK, "unclean.leader.election.enable": "true"}
FETCHES = ["a consumer's Fetch", "a replica's Fetch"]
QUESTIONS = ["ListOffsets", "OffsetForLeaderEpoch"]


async def lead(cluster: SimulatedCluster) -> SimulatedClient:
    """A topic with a leader, and no client."""
    client = await started(cluster)
    await client.create_topic(TOPIC, replication_factor=2)
    await client.leader_of(TOPIC, 0)
    return client


async def recover(cluster: SimulatedCluster) -> None:
    """A leader that was elected uncleanly, without a client until its recovery ends."""
    client = await lead(cluster)
    await client.produce(TOPIC, 0, [b"kept"])
    last = await client.leader_of(TOPIC, 0)
    state = cluster.node(f"n{last}").image.partition(TOPIC, 0)
    assert state is not None
    (other,) = (f"n{replica}" for replica in state.replicas if replica != last)
    cluster.kill(other)
    await client.produce(TOPIC, 0, [b"lost"])
    cluster.kill(f"n{last}")
    cluster.start(other)
    await cluster.until(lambda: cluster.journal.of("leader_recovered") != [])


def found(cluster: SimulatedCluster) -> dict[str, str]:
    return {finding.oracle: finding.sentence for finding in cluster.watch.findings.found}


@pytest.mark.conforms("H3", "K704-5")
def test_leaders_would_answer_in_their_epoch_once_they_have_recovered() -> None:
    with SimulatedCluster(1, properties=UNCLEAN) as cluster:
        cluster.run(recover(cluster))
        checks = cluster.watch.findings.checks
        assert checks["request-would-be-answered"] >= 2
        assert checks["served-in-recovery"] >= 2


@pytest.mark.conforms("H3")
@pytest.mark.parametrize(("where", "answered"), [("reads", FETCHES), ("queries", QUESTIONS)])
def test_a_leader_that_would_answer_another_epoch_is_found(
    where: str, answered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"broker.replica.{where}.epoch_error", lambda *_: ErrorCode.NONE)
    with SimulatedCluster(1, properties=QUICK, mutants=["late_vote_counted"]) as cluster:
        cluster.run(lead(cluster))
    sentence = found(cluster)["request-would-be-answered"]
    assert sentence.endswith(f"leads in epoch 0, and would answer what names epoch 1: {', '.join(answered)}")


@pytest.mark.conforms("H15")
def test_a_leader_that_would_count_a_fetch_of_an_earlier_process_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    count = PartitionLeader.follower_fetched

    def count_any_fetch(leader: PartitionLeader, replica: int, *, broker_epoch: int, **fetch: Any) -> bool:
        state = leader.follower(replica)
        state.broker_epoch = min(state.broker_epoch, broker_epoch)
        return count(leader, replica, broker_epoch=broker_epoch, **fetch)

    async def counted(cluster: SimulatedCluster) -> None:
        client = await lead(cluster)
        await client.produce(TOPIC, 0, [b"x"])

    for planted in (False, True):
        if planted:
            monkeypatch.setattr(PartitionLeader, "follower_fetched", count_any_fetch)
        with SimulatedCluster(1, properties=QUICK, mutants=["late_vote_counted"]) as cluster:
            cluster.run(counted(cluster))
        sentence = found(cluster).get("fetch-would-be-counted", "")
        assert ("had sent before it registered in epoch" in sentence) is planted


@pytest.mark.conforms("K704-5")
@pytest.mark.kills("serve_while_recovering")
def test_a_leader_that_would_answer_in_recovery_is_found_without_a_request() -> None:
    with SimulatedCluster(1, properties=UNCLEAN, mutants=["serve_while_recovering"]) as cluster:
        cluster.run(recover(cluster))
    sentence = found(cluster)["served-in-recovery"]
    assert "recovers in epoch" in sentence
    assert sentence.endswith("would answer what names epoch -1: a consumer's Fetch, ListOffsets, OffsetForLeaderEpoch")
