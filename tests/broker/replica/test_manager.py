"""Replica managers together: replication, fail-over, and the state that a broker keeps across restarts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.metadata_records import PartitionRecord
from broker.protocol.records import Record, build_batch
from broker.replica.follower import PartitionFollower
from broker.replica.queries import EARLIEST, MAX_TIMESTAMP, OffsetFound
from broker.replica.reads import FetchLimits, FetchPosition, PartitionRead
from tests.broker.replica.cluster import TOPIC, TOPIC_ID, Cluster, batch, tell, three, until, values_of
from tests.stories import played_by

STORIES = played_by(tell, "tmp_path")


@pytest.mark.parametrize("flush", [0, 1])
def test_an_acknowledged_record_is_on_every_member_of_the_isr(tmp_path: Path, flush: int) -> None:
    async def story(cluster: Cluster) -> None:
        await three(cluster)
        result = await cluster.nodes[1].produce("a", "b")
        assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)
        for node in cluster.nodes.values():
            assert node.content() == ["a", "b"]
            if flush:
                assert node.partition().log.durable_end_offset == 2
        assert values_of(cluster.nodes[1].read()) == ["a", "b"]

    tell(tmp_path, story, log_flush_interval_messages=flush)


@pytest.mark.conforms("K101-15")
@played_by(tell, "tmp_path", log_flush_interval_messages=1)
async def test_a_new_leader_commits_the_durable_part_of_its_log(cluster: Cluster, /) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    node = cluster.nodes[1]
    node.partition().log.append_as_leader(batch("a"), node.leader.leader_epoch)
    assert not node.partition().durable
    cluster.elect(1)
    await cluster.hear(1)
    assert node.leader.high_watermark == node.partition().log.durable_end_offset == 1


@pytest.mark.conforms("K101-15")
@played_by(tell, "tmp_path", log_flush_interval_messages=1)
async def test_appends_during_a_flush_are_committed_by_the_next(cluster: Cluster, /) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    node, partition = cluster.nodes[1], cluster.nodes[1].partition()
    flush, flushes, go = partition.log.flush, 0, asyncio.Event()

    async def first_free_then_held() -> int:
        nonlocal flushes
        flushes += 1
        if flushes > 1:
            await go.wait()
            return await flush()
        durable = await flush()
        partition.append(batch("b"), 1, 5.0)
        return durable

    partition.log.flush = first_free_then_held  # type: ignore[method-assign, assignment]
    assert (await node.produce("a")).error is ErrorCode.NONE
    log, seen = partition.log, values_of(node.read())
    ends = (log.log_end_offset, log.durable_end_offset, node.leader.high_watermark)
    go.set()
    assert (ends, seen) == ((2, 1, 1), ["a"])
    await until(lambda: node.leader.high_watermark == 2)
    assert partition.durable


@pytest.mark.conforms("K101-1", "K101-3", "K101-8")
async def test_every_replica_has_the_leaders_epochs_in_its_file(cluster: Cluster, /, tmp_path: Path) -> None:
    await three(cluster)
    await cluster.nodes[1].produce("a")
    cluster.elect(2)
    await cluster.hear()
    await cluster.nodes[2].produce("b")
    for node in (1, 2, 3):
        text = (tmp_path / f"n{node}" / f"{TOPIC}-0" / "leader-epoch-checkpoint").read_text()
        assert text == "0\n2\n0 0\n1 1\n"


@pytest.mark.conforms("K101-12", "K101-7")
async def test_a_killed_leader_restarts_as_a_follower_without_its_unreplicated_records(cluster: Cluster, /) -> None:
    await three(cluster)
    await cluster.nodes[1].produce("a")
    cluster.cut |= {(2, 1), (3, 1)}
    await until(lambda: len(cluster.nodes[1].partition().replica_fetches) == 0)
    await cluster.nodes[1].produce("lost 1", "lost 2", acks=1)
    await cluster.kill(1)
    cluster.cut.clear()
    cluster.elect(2, isr=[2, 3])
    await cluster.hear()
    await cluster.nodes[2].produce("b")
    await cluster.start(1)
    await cluster.hear()
    await until(lambda: cluster.nodes[1].partition().log.log_end_offset == 2)
    assert cluster.nodes[1].content() == cluster.nodes[2].content() == ["a", "b"]
    (cut,) = cluster.nodes[1].traced("truncated")
    assert (cut["from_offset"], cut["to_offset"], cut["rule"]) == (3, 1, "epoch")


@pytest.mark.conforms("K101-10", "H12")
async def test_metadata_from_before_the_own_registration_gives_no_role(cluster: Cluster, /) -> None:
    await three(cluster)
    await cluster.nodes[1].produce("a")
    await cluster.kill(1)
    replayed = cluster.committed.offset
    await cluster.start(1)
    node = cluster.nodes[1]
    changed = set()
    for offset in range(replayed + 1):
        changed |= node.image.apply(cluster.records[offset], offset).partitions
    await node.manager.apply(node.image, changed)
    assert node.partition().role is None
    cluster.elect(2, isr=[2, 3])
    await cluster.hear()
    assert isinstance(node.partition().role, PartitionFollower)


@pytest.mark.conforms("H24")
async def test_the_end_of_leadership_answers_every_waiting_request(cluster: Cluster, /) -> None:
    await three(cluster)
    leader = cluster.nodes[1]
    cluster.cut |= {(2, 1), (3, 1)}
    producing = asyncio.ensure_future(leader.produce("a", timeout=60.0))
    consuming = asyncio.ensure_future(consume(cluster, 1, wait=60.0))
    await until(lambda: len(leader.partition().consumer_fetches) == 1 and len(leader.partition().commits) == 1)
    cluster.elect(2, isr=[2, 3])
    await cluster.hear(1)
    async with asyncio.timeout(60):
        # It was appended, and may yet be committed: to call it refused would have clients send it again.
        assert (await producing).error is ErrorCode.REQUEST_TIMED_OUT
        assert (await consuming).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def consume(cluster: Cluster, node: int, *, offset: int = 0, wait: float) -> PartitionRead:
    limits = FetchLimits(max_wait=wait, max_bytes=1 << 20)
    positions = [FetchPosition(TOPIC, 0, offset, 1 << 20)]
    manager = cluster.nodes[node].manager
    return (manager.fetch_now(limits, positions) or await manager.wait_for_fetch(limits, positions))[0]


async def test_a_produce_that_is_not_replicated_in_time_times_out(cluster: Cluster, /) -> None:
    await three(cluster)
    cluster.cut |= {(2, 1), (3, 1)}
    result = await cluster.nodes[1].produce("a", timeout=0.05)
    assert (result.error, result.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)


async def test_a_parked_consumer_wakes_when_the_high_watermark_rises(cluster: Cluster, /) -> None:
    await three(cluster)
    leader = cluster.nodes[1]
    waiting = asyncio.ensure_future(consume(cluster, 1, wait=5.0))
    await until(lambda: len(leader.partition().consumer_fetches) == 1)
    await leader.produce("a")
    assert values_of(await waiting) == ["a"]


@played_by(tell, "tmp_path", replica_fetch_wait_max_ms=60000)
async def test_a_parked_replica_gets_a_new_high_watermark_only_with_its_next_answer(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    assert (await cluster.nodes[1].produce("a")).error is ErrorCode.NONE
    follower = cluster.nodes[2].partition()
    assert (follower.log.log_end_offset, follower.high_watermark) == (1, 0)
    await asyncio.sleep(0.05)
    assert follower.high_watermark == 0  # its fetch is parked
    await cluster.nodes[1].produce("b")
    assert follower.high_watermark == 1


@pytest.mark.conforms("H3")
async def test_requests_of_another_leader_epoch_are_refused(cluster: Cluster, /) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    cluster.elect(1)
    await cluster.hear()
    node = cluster.nodes[1]
    assert node.read(current_leader_epoch=0).error is ErrorCode.FENCED_LEADER_EPOCH
    assert node.read(current_leader_epoch=2).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    for epoch, error in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert node.manager.list_offset(TOPIC, 0, -1, epoch).error is error
        assert node.manager.offset_for_leader_epoch(TOPIC, 0, epoch, 0).error is error


@pytest.mark.conforms("H2")
async def test_a_leader_without_records_has_the_start_of_its_epoch(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    await cluster.nodes[1].produce("a", "b")
    cluster.elect(2)
    await cluster.hear()
    node = cluster.nodes[2]
    assert node.partition().log.epochs.entries == ((0, 0), (1, 2))
    assert node.manager.offset_for_leader_epoch(TOPIC, 0, 1, 1).end == (1, 2)


@pytest.mark.conforms("K101-5", "K101-6")
async def test_only_the_leader_answers_the_end_of_an_epoch(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    await cluster.nodes[1].produce("a", "b")
    cluster.elect(1)
    await cluster.hear()
    await cluster.nodes[1].produce("c")
    ask = cluster.nodes[1].manager.offset_for_leader_epoch
    assert ask(TOPIC, 0, 1, 0).end == (0, 2)
    assert ask(TOPIC, 0, 1, 1).end == (1, 3)
    assert ask(TOPIC, 7, 1, 1).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other = cluster.nodes[2].manager.offset_for_leader_epoch(TOPIC, 0, 1, 0)
    assert other.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.conforms("H6")
async def test_a_diverging_fetch_gets_the_point_of_divergence_and_does_not_count(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    cluster.cut.add((2, 1))
    leader = cluster.nodes[1]
    await leader.produce("a", "b", acks=1)
    cluster.elect(1)
    await cluster.hear(1)
    await leader.produce("c", acks=1)
    position = FetchPosition(TOPIC, 0, 3, 1 << 20, current_leader_epoch=1, last_fetched_epoch=0)
    (read,) = leader.manager.fetch_now(FetchLimits(replica_id=2, replica_epoch=1), [position]) or []
    assert read.diverging == (0, 2)
    assert read.size == 0
    assert leader.leader.follower(2).log_end_offset == -1
    assert leader.leader.high_watermark == 0


@pytest.mark.conforms("H15")
async def test_a_follower_without_its_epochs_is_refused_and_does_not_count(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    cluster.cut.add((2, 1))
    leader = cluster.nodes[1]
    await leader.produce("a", "b", acks=1)
    epoch = leader.leader.leader_epoch
    for replica_epoch, leader_epoch, error in (
        (-1, epoch, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, -1, ErrorCode.FENCED_LEADER_EPOCH),
    ):
        before = leader.leader.follower(2).log_end_offset
        position = FetchPosition(TOPIC, 0, 2, 1 << 20, leader_epoch, epoch)
        (read,) = leader.manager.fetch_now(FetchLimits(replica_id=2, replica_epoch=replica_epoch), [position]) or []
        assert (read.error, read.size) == (error, 0)
        assert leader.leader.follower(2).log_end_offset == before


@pytest.mark.conforms("H3")
@pytest.mark.parametrize("by_replica", [False, True])
async def test_only_a_client_may_ask_for_offsets_without_an_epoch(cluster: Cluster, /, by_replica: bool) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    cluster.elect(1)
    await cluster.hear(1)
    manager = cluster.nodes[1].manager
    answers = [
        manager.list_offset(TOPIC, 0, EARLIEST, -1, by_replica=by_replica).error,
        manager.offset_for_leader_epoch(TOPIC, 0, -1, 0, by_replica=by_replica).error,
    ]
    assert answers == [ErrorCode.FENCED_LEADER_EPOCH if by_replica else ErrorCode.NONE] * 2


async def test_a_fetch_of_an_earlier_topic_of_the_same_name_gets_no_records(cluster: Cluster, /) -> None:
    """The metadata may have the recreated topic already, and its follower may fetch before the leader has its
    replica."""
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    leader = cluster.nodes[1]
    await leader.produce("a")
    position = FetchPosition(TOPIC, 0, 0, 1 << 20, leader.leader.leader_epoch, topic_id=b"another topic's "[:16])
    for limits in (FetchLimits(), FetchLimits(replica_id=2, replica_epoch=1)):
        (read,) = leader.manager.fetch_now(limits, [position]) or []
        assert (read.error, read.size) == (ErrorCode.INCONSISTENT_TOPIC_ID, 0)


async def test_consumers_get_no_records_without_a_lease(cluster: Cluster, /) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    node = cluster.nodes[1]
    await node.produce("a")
    node.lease = False
    assert node.read().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.manager.list_offset(TOPIC, 0, -1).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@played_by(tell, "tmp_path", replica_fetch_wait_max_ms=60000, replica_lag_time_max_ms=60000)
async def test_a_new_leader_does_not_show_a_high_watermark_that_lags(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    await cluster.nodes[1].produce("a")
    await cluster.kill(1)
    cluster.elect(2)  # the ISR still has 1, which does not come back yet
    await cluster.hear()
    node = cluster.nodes[2]
    assert node.leader.high_watermark == 0
    assert node.manager.list_offset(TOPIC, 0, -1).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert (node.read().high_watermark, node.read().size) == (-1, 0)
    cluster.elect(2, isr=[2])
    await cluster.hear()
    assert node.manager.list_offset(TOPIC, 0, -1).offset == 1
    assert node.read().high_watermark == 1


@pytest.mark.conforms("H33")
@played_by(tell, "tmp_path", replica_lag_time_max_ms=60000)
async def test_a_lookup_by_time_finds_only_committed_records(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    node = cluster.nodes[1]
    await node.produce("a", "b")
    await cluster.kill(2)
    later = bytearray(build_batch([Record(0, 5_000, None, b"c")]))
    node.partition().log.append_as_leader(later, node.leader.leader_epoch)
    assert (node.leader.high_watermark, node.partition().log.log_end_offset) == (2, 3)
    assert node.manager.list_offset(TOPIC, 0, 5_000) == OffsetFound()
    assert node.manager.list_offset(TOPIC, 0, MAX_TIMESTAMP).timestamp == 1_000
    assert node.manager.list_offset(TOPIC, 0, 1_000).offset == 0


@pytest.mark.parametrize("clean", [True, False])
async def test_the_high_watermark_survives_a_restart(cluster: Cluster, /, clean: bool) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    node = cluster.nodes[1]
    await node.produce("a", "b")
    if clean:
        await cluster.stop(1)
    else:
        await until(lambda: any(it["high_watermark"] == 2 for it in node.traced("high_watermark_checkpointed")))
        await cluster.kill(1)
    await cluster.start(1, clean=clean)
    assert cluster.nodes[1].partition().high_watermark == 2
    assert cluster.nodes[1].content() == ["a", "b"]


async def test_a_new_topic_does_not_reuse_a_deleted_one_of_its_name(cluster: Cluster, /, tmp_path: Path) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    await cluster.nodes[1].produce("a")
    cluster.delete_topic()
    await cluster.hear()
    assert not (tmp_path / "n1" / f"{TOPIC}-0").exists()
    assert (await cluster.nodes[1].produce("b")).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await cluster.create_topic([1])
    partition = cluster.nodes[1].partition()
    assert (partition.log.log_end_offset, partition.high_watermark) == (0, 0)


async def test_a_topic_recreated_meanwhile_is_distinguished_from_the_old_one(
    cluster: Cluster, /, tmp_path: Path
) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    await cluster.nodes[1].produce("a")
    await cluster.stop(1)
    file = tmp_path / "n1" / f"{TOPIC}-0" / "partition.metadata"
    assert file.read_text() == "version: 0\ntopic_id: dG9waWMtaWQtb2YtbG9nIQ\n"
    file.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    await cluster.start(1)
    cluster.elect(1)
    await cluster.hear()
    assert cluster.nodes[1].partition().log.log_end_offset == 0


async def test_a_directory_without_its_metadata_file_is_the_rest_of_a_deletion(
    cluster: Cluster, /, tmp_path: Path
) -> None:
    (tmp_path / "n1" / "gone-0").mkdir(parents=True)
    (tmp_path / "n1" / "gone-0" / "00000000000000000000.log").write_bytes(b"rest")
    await cluster.start(1)
    assert not (tmp_path / "n1" / "gone-0").exists()


async def test_the_last_progress_is_traced_when_the_partition_is_idle(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    for value in range(20):
        await cluster.nodes[1].produce(str(value))

    def last(node: int) -> tuple[int, int]:
        event = cluster.nodes[node].traced("replica_progress")[-1]
        return (event["log_end_offset"], event["high_watermark"])

    await until(lambda: last(1) == last(2) == (20, 20))
    assert len(cluster.nodes[1].traced("replica_progress")) < 15


@played_by(tell, "tmp_path", replica_fetch_wait_max_ms=60000, replica_lag_time_max_ms=60000)
async def test_a_new_partition_does_not_wait_for_a_parked_fetch(cluster: Cluster, /) -> None:
    await cluster.start(1, 2)
    await cluster.create_topic([1, 2])
    leader = cluster.nodes[1]
    await until(lambda: len(leader.partition().replica_fetches) == 1)
    cluster.commit(
        PartitionRecord(
            partition_id=1,
            topic_id=TOPIC_ID,
            replicas=[1, 2],
            isr=[1, 2],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
    )
    await cluster.hear()
    assert (await leader.manager.produce(TOPIC, 1, batch("a"), -1, 5.0)).error is ErrorCode.NONE


def kip_101_scenario_1(cluster: Cluster) -> Any:
    """The follower bounces before it hears that m2 is committed; then the leader dies and the follower leads."""

    async def story() -> list[str]:
        await cluster.start(1, 2)
        await cluster.create_topic([1, 2])
        await cluster.nodes[1].produce("m1")
        await cluster.nodes[1].produce("m2")
        follower = cluster.nodes[2]
        await until(lambda: any(it["high_watermark"] == 1 for it in follower.traced("high_watermark_checkpointed")))
        await cluster.kill(2)
        cluster.records_flow = False
        await cluster.start(2)
        cluster.elect(1)
        await cluster.hear()
        await until(lambda: bool(cluster.nodes[2].traced("truncated")))
        await cluster.kill(1)
        cluster.elect(2, isr=[2])
        await cluster.hear()
        return cluster.nodes[2].content()

    return story()


@pytest.mark.conforms("K101-14", "K101-15")
@played_by(tell, "tmp_path", replica_fetch_wait_max_ms=60000)
async def test_kip_101_scenario_1_keeps_the_acknowledged_record(cluster: Cluster, /) -> None:
    assert await kip_101_scenario_1(cluster) == ["m1", "m2"]


@played_by(tell, "tmp_path", mutants=("truncate_to_hw",), replica_fetch_wait_max_ms=60000)
async def test_kip_101_scenario_1_loses_it_with_the_mutant(cluster: Cluster, /) -> None:
    assert await kip_101_scenario_1(cluster) == ["m1"]


async def test_a_fetch_by_the_leader_from_itself_is_refused(cluster: Cluster, /) -> None:
    await cluster.start(1)
    await cluster.create_topic([1])
    position = FetchPosition(TOPIC, 0, 0, 1 << 20, current_leader_epoch=0, topic_id=TOPIC_ID)
    reads = cluster.nodes[1].manager.fetch_now(FetchLimits(replica_id=1, replica_epoch=0), [position])
    assert reads is not None
    assert reads[0].error is ErrorCode.REPLICA_NOT_AVAILABLE
