"""A leader that was elected uncleanly serves no request before its log is checked and durable (KIP-704)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from broker.errors import ErrorCode
from broker.log.epochs import EpochEntry
from broker.log.log import PartitionLog
from broker.mutants import Mutants
from broker.protocol.messages.metadata_records import ConfigRecord
from broker.protocol.records import TRANSACTIONAL_MASK, Record, build_batch
from broker.replica.follower import PartitionFollower, Phase
from broker.replica.leader import PartitionLeader
from broker.replica.manager import SharedWork
from broker.replica.reads import FetchLimits, FetchPosition
from broker.topic_settings import TopicSettings
from tests.broker.log.making import HeldCommit
from tests.broker.replica.cluster import TOPIC, TOPIC_ID, Cluster, Node, until
from tests.stories import played_by, run_by

Story = Callable[[Cluster], Awaitable[None]]


class Gate:
    """Recoveries wait at it while it is shut."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = 0


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    rebuild = PartitionLog.rebuild

    async def stalled(log: PartitionLog, leader_epoch: int, wanted: Callable[[], bool]) -> bool:
        gate.waiting += 1
        await gate.open.wait()
        return await rebuild(log, leader_epoch, wanted)

    monkeypatch.setattr(PartitionLog, "rebuild", stalled)
    return gate


def tell(path: Path, story: Story, *, mutants: tuple[str, ...] = (), **settings: Any) -> None:
    async def run() -> None:
        async with Cluster(path, mutants=mutants, replica_lag_time_max_ms=60_000, **settings) as cluster:
            await story(cluster)

    asyncio.run(run())


STORIES = played_by(tell, "tmp_path")


async def unclean(cluster: Cluster) -> Node:
    """Broker 2 leads, elected uncleanly, with a record less than broker 1 has."""
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    await cluster.nodes[1].produce("a", "b")
    await until(lambda: cluster.nodes[2].partition().high_watermark == 2)
    cluster.cut.add((2, 1))
    fetcher = cluster.nodes[2].manager._fetchers[1]
    await until(lambda: fetcher._followed[TOPIC, 0].failures > 0)
    await cluster.nodes[1].produce("lost", acks=1)
    cluster.elect(2, uncleanly=True)
    await cluster.hear()
    cluster.cut.clear()
    return cluster.nodes[2]


async def answers(node: Node) -> list[ErrorCode]:
    """The results of produce, fetch, a follower's fetch, ListOffsets and OffsetForLeaderEpoch."""
    produced = await node.produce("x", acks=1)
    position = FetchPosition(TOPIC, 0, 0, 1 << 20, current_leader_epoch=1, topic_id=TOPIC_ID)
    by_follower = node.manager.fetch_now(FetchLimits(replica_id=1, replica_epoch=0), [position])
    assert by_follower is not None
    return [
        produced.error,
        node.read().error,
        by_follower[0].error,
        node.manager.list_offset(TOPIC, 0, -1).error,
        node.manager.offset_for_leader_epoch(TOPIC, 0, 1, 0).error,
    ]


@pytest.mark.conforms("K704-5", "K704-10", "K704-4")
async def test_no_request_is_served_until_recovery_ends(cluster: Cluster, /, gate: Gate) -> None:
    node = await unclean(cluster)
    assert await answers(node) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5
    assert node.content() == ["a", "b"]
    follower = cluster.nodes[1].partition().role
    assert isinstance(follower, PartitionFollower)
    fetcher = cluster.nodes[1].manager._fetchers[2]
    await until(lambda: fetcher._followed[TOPIC, 0].failures > 3)  # it asks again, ever more seldom
    assert follower.phase is Phase.TRUNCATING
    assert cluster.nodes[1].content() == ["a", "b", "lost"], "it does not know the divergence yet"
    assert cluster.alterations == []
    gate.open.set()
    await until(lambda: len(node.traced("leader_recovered")) == 1)
    await until(lambda: cluster.committed.topics[TOPIC].partitions[0].isr == (2, 1))
    assert cluster.nodes[1].content() == ["a", "b"]
    assert (await node.produce("c")).error is ErrorCode.NONE
    assert cluster.nodes[1].content() == ["a", "b", "c"]


@pytest.mark.conforms("K704-5")
@pytest.mark.kills("serve_while_recovering")
@played_by(tell, "tmp_path", mutants=("serve_while_recovering",))
async def test_with_the_mutant_a_leader_answers_that_still_recovers(cluster: Cluster, /, gate: Gate) -> None:
    node = await unclean(cluster)
    assert gate.waiting == 1
    assert (await node.produce("x", acks=1)).error is ErrorCode.NONE, "nothing of this log is safe yet"
    assert node.read().error is ErrorCode.NONE


