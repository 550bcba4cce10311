"""Supposed events at a coordinator of groups: it answers as the protocol demands, except for a planted bug."""

import itertools
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode
from broker.groups.commits import Commits
from broker.groups.group import Group
from broker.groups.group_effects import Effect
from broker.groups.members import Membership
from broker.groups.rebalance import Rebalance
from broker.groups.shard import Administration, Shard
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
from simulator.oracles.group_events import generation_flaws
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


def generation(statics: Sequence[bool]) -> GroupMetadataValue:
    """A generation of as many members; those marked are static."""
    members = [
        MemberMetadata(
            f"m{number}",
            f"i{number}" if is_static else None,
            rebalance_timeout=6_000 + 500 * number,
            session_timeout=5_000 + 1_000 * number,
            assignment=b"%d" % number,
        )
        for number, is_static in enumerate(statics)
    ]
    return GroupMetadataValue("consumer", 7, "range" if members else None, "m0" if members else None, 1000, members)


@pytest.mark.conforms("CG-1", "CG-2", "CG-3", "CG-4")
@pytest.mark.parametrize("size", range(5))
def test_a_coordinator_goes_on_from_a_generation_as_the_protocol_demands(size: int) -> None:
    for statics in itertools.product((False, True), repeat=size):
        assert not [*generation_flaws("g", generation(statics))]


TIMEOUTS_MS = st.integers(1_000, 100_000) | st.sampled_from([6_000, 45_000, 300_000, 600_000])


@given(st.lists(st.tuples(st.booleans(), TIMEOUTS_MS, TIMEOUTS_MS), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_no_timeout_of_a_member_raises_an_alarm(timeouts: list[tuple[bool, int, int]]) -> None:
    value = generation([is_static for is_static, _, _ in timeouts])
    for member, (_, session_ms, rebalance_ms) in zip(value.members, timeouts, strict=True):
        member.session_timeout, member.rebalance_timeout = session_ms, rebalance_ms
    assert not [*generation_flaws("g", value)]


@pytest.mark.conforms("CG-1")
def test_a_coordinator_is_asked_once_about_each_form_of_a_group() -> None:
    with SimulatedCluster(1, properties=SETTINGS) as cluster:
        cluster.run(commit_and_go_on(cluster))
        assert cluster.watch.findings.checks["commit-would-be-taken"] == 1


PLANTED: list[tuple[type, str, Callable[..., Any], str]] = [
    (Rebalance, "begin", lambda *_: None, "the first of two JoinGroups of a member"),
    (Rebalance, "joining_expired", lambda *_: None, "the JoinGroups without the absent one"),
    (Rebalance, "dismiss", lambda *_: None, "the JoinGroup of one that has left"),
    (Membership, "session_expired", lambda *_: None, "a heartbeat when a member is silent"),
    (Membership, "remove_unsynced", lambda *_: None, "a heartbeat of one that asks for no assignment"),
    (Membership, "_check_room", lambda *_: None, "a JoinGroup when the group is full"),
    (Membership, "_check_protocols", lambda *_: None, "a JoinGroup with other protocol_type"),
    (Membership, "_join_static", lambda *_: None, "a JoinGroup that returns"),
    (Commits, "_problem", lambda *_: ErrorCode.NONE, "a commit of an unknown partition"),
    (Group, "assign", lambda *_: None, "the leader's SyncGroup"),
    (Group, "elect_joined_leader", lambda *_: False, "the JoinGroups of all members"),
    (Administration, "expire", lambda *_: None, "an OffsetFetch after the retention time"),
]
"""A method of the coordinator, what it does instead, and the question whose answer is wrong then."""


@pytest.mark.parametrize(("owner", "method", "planted", "question"), PLANTED, ids=[row[1] for row in PLANTED])
def test_a_coordinator_with_a_planted_bug_is_found(
    owner: type, method: str, planted: Callable[..., Any], question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, planted)
    flaws = [*generation_flaws("g", generation([False, False, True])), *generation_flaws("g", generation([]))]
    assert [flaw for flaw in flaws if flaw.startswith(f"would answer {question}")], flaws


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
    assert "in generation 0 with nothing yet, not ILLEGAL_GENERATION" in finding.sentence


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
        assert findings.checks["commit-would-be-taken"] == 1
        with pytest.raises(OSError, match="the bytes are not what was written"):
            log.read(0, 1 << 20, log.log_end_offset)

    loop.run_until_complete(life())
