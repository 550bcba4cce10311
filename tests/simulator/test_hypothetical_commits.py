"""Hypothetical commits of a member of an ended generation: coordinators refuse them, except for a planted bug."""

import random
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import structs

from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode
from broker.groups.group_effects import Effect
from broker.groups.shard import Shard
from broker.log.log import PartitionLog
from broker.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    read_record,
    record,
)
from broker.protocol.messages.offset_apis import OffsetCommitRequest
from broker.protocol.records import Record, build_batch
from broker.replica.partition import Partition
from simulator.cluster import SimulatedCluster
from simulator.disk import SimulatedDisk
from simulator.loop import new_loop
from simulator.oracles.findings import OracleFindings
from simulator.oracles.group_rules import GroupRules
from simulator.oracles.machine_view import MachineView
from tests.broker.log.making import SMALL
from tests.broker.replica.test_leader import leader
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
        assert cluster.watch.findings.checks["commit-would-be-taken"] == 6


@pytest.mark.conforms("CG-1")
def test_a_coordinator_that_would_accept_a_commit_of_another_generation_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    with SimulatedCluster(1, properties=SETTINGS, mutants=["tier_above_hw"]) as cluster:
        cluster.run(commit_and_go_on(cluster))
    (finding,) = cluster.watch.findings.found
    assert finding.oracle == "commit-would-be-taken"
    assert "group g is in generation 1" in finding.sentence
    assert "would take a commit of generation 0 from its member" in finding.sentence


def test_observation_of_a_damaged_group_log_does_not_change_its_reads() -> None:
    """It is looked at as it was written, and the leader reads it as it is."""
    loop = new_loop()
    disk, findings = SimulatedDisk(loop, random.Random(0)), OracleFindings(loop.time)
    said = GroupMetadataValue("consumer", 7, "range", "m", members=[MemberMetadata("m", session_timeout=10_000)])
    key, value = record(GroupMetadataKey("g"), said)

    async def life() -> None:
        log = await PartitionLog.open(disk, f"{OFFSETS_TOPIC}-0", SMALL, clean_shutdown=False)
        await log.start_leader_epoch(0)
        log.append_as_leader(bytearray(build_batch([Record(0, 0, key, value)])), 0)
        await log.close()
        disk.flip(random.Random(0), [f"{log.directory}/{0:020d}.log"])
        log = await PartitionLog.open(disk, f"{OFFSETS_TOPIC}-0", SMALL, clean_shutdown=True)
        assert not log.recovered.scanned
        role = leader(replicas=(1,), isr=(1,), end=log.log_end_offset, high_watermark=log.log_end_offset)
        partition = cast(Partition, SimpleNamespace(role=role, index=0, log=log))
        GroupRules(findings).look(MachineView("n1", 1, disk, "", {}), partition)
        assert findings.checks["commit-would-be-taken"] == 6
        with pytest.raises(OSError, match="the bytes are not what was written"):
            log.read(0, 1 << 20, log.log_end_offset)

    loop.run_until_complete(life())