@pytest.mark.conforms("K704-7")
async def test_the_leader_requests_the_end_of_recovery_until_it_is_granted(cluster: Cluster, /) -> None:
    cluster.controller_works = False
    node = await unclean(cluster)
    await until(lambda: cluster.alterations != [])
    assert await answers(node) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5, "the controller has not agreed yet"
    refused = len(cluster.alterations)
    cluster.controller_works = True
    await until(lambda: len(node.traced("leader_recovered")) == 1)
    assert len(cluster.alterations) > refused > 0
    for asked in cluster.alterations[: refused + 1]:  # what is asked for behind them brings broker 1 back
        (data,) = asked.topics[0].partitions
        assert ([it.broker_id for it in data.new_isr_with_epochs], data.leader_recovery_state) == ([2], 0)
    assert not cluster.committed.topics[TOPIC].partitions[0].recovering


def of_a_transaction(value: str) -> bytearray:
    """The batch of a producer that is in a transaction."""
    data = bytearray(
        build_batch([Record(0, 1000, None, value.encode())], producer_id=7, producer_epoch=0, base_sequence=0)
    )
    data[22] |= TRANSACTIONAL_MASK
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return data


async def begins_a_transaction_in_vain(leader: Node) -> None:
    await until(lambda: leader.partition().serving is not None)
    started_runs = await leader.manager.produce(TOPIC, 0, of_a_transaction("started_runs"), 1, 5.0)
    assert started_runs.error is ErrorCode.UNSUPPORTED_VERSION
    assert "started_runs" not in leader.content(), "the next recovery would have to end it"


@pytest.mark.conforms("K704-6")
async def test_no_transaction_is_pending_when_a_recovery_ends(cluster: Cluster, /, gate: Gate) -> None:
    gate.open.set()
    await unclean(cluster)
    await begins_a_transaction_in_vain(cluster.nodes[2])
    cluster.elect(1, uncleanly=True)
    await cluster.hear()
    await begins_a_transaction_in_vain(cluster.nodes[1])


