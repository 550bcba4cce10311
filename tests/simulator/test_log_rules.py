"""The rules for all replicas of one log: its start, and no missing record."""

import asyncio
import random

import pytest

from broker.log import recovery
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.ports import Disk
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.disk import SimulatedDisk
from simulator.loop import new_loop
from simulator.oracles.findings import OracleFindings
from simulator.oracles.log_copy import CopiedLog
from simulator.oracles.log_rules import LogRules
from simulator.oracles.machine_view import MachineView
from tests.broker.log.making import SMALL, batch, write
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC

SHORT_LOGS = {"log.segment.bytes": "4096", "log.retention.bytes": "9000", "log.retention.check.interval.ms": "100"}
LAG = 2
GAPS = LogConfig(segment_bytes=1000, index_interval_bytes=200, compacted=True)


@pytest.mark.parametrize("late", [0, LAG])
def test_a_log_restarts_at_the_start_of_the_leaders_log(late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that starts later lacks committed records that were not deleted."""
    begin = PartitionLog.truncate_fully_and_start_at
    starts: list[int] = []

    async def begin_late(log: PartitionLog, offset: int) -> None:
        if log.directory == f"{TOPIC}-0" and offset > log.log_end_offset:
            starts.append(offset)
            offset += late
        await begin(log, offset)

    monkeypatch.setattr(PartitionLog, "truncate_fully_and_start_at", begin_late)
    with SimulatedCluster(1, properties={**QUICK, **SHORT_LOGS}, mutants=["tier_above_hw"]) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC)
            await client.produce(TOPIC, 0, [b"x"])
            leader = await client.leader_of(TOPIC, 0)
            away = next(name for name in cluster.machines if name != f"n{leader}")
            cluster.kill(away)
            for _ in range(20):
                await client.produce(TOPIC, 0, [b"x" * 1000])
            led = cluster.node(f"n{leader}").replicas.partition(TOPIC, 0)
            assert led is not None
            await cluster.until(lambda: led.log.log_start_offset > LAG)
            cluster.start(away)
            await cluster.until(lambda: bool(starts))
            await cluster.ready()

        cluster.run(story())
    found = {finding.oracle: finding.sentence for finding in cluster.watch.findings.found}
    if late:
        assert f"restarts at {starts[0] + LAG}, but no log has started there" in found["leader-incomplete"]
    else:
        assert found == {}


async def with_an_absent_follower(cluster: SimulatedCluster) -> tuple[SimulatedClient, str, str]:
    """A client, the leader, and the other replica, which ended after the first of 21 records."""
    client = await started(cluster)
    await client.create_topic(TOPIC, replication_factor=2)
    await client.produce(TOPIC, 0, [b"x"])
    leader = await client.leader_of(TOPIC, 0)
    state = cluster.node(f"n{leader}").image.partition(TOPIC, 0)
    assert state is not None
    (away,) = (f"n{replica}" for replica in state.replicas if replica != leader)
    cluster.kill(away)
    for _ in range(20):
        await client.produce(TOPIC, 0, [b"x" * 1000])
    return client, f"n{leader}", away


async def log_of_restarted(cluster: SimulatedCluster, away: str) -> PartitionLog:
    """The log of the other replica, which is started again."""
    cluster.start(away)
    await cluster.ready()
    behind = cluster.node(away).replicas.partition(TOPIC, 0)
    assert behind is not None
    return behind.log


def test_a_log_starts_at_the_start_offset_written_before_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next process starts there, and a replica that was away restarts its log there."""
    advance = PartitionLog.advance_start
    written: list[int] = []
    held = True

    async def write_down_only(log: PartitionLog, offset: int) -> int:
        if held and log.directory == f"{TOPIC}-0":
            written.append(offset)
            await asyncio.Event().wait()
        return await advance(log, offset)

    monkeypatch.setattr(PartitionLog, "advance_start", write_down_only)
    with SimulatedCluster(1, properties={**QUICK, **SHORT_LOGS}) as cluster:

        async def story() -> None:
            nonlocal held
            client, leader, away = await with_an_absent_follower(cluster)
            await cluster.until(lambda: bool(written))
            cluster.kill(leader)
            held = False
            cluster.start(leader)
            await client.leader_of(TOPIC, 0)
            behind = await log_of_restarted(cluster, away)
            await cluster.until(lambda: behind.log_start_offset == written[0])

        cluster.run(story())
    assert cluster.watch.findings.found == ()


@pytest.mark.parametrize("forgets", [True, False])
def test_a_segment_lost_in_recovery_is_distinguished_from_a_deleted_one(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that was away and restarts its log with such a leader shows it."""
    found, restarted = recovery.base_offsets, False

    def without_the_first(disk: Disk, directory: str) -> list[int]:
        bases = found(disk, directory)
        return bases[1:] if restarted and directory == f"{TOPIC}-0" and len(bases) > 1 else bases

    if forgets:
        monkeypatch.setattr(recovery, "base_offsets", without_the_first)
    properties = {**QUICK, "log.segment.bytes": "4096"}
    with SimulatedCluster(1, properties=properties, mutants=["tier_above_hw"]) as cluster:

        async def story() -> None:
            nonlocal restarted
            client, leader, away = await with_an_absent_follower(cluster)
            cluster.kill(leader)
            restarted = True
            cluster.start(leader)
            await client.leader_of(TOPIC, 0)
            behind = await log_of_restarted(cluster, away)
            await cluster.until(lambda: behind.log_end_offset == 21)
            assert (behind.log_start_offset > 0) == forgets

        cluster.run(story())
    anomalies = [
        (finding.oracle, "no log has started there" in finding.sentence) for finding in cluster.watch.findings.found
    ]
    assert anomalies == ([("leader-incomplete", True)] if forgets else [])


@pytest.mark.parametrize("removed", [True, False])
def test_records_of_a_follower_before_the_leaders_start_are_not_compared(removed: bool) -> None:
    """For an epoch before its log, a leader answers with its log start (K101-7)."""
    loop = new_loop()
    disk, findings = SimulatedDisk(loop, random.Random(0)), OracleFindings(loop.time)
    rules, copies = LogRules(TOPIC, 0, findings), {name: CopiedLog(name) for name in ("n1", "n2")}
    views = {name: MachineView(name, int(name[1:]), disk, "", {}) for name in copies}

    async def life() -> None:
        leads, follows = [await PartitionLog.open(disk, name, SMALL, clean_shutdown=False) for name in copies]
        await write(leads, 3, "a", "b", "c", "d")
        rules.follow(views["n1"], copies["n1"], leads)
        if removed:
            await leads.advance_start(2)
            rules.start_moved("n1", copies["n1"], leads)
        await write(follows, 2, "its own", "too")
        await follows.replicate(batch("c", base=2, epoch=3) + batch("d", base=3, epoch=3), 3)
        rules.follow(views["n2"], copies["n2"], follows)

    loop.run_until_complete(life())
    assert [finding.oracle for finding in findings.found] == ([] if removed else ["log-mismatch"])


@pytest.mark.parametrize("lacks", [True, False])
def test_a_gap_at_the_continuation_of_a_log_is_found(lacks: bool) -> None:
    loop = new_loop()
    disk, findings = SimulatedDisk(loop, random.Random(0)), OracleFindings(loop.time)
    rules, copies = LogRules(TOPIC, 0, findings), {name: CopiedLog(name) for name in ("n1", "n2")}
    views = {name: MachineView(name, int(name[1:]), disk, "", {}) for name in copies}

    async def life() -> None:
        whole, other = [await PartitionLog.open(disk, name, GAPS, clean_shutdown=False) for name in copies]
        await write(whole, 1, "a", "b", "c", "d")
        rules.follow(views["n1"], copies["n1"], whole)
        for offset, value in enumerate("abcd"):
            if lacks and value == "c":
                continue
            await other.replicate(batch(value, base=offset, epoch=1), 1)
            rules.follow(views["n2"], copies["n2"], other)

    loop.run_until_complete(life())
    assert [finding.oracle for finding in findings.found] == (["log-mismatch"] if lacks else [])
