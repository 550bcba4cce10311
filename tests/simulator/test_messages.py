"""The recorded messages of simulated processes: whole messages, without an effect on the run."""

import asyncio

import pytest

from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.messages.quorum_apis import VotePartitionResult, VoteResponse
from broker.protocol.schema import Message, QuorumTopic
from simulator.cluster import SimulatedCluster
from simulator.messages import Recorder, Said, text_of


def conversation(*, recorded: bool) -> tuple[str, list[Said]]:
    """Three brokers start, and a link drops everything in one direction for a while."""
    with SimulatedCluster(3) as cluster:
        recorder = Recorder(cluster.loop.time)
        cluster.network.listener = recorder if recorded else None
        cluster.start()
        cluster.run(cluster.ready())
        leader = cluster.controller()
        assert leader is not None
        for name in cluster.machines:
            if name != leader:
                cluster.cut(leader, name)
        cluster.run(asyncio.sleep(1.0))
        return cluster.digest(), recorder.said


def test_a_recorded_cluster_behaves_the_same() -> None:
    assert conversation(recorded=False)[0] == conversation(recorded=True)[0]


def test_messages_are_recorded_whole_in_order_with_arrival_times() -> None:
    _, said = conversation(recorded=True)
    assert [each.sent_s for each in said] == sorted(each.sent_s for each in said)
    assert all(each.arrived_s is None or each.sent_s < each.arrived_s for each in said)
    votes = [each for each in said if each.what == "Vote" and not each.answer]
    assert votes, "a leader was elected"
    assert all("epoch 1" in each.text or "pre-vote" in each.text for each in votes)
    assert any(each.what == "Vote" and each.answer and "granted" in each.text for each in said)
    lost = [each for each in said if each.arrived_s is None]
    assert len({each.source for each in lost}) == 1, "only the node with dropped packets has lost messages"
    assert all(not each.routine for each in said if each.what == "BrokerRegistration")
    assert all(each.routine for each in said if each.what == "BrokerHeartbeat")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            FetchRequest(topics=[FetchTopic("log", partitions=[FetchPartition(2, 4, 17, 3)])]),
            "log, p2: from 17, epoch 3",
        ),
        (
            VoteResponse(topics=[QuorumTopic("meta", [VotePartitionResult(0, 74, 1, 5, vote_granted=False)])]),
            "meta, p0: FENCED_LEADER_EPOCH, leader 1, epoch 5",
        ),
        (VoteResponse(topics=[QuorumTopic("meta", [VotePartitionResult(0, 0, -1, 5, vote_granted=True)])]), None),
    ],
)
def test_the_text_of_a_message_has_offsets_epochs_and_errors(message: Message, text: str | None) -> None:
    assert text_of(message) == (text or "meta, p0: epoch 5, granted")