@pytest.mark.conforms("K704-5")
@played_by(tell, "tmp_path", high_watermark_checkpoint_interval_ms=600000)
async def test_recovery_rebuilds_epochs_and_high_watermark_on_disk(
    cluster: Cluster, /, tmp_path: Path, gate: Gate
) -> None:
    node = await unclean(cluster)
    log = node.partition().log
    log.epochs.replace([EpochEntry(0, 1), EpochEntry(1, 2)])
    assert log.durable_end_offset < log.log_end_offset
    gate.open.set()
    await until(lambda: len(cluster.alterations) == 1)
    assert log.durable_end_offset == log.log_end_offset == 2
    root = tmp_path / "n2"
    assert (root / f"{TOPIC}-0" / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 2\n"
    assert f"{TOPIC} 0 2\n" in (root / "replication-offset-checkpoint").read_text()


@pytest.mark.conforms("K704-9")
async def test_a_leader_that_is_killed_in_mid_recovery_starts_over(cluster: Cluster, /, gate: Gate) -> None:
    await unclean(cluster)
    assert gate.waiting == 1
    await cluster.kill(2)
    await cluster.start(2)
    cluster.elect(2)  # the controller still has the partition as recovering
    await cluster.hear()
    node = cluster.nodes[2]
    assert gate.waiting == 2
    assert await answers(node) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5
    gate.open.set()
    await until(lambda: len(node.traced("leader_recovered")) == 1)
    assert node.content() == ["a", "b"]


async def test_a_leader_deposed_during_recovery_sends_no_request(cluster: Cluster, /, gate: Gate) -> None:
    node = await unclean(cluster)
    cluster.elect(1, uncleanly=True)
    await cluster.hear()
    gate.open.set()
    await until(lambda: len(cluster.nodes[1].traced("leader_recovered")) == 1)
    await until(lambda: node.content() == ["a", "b", "lost"])
    assert {asked.broker_id for asked in cluster.alterations if len(asked.topics[0].partitions) == 1} >= {1}
    assert node.traced("leader_recovered") == []


async def test_a_log_that_turns_out_damaged_is_not_led(cluster: Cluster, /, tmp_path: Path, gate: Gate) -> None:
    node = await unclean(cluster)
    path = tmp_path / "n2" / f"{TOPIC}-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    gate.open.set()
    await until(lambda: node.disk_failures != [])
    assert "CRC" in str(node.disk_failures[0]) or "byte" in str(node.disk_failures[0])
    assert cluster.alterations == []
    assert (await node.produce("x")).error is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.conforms("K704-5")
async def test_a_log_during_a_rebuild_is_not_changed_by_others(cluster: Cluster, /, gate: Gate) -> None:
    """Segments that went meanwhile would be closed under the reader, or missing in the epochs that it finds."""
    node = await unclean(cluster)
    partition = node.partition()
    settings = TopicSettings.of({"cleanup.policy": "compact,delete", "retention.ms": "1"}, node.config)
    partition.configure(settings)
    assert isinstance(partition.role, PartitionLeader)
    assert await node.manager.delete_records(TOPIC, 0, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    await node.manager.move_start(partition, 1)
    assert partition.log.log_start_offset == 0
    assert partition.expired(1 << 60) is None
    assert partition.compaction is None
    gate.open.set()
    await until(lambda: len(node.traced("leader_recovered")) == 1)
    partition.configure(settings)
    assert partition.compaction is settings
    assert partition.expired(1 << 60) == 2
    assert await node.manager.delete_records(TOPIC, 0, 1) == (ErrorCode.NONE, 1)


async def deleted_in_mid_flush(cluster: Cluster, node: Node, held: HeldCommit, task: str) -> None:
    """The topic goes while a broker's first segment of many is being synced; nothing of that is the disk's fault."""
    await asyncio.to_thread(held.entered.wait, 20)
    cluster.delete_topic()
    deletion = asyncio.create_task(cluster.hear(node.id))
    await asyncio.sleep(0)
    held.go.set()
    await deletion
    await until(lambda: not any(task in repr(each) for each in asyncio.all_tasks()))
    assert node.disk_failures == []
    assert [len(node.traced(event)) for event in ("partition_failed", "partition_removed")] == [0, 1]


@pytest.mark.parametrize(
    ("node", "task"), [(1, "LeaderRecovery._recover"), (2, "Partition.make_durable")], ids=["recovery", "follower"]
)
@played_by(tell, "tmp_path", log_segment_bytes=1000)
async def test_a_topic_can_be_deleted_while_its_log_is_flushed(
    cluster: Cluster, /, node: int, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    for _ in range(30):
        await cluster.nodes[1].produce("v" * 300)
    held = HeldCommit(monkeypatch, ".log")
    if node == 1:
        cluster.elect(1, uncleanly=True)
    else:
        cluster.commit(ConfigRecord(2, TOPIC, "flush.messages", "1"))
    await cluster.hear(node)
    await deleted_in_mid_flush(cluster, cluster.nodes[node], held, task)


def recovering(**changes: Any) -> PartitionLeader:
    settings: dict[str, Any] = {
        "node_id": 1,
        "replicas": (1, 2),
        "isr": (1,),
        "leader_epoch": 5,
        "partition_epoch": 20,
        "epoch_start_offset": 10,
        "log_start_offset": 0,
        "committable_end": 10,
        "high_watermark": 4,
        "min_insync_replicas": 1,
        "lag_time_max": 10.0,
        "now": 0.0,
        "recovering": True,
    }
    return PartitionLeader(**{**settings, **changes})


@pytest.mark.conforms("K704-4", "K704-5")
def test_a_leader_in_recovery_commits_no_record_and_adds_no_member() -> None:
    leader = recovering()
    assert not leader.follower_fetched(2, broker_epoch=7, fetch_offset=10, log_start_offset=0, leader_end=10, now=1.0)
    assert (leader.high_watermark, leader.may_join(2)) == (4, False)
    assert leader.propose_recovered(70) is None, "it is not ready"
    leader.rebuilt()
    proposal = leader.propose_recovered(70)
    assert proposal is not None
    assert (proposal.isr, proposal.recovering) == ((1,), False)
    assert leader.propose_recovered(70) is None, "it is in flight"
    assert leader.isr_committed((1,), 21, 2.0)
    assert (leader.recovering, leader.high_watermark, leader.may_join(2)) == (False, 10, True)


@pytest.mark.conforms("K704-3")
def test_an_isr_update_without_a_recovery_state_ends_recovery() -> None:
    leader = recovering()
    assert leader.isr_committed((1,), 21, 1.0)
    assert not leader.recovering


@pytest.mark.conforms("H16")
def test_with_the_mutant_a_leader_alone_commits_below_the_minimum() -> None:
    for mutated in (False, True):
        leader = recovering(
            recovering=False, min_insync_replicas=2, mutants=Mutants(["hw_below_min_isr"] if mutated else ())
        )
        assert leader.high_watermark == (10 if mutated else 4)


@run_by(asyncio.run)
async def test_requests_before_the_start_of_shared_work_share_it() -> None:
    """Thousands of partitions recover at once, and one file has the marks of all."""
    ended, started_runs, ready = asyncio.Event(), [], [0]

    async def work() -> None:
        started_runs.append(list(ready))
        await ended.wait()

    shared = SharedWork(work)
    first = asyncio.create_task(shared())
    await asyncio.sleep(0)
    ready.extend(range(1, 10))
    later = [asyncio.create_task(shared()) for _ in range(9)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in (first, *later))
    ended.set()
    await asyncio.gather(first, *later)
    assert started_runs == [[0], list(range(10))], "requests after a start share the next run"


@run_by(asyncio.run)
async def test_failed_shared_work_is_repeated_for_the_next_request() -> None:
    left = [OSError("full")]

    async def work() -> None:
        await asyncio.sleep(0)
        if left:
            raise left.pop()

    shared = SharedWork(work)
    results = await asyncio.gather(shared(), shared(), shared(), return_exceptions=True)
    assert [type(each) for each in results] == [OSError, type(None), type(None)]
