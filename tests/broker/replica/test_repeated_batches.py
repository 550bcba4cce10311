"""A batch of an idempotent producer that comes again while the first one is not committed."""

import asyncio
from pathlib import Path

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.metadata_records import ProducerIdsRecord
from broker.protocol.records import Record, build_batch
from broker.replica.manager import ProduceResult
from tests.broker.replica.cluster import TOPIC, Cluster, Node, until
from tests.stories import run_by

STORIES = run_by(asyncio.run)


def numbered(value: str, sequence: int) -> bytearray:
    """A batch of producer 7 with one record."""
    records = [Record(0, 1000, None, value.encode())]
    return bytearray(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence))


@pytest.mark.conforms("K98-3")
async def test_a_repeated_batch_waits_for_its_commit(tmp_path: Path) -> None:
    async with Cluster(tmp_path, replica_lag_time_max_ms=60_000) as cluster:
        await cluster.start(1, 2, 3)
        await cluster.create_topic([1, 2, 3])
        leader = cluster.nodes[1]
        cluster.cut |= {(2, 1), (3, 1)}

        def sent() -> asyncio.Future[ProduceResult]:
            return asyncio.ensure_future(leader.manager.produce(TOPIC, 0, numbered("a", 0), -1, 60.0))

        first = sent()
        await until(lambda: len(leader.partition().commits) == 1)
        again = sent()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not again.done(), "no other replica has the record yet"
        cluster.cut.clear()
        answers = await asyncio.gather(first, again)
        assert [(it.error, it.base_offset) for it in answers] == [(ErrorCode.NONE, 0)] * 2
        assert leader.content() == ["a"]


async def test_a_truncated_batch_is_accepted_again_after_a_retention_check(tmp_path: Path) -> None:
    """A segment that starts during a truncation would have a snapshot of the producers that still includes the
    batch."""
    async with Cluster(tmp_path, replica_lag_time_max_ms=60_000) as cluster:
        await cluster.start(1, 2)
        await cluster.create_topic([1, 2], configs={"retention.ms": "1000"})
        node = cluster.nodes[1]
        assert (await node.manager.produce(TOPIC, 0, numbered("a", 0), -1, 5.0)).error is ErrorCode.NONE
        cluster.cut |= {(1, 2), (2, 1)}
        assert (await node.manager.produce(TOPIC, 0, numbered("b", 1), 1, 5.0)).base_offset == 1
        cluster.elect(2, isr=[2])
        await cluster.hear(2)
        partition = node.partition()

        async def retention() -> None:
            while True:
                partition.expired(10_000_000)
                await asyncio.sleep(0)

        looking = asyncio.create_task(retention())
        cluster.cut.clear()
        await cluster.hear()
        await until(lambda: set(cluster.committed.topics[TOPIC].partitions[0].isr) == {1, 2})
        looking.cancel()
        assert node.content() == ["a"]
        cluster.elect(1, isr=[1, 2])
        await cluster.hear()
        again = await node.manager.produce(TOPIC, 0, numbered("b", 1), -1, 5.0)
        assert (again.error, node.content()) == (ErrorCode.NONE, ["a", "b"])


async def separated_after_a_record(cluster: Cluster) -> tuple[Node, Node]:
    """The leader and its follower, which have a record of a producer and no connection."""
    await cluster.start(1, 2)
    cluster.commit(ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=1000))
    await cluster.create_topic([1, 2])
    old, new = cluster.nodes[1], cluster.nodes[2]
    assert (await old.manager.produce(TOPIC, 0, numbered("a", 0), -1, 5.0)).error is ErrorCode.NONE
    cluster.cut |= {(1, 2), (2, 1)}
    return old, new


@pytest.mark.conforms("H34")
@pytest.mark.parametrize(
    ("divergent", "batches", "start"),
    [
        (2, ["x", "y"], 3),
        (2, ["x", "y", "z"], 3),
        (4, ["x", "y"], 3),
        (4, ["x", "y", "z"], 3),
        (1, ["x", "y", "z"], 4),
        (1, ["xy"], 2),
        (3, ["xy", "z"], 2),
    ],
)
async def test_a_batch_below_the_leaders_start_that_was_never_committed_is_accepted_again(
    tmp_path: Path, divergent: int, batches: list[str], start: int
) -> None:
    """`divergent`: the number of batches after the committed one that only the old leader has. `batches`: those of its
    successor, one record for each character, of which those below `start` are deleted."""
    async with Cluster(tmp_path, replica_lag_time_max_ms=60_000) as cluster:
        old, new = await separated_after_a_record(cluster)
        for sequence in range(1, divergent + 1):
            assert (await old.manager.produce(TOPIC, 0, numbered("b", sequence), 1, 5.0)).error is ErrorCode.NONE
        cluster.elect(2, isr=[2])
        await cluster.hear(2)
        for values in batches:
            assert (await new.produce(*values)).error is ErrorCode.NONE
        await new.manager.delete_records(TOPIC, 0, start, timeout_s=0.0)
        assert new.partition().log.log_start_offset == start
        await cluster.hear(1)
        cluster.cut.clear()
        await until(lambda: set(cluster.committed.topics[TOPIC].partitions[0].isr) == {1, 2})
        log = old.partition().log
        assert set(log.epochs.entries) <= set(new.partition().log.epochs.entries)
        assert log.producers.find(7) is None, "the log has no committed batch of this producer"
        cluster.elect(1, isr=[1, 2])
        await cluster.hear()
        again = await old.manager.produce(TOPIC, 0, numbered("b", 1), -1, 5.0)
        assert (again.error, again.base_offset) == (ErrorCode.NONE, 1 + sum(map(len, batches)))
        assert new.content()[-1] == "b"


@pytest.mark.conforms("H34")
@pytest.mark.parametrize(
    ("batches", "start"), [(["x", "y"], 0), (["x", "y"], 3), (["x", "y", "z"], 2), (["xy", "z"], 4), (["x", "yz"], 3)]
)
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_a_deleted_batch_that_no_other_replica_had_is_accepted_again(
    tmp_path: Path, restarted: bool, batches: list[str], start: int
) -> None:
    """The old leader alone has batches 1 and 2 and deletes its whole log. `batches`: those of its successor, which is
    elected uncleanly and deletes the records below `start`."""
    async with Cluster(tmp_path, replica_lag_time_max_ms=60_000) as cluster:
        old, new = await separated_after_a_record(cluster)
        cluster.elect(1, isr=[1])
        await cluster.hear(1)
        for sequence in (1, 2):
            assert (await old.manager.produce(TOPIC, 0, numbered("b", sequence), -1, 5.0)).error is ErrorCode.NONE
        await old.manager.delete_records(TOPIC, 0, 3, timeout_s=0.0)
        cluster.elect(2, isr=[2])
        await cluster.hear(2)
        for values in batches:
            assert (await new.produce(*values)).error is ErrorCode.NONE
        end = 1 + sum(map(len, batches))
        await new.manager.delete_records(TOPIC, 0, min(start, end), timeout_s=0.0)
        if restarted:
            await cluster.stop(1)
            await cluster.start(1)
            old = cluster.nodes[1]
        await cluster.hear()
        cluster.cut.clear()
        await until(lambda: set(cluster.committed.topics[TOPIC].partitions[0].isr) == {1, 2})
        assert old.partition().log.log_end_offset == end
        cluster.elect(1, isr=[1, 2])
        await cluster.hear()
        again = await old.manager.produce(TOPIC, 0, numbered("b", 1), -1, 5.0)
        assert (again.error, again.base_offset) == (ErrorCode.NONE, end)
        assert new.content()[-1] == "b"
