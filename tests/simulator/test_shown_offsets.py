"""The offsets that coordinators would return are compared with committed ones, also without a request."""

import pytest

from broker.errors import ErrorCode
from broker.groups.shard import Shard
from broker.protocol.messages.group_records import OffsetCommitKey, read_record
from simulator.cluster import SimulatedCluster
from tests.simulator.test_group_events import commit_and_go_on
from tests.simulator.test_groups import SETTINGS, begin
from tests.simulator.test_oracles import planted

ORACLE = "offsets-contradict-log"


def sentences(cluster: SimulatedCluster) -> list[str]:
    return [finding.sentence for finding in cluster.watch.findings.found if finding.oracle == ORACLE]


@pytest.mark.conforms("CG-3", "CG-4")
def test_coordinators_return_only_committed_offsets() -> None:
    with SimulatedCluster(1, properties=SETTINGS) as cluster:
        cluster.run(commit_and_go_on(cluster))
        assert cluster.watch.findings.checks[ORACLE] >= 4
        assert sentences(cluster) == []


@pytest.mark.conforms("CG-3")
@pytest.mark.kills("commit_acked_before_hw")
def test_a_coordinator_that_returns_uncommitted_offsets_is_found_without_a_loss() -> None:
    with SimulatedCluster(1, properties=SETTINGS, mutants=["commit_acked_before_hw"]) as cluster:

        async def story() -> None:
            client, coordinator = await begin(cluster)
            assert await client.commit(coordinator, 7) is ErrorCode.NONE
            assert await client.committed(coordinator) == 7

        cluster.run(story())
        (sentence,) = sentences(cluster)
        assert "would show its offsets log-0: 7, and below 0 nothing are committed" in sentence


@pytest.mark.conforms("CG-4")
def test_a_partly_loaded_coordinator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Shard.replay

    def forget_offsets(shard: Shard, key: bytes, value: bytes | None) -> None:
        read = read_record(key, value)
        if read is None or not isinstance(read[0], OffsetCommitKey):
            replay(shard, key, value)

    monkeypatch.setattr(Shard, "replay", forget_offsets)
    with planted(properties=SETTINGS) as cluster:

        async def story() -> None:
            client, old = await begin(cluster)
            assert await client.commit(old, 7) is ErrorCode.NONE
            cluster.kill(f"n{old}")
            new = await client.coordinator(unlike=old)
            assert await client.committed(new) == -1

        cluster.run(story())
        (sentence,) = sentences(cluster)
        assert "would show its offsets nothing" in sentence
