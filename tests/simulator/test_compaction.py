"""Compaction under crashes: a log has its state before or after a pass; the latest record of each key is kept."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from broker.errors import ErrorCode
from broker.log.epochs import EpochEntry
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.protocol.records import Record, build_batch, iter_batches, read_records, validate_batch
from broker.replica.compactor import Cleaner, SegmentSizes
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from simulator.disk import FileSystem, SimulatedDisk
from simulator.loop import new_loop
from tests.simulator.stories import in_cluster

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100, compacted=True)
KEYS, RECORDS = 5, 60
FATAL = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)

Content = dict[int, tuple[bytes, bytes]]


def content(log: PartitionLog) -> Content:
    """Keys and values by offset, every batch checked."""
    data = b"".join(file.read(at, length) for file, at, length in log.locate(log.log_start_offset, 1 << 30, 1 << 60))
    found: Content = {}
    for position, _ in iter_batches(data):
        validate_batch(data, position, compacted=True)
        found |= {record.offset: (record.key or b"", record.value or b"") for record in read_records(data, position)}
    return found


def latest(records: Content) -> Content:
    """Of each key the last record."""
    last = {key: offset for offset, (key, _) in sorted(records.items())}
    return {offset: records[offset] for offset in sorted(last.values())}


# --- one log, and a power cut at any moment


async def written(disk: SimulatedDisk) -> PartitionLog:
    log = await PartitionLog.open(disk, "t-0", CONFIG, clean_shutdown=False)
    for number in range(RECORDS):
        if number % 15 == 0:
            await log.start_leader_epoch(number)
        key, value = b"key-%d" % (number % KEYS), b"%d" % number
        log.append_as_leader(bytearray(build_batch([Record(0, 1, key, value)])), log.last_epoch)
    log.roll()
    await log.flush()
    return log


async def compact(disk: SimulatedDisk, log: PartitionLog) -> None:
    cleaner = Cleaner(disk, log, wanted=lambda: True, replace=log.replace_segments)
    sizes = SegmentSizes(segment=1_500, index_interval=100)
    assert await cleaner.clean(log.log_end_offset, now_ms=1, delete_retention_ms=0, sizes=sizes)


class Cut(NamedTuple):
    """What the log held, what compaction makes of it, the log and the names of its files after the cut, and whether the
    pass was over by then."""

    before: Content
    after: Content
    log: PartitionLog
    over: bool
    names: list[str]


def cut_while_compacting(seed: int, file_system: FileSystem, steps: int) -> Cut:
    rng, loop = random.Random(seed), new_loop()
    disk = SimulatedDisk(loop, random.Random(seed), file_system=file_system)
    log = loop.run_until_complete(written(disk))
    before = content(log)
    task = loop.create_task(compact(disk, log))
    loop.run_until_complete(turns(steps))
    over = task.done()
    disk.power_loss(rng, commit=rng.random() < 0.5)
    task.cancel()
    again = loop.run_until_complete(
        PartitionLog.open(disk, "t-0", CONFIG, clean_shutdown=False, recovery_point=RECORDS)
    )
    return Cut(before, latest(before), again, over, disk.list("t-0"))


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0.0002)


@pytest.mark.conforms("K101-11")
@pytest.mark.parametrize("file_system", list(FileSystem))
def test_a_power_cut_leaves_old_or_compacted_segments(file_system: FileSystem) -> None:
    seen = set()
    for seed in range(60):
        before, after, log, over, names = cut_while_compacting(seed, file_system, steps=seed * 4)
        found = content(log)
        assert log.log_end_offset == RECORDS
        assert latest(found) == after, "of each key the latest record is there, at its offset"
        assert found.items() <= before.items()
        assert log.epochs.entries == tuple(EpochEntry(epoch, epoch) for epoch in range(0, RECORDS, 15))
        for segment, behind in zip(log.segments, log.segments[1:], strict=False):
            assert segment.next_offset == behind.base_offset
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        if over:
            assert found == after
        seen.add("new" if found == after else "old" if found == before else "between two groups")
    assert {"new", "old"} <= seen


# --- a cluster of three


TOPIC = "log"
PROPERTIES = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "log.flush.interval.messages": "1",
    "log.segment.bytes": "4096",
    "log.cleanup.policy": "compact",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.cleaner.delete.retention.ms": "500",
}


@dataclass
class Acknowledged:
    """The acknowledgements of a producer: of each key the last acknowledged value."""

    acknowledged: dict[bytes, int] = field(default_factory=dict)
    refused: list[ErrorCode] = field(default_factory=list)


async def produce(cluster: SimulatedCluster, answers: Acknowledged, stopping: asyncio.Event) -> None:
    """An idempotent producer, which sends each record until it is acknowledged."""
    client = SimulatedClient(cluster.addresses)
    producer_id = (await client.init_producer_id(60.0)).producer_id
    sequence = 0
    while not stopping.is_set():
        key = b"key-%d" % cluster.rng.randrange(KEYS)
        while True:
            try:
                await client.produce(
                    TOPIC, 0, [b"%d" % sequence], timeout=0.5, producer_id=producer_id, sequence=sequence, key=key
                )
                break
            except UncertainError:
                await asyncio.sleep(0.05)
            except RefusedError as refused:
                if refused.code in FATAL:
                    answers.refused.append(refused.code)
                    return
                await asyncio.sleep(0.05)
        answers.acknowledged[key] = sequence
        sequence += 1
        await asyncio.sleep(0.004)


async def inject(cluster: SimulatedCluster) -> None:
    names = cluster.rng.sample(sorted(cluster.machines), 3)
    match cluster.rng.choice(("kill", "power-loss", "power-loss-all", "partition-one")):
        case "kill":
            cluster.kill(names[0])
        case "power-loss":
            cluster.power_loss(names[0])
        case "power-loss-all":
            cluster.power_loss()
        case "partition-one":
            cluster.partition(names[:1], names[1:])
    await asyncio.sleep(cluster.rng.uniform(0.1, 3.0))
    cluster.heal()
    cluster.start()
    await cluster.ready()


@pytest.mark.conforms("K101-11")
@pytest.mark.parametrize("seed", range(1, 5))
@in_cluster("seed", properties=PROPERTIES)
async def test_the_latest_acknowledged_record_of_each_key_survives_all_faults(cluster: SimulatedCluster, /) -> None:
    cluster.start()
    await cluster.ready()
    client, answers, stopping = SimulatedClient(cluster.addresses), Acknowledged(), asyncio.Event()
    await client.create_topic(TOPIC)
    producer = asyncio.create_task(produce(cluster, answers, stopping))
    for _ in range(6):
        await asyncio.sleep(cluster.rng.uniform(0.5, 2.0))
        await inject(cluster)
    stopping.set()
    await asyncio.wait_for(producer, 60.0)
    assert answers.refused == []
    records = await client.read_all(TOPIC, 0)
    held = {record.key or b"": int(record.value or b"-1") for record in records}
    assert held == answers.acknowledged
    logs = await replicas(cluster)
    assert len({log.log_end_offset for log in logs}) == 1
    assert all(latest(content(log)) == latest(content(logs[0])) for log in logs)
    for log in logs:  # a leader knows of epochs without records, too
        known, known_first = dict(log.epochs.entries), dict(logs[0].epochs.entries)
        assert {known[epoch] - known_first[epoch] for epoch in known.keys() & known_first.keys()} == {0}
    assert all(len(content(log)) < log.log_end_offset / 2 for log in logs), "compaction has removed most"
    assert len(cluster.journal.of("log_compacted")) > 6
    assert cluster.journal.of("log_uncleanable") == cluster.journal.of("partition_failed") == []


async def replicas(cluster: SimulatedCluster) -> list[PartitionLog]:
    """The logs of all replicas, once they are as long as the leader's."""
    logs: list[PartitionLog] = []
    for name in cluster.machines:
        partition = cluster.node(name).replicas.partition(TOPIC, 0)
        assert partition is not None
        logs.append(partition.log)
    await cluster.until(lambda: len({log.log_end_offset for log in logs}) == 1)
    await asyncio.sleep(2.0)
    return logs
