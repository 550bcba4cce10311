"""What coordinators would take of a member whose generation is over: nothing, but for a planted bug."""

from __future__ import annotations

import pytest
from msgspec import structs

from broker.errors import ErrorCode
from broker.groups.outbox import Effect
from broker.groups.shard import Shard
from broker.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue, read_record
from broker.protocol.messages.offset_commit import OffsetCommitRequest
from simulator.cluster import SimulatedCluster
from tests.simulator.test_groups import SETTINGS, begin


async def commit_and_go_on(cluster: SimulatedCluster) -> None:
    """A group with a member, whose coordinator is killed."""
    client, old = await begin(cluster)
    member, generation = await client.joins_alone(old)
    assert await client.commit(old, 7, member, generation) is ErrorCode.NONE
    cluster.kill(f"n{old}")
    new = await client.coordinator(unlike=old)
    assert await client.committed(new) == 7
    assert await client.commit(new, 8, member, generation) is ErrorCode.NONE


@pytest.mark.conforms("CG-1")
def test_a_coordinator_would_take_no_commit_of_another_generation() -> None:
    with SimulatedCluster(1, properties=SETTINGS) as cluster:
        cluster.run(commit_and_go_on(cluster))
        assert cluster.watch.findings.checks["commit-would-be-taken"] == 2


@pytest.mark.conforms("CG-1")
def test_who_would_take_a_commit_of_another_generation_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    replay, commit, generations = Shard.replay, Shard.commit, dict[str, int]()

    def remember(shard: Shard, key: bytes, value: bytes | None) -> None:
        match read_record(key, value):
            case (GroupMetadataKey() as its, GroupMetadataValue() as said):
                generations[its.group] = said.generation
        replay(shard, key, value)

    def take_any(shard: Shard, now: float, ticket: int, request: OffsetCommitRequest) -> list[Effect]:
        its = generations.get(request.group_id, request.generation_id_or_member_epoch)
        return commit(shard, now, ticket, structs.replace(request, generation_id_or_member_epoch=its))

    monkeypatch.setattr(Shard, "replay", remember)
    monkeypatch.setattr(Shard, "commit", take_any)
    with SimulatedCluster(1, properties=SETTINGS, mutants=["late_vote_counted"]) as cluster:
        cluster.run(commit_and_go_on(cluster))
    (finding,) = cluster.watch.findings.found
    assert finding.oracle == "commit-would-be-taken"
    assert "group g is in generation 1" in finding.sentence
    assert "would take a commit of generation 0 from its member" in finding.sentence
