"""Hypothetical requests to leaders at states of a run: no answer in another epoch or in recovery, except for a bug."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.producers.producer_state import ProducerState
from broker.replica.follower import PartitionFollower, Truncate
from broker.replica.leader import PartitionLeader
from broker.replica.log_view import EpochEnd, LogView
from broker.replica.partition import Partition
from broker.replica.queries import EpochEndFound
from simulator.client import NEW, SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.oracles import hypothetical_requests
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
    with SimulatedCluster(1, properties=QUICK, mutants=["tier_above_hw"]) as cluster:
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
        with SimulatedCluster(1, properties=QUICK, mutants=["tier_above_hw"]) as cluster:
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


class FollowerByOffset(PartitionFollower):
    """A follower that uses only the offset of an answer, and not its epoch."""

    def epoch_end_answered(self, log: LogView, _: int, end_offset: int) -> Truncate:
        return Truncate(min(end_offset, log.log_end_offset), "epoch")


def _ends_at_the_log_end(partition: Partition, *_: int, **__: bool) -> EpochEndFound:
    """An answer that gives every epoch the end of the log."""
    log = partition.log
    return EpochEndFound(ErrorCode.NONE, EpochEnd(log.epochs.latest_epoch, log.log_end_offset))


def _joins_anywhere(_: object) -> Callable[[PartitionLeader, int], bool]:
    """A leader that takes any follower that has fetched in its epoch."""
    return lambda leader, replica: (
        leader.pending is None and replica not in leader.isr and leader.follower(replica).broker_epoch >= 0
    )


@pytest.mark.parametrize(
    ("owner", "name", "change", "oracle", "text"),
    [
        pytest.param(
            PartitionLeader,
            "may_join",
            _joins_anywhere,
            "member-incomplete",
            "into the ISR if its log",
            id="H5, K107-2",
        ),
        pytest.param(
            PartitionLeader,
            "low_watermark",
            lambda _: lambda leader, _: leader.log_start_offset,
            "member-incomplete",
            "and would answer a deletion below",
            id="K107-1",
        ),
        pytest.param(
            hypothetical_requests,
            "epoch_end",
            lambda _: _ends_at_the_log_end,
            "epochs-contradict-log",
            "would answer that epoch",
            id="K101-5",
        ),
        pytest.param(
            hypothetical_requests,
            "PartitionFollower",
            lambda _: FollowerByOffset,
            "followed-unmatched",
            "and they share",
            id="K101-14",
        ),
        pytest.param(
            ProducerState,
            "check",
            lambda _: lambda *_, **__: None,
            "producers-contradict-log",
            "would answer an append",
            id="K98-2",
        ),
        pytest.param(
            ProducerState,
            "_written",
            lambda _: lambda *_: None,
            "producers-contradict-log",
            "would answer OUT_OF_ORDER_SEQUENCE_NUMBER to sequence 0",
            id="K98-3",
        ),
        pytest.param(
            ProducerState,
            "_next",
            lambda of: lambda state, batch, **_: of(state, batch, any_first=True),
            "producers-contradict-log",
            "would answer an append to sequence 1 in epoch 0",
            id="K98-10",
        ),
    ],
)
def test_a_planted_bug_that_no_request_of_the_run_reaches_is_found(
    owner: Any, name: str, change: Callable[[Any], Any], oracle: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower is away and returns, and a producer goes on at the next leader."""

    async def story(cluster: SimulatedCluster) -> None:
        client = await started(cluster)
        await client.create_topic(TOPIC, replication_factor=2)
        producer = await client.init_producer_id(5.0, NEW)
        for sequence in (0, None, 3):  # the second leader writes nothing
            leader = await client.leader_of(TOPIC, 0)
            if sequence is not None:
                await client.produce(TOPIC, 0, [b"x"] * 3, producer_id=producer.producer_id, sequence=sequence)
            cluster.kill(f"n{leader}")
            other = await client.leader_of(TOPIC, 0, unlike=leader)
            cluster.start(f"n{leader}")
            await cluster.until(partial(_whole, cluster, other))

    for planted in (False, True):
        if planted:
            monkeypatch.setattr(owner, name, change(getattr(owner, name)))
        with SimulatedCluster(3, properties=QUICK, mutants=["tier_above_hw"]) as cluster:
            cluster.run(story(cluster))
        assert (text in found(cluster).get(oracle, "")) is planted


def _whole(cluster: SimulatedCluster, broker: int) -> bool:
    """Whether both replicas are in the ISR, by the metadata of a broker."""
    state = cluster.node(f"n{broker}").image.partition(TOPIC, 0)
    return state is not None and len(state.isr) == 2
