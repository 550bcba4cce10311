"""A log's state of its producers: after appends, as a follower, after truncations, stops and power cuts."""

import asyncio
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from crc32c import crc32c

from broker.disk import RealDisk
from broker.errors import ErrorCode, ProtocolError
from broker.log.append_validation import AppendInfo
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.producer_snapshots import ProducerSnapshots
from broker.log.recovery_points import RecoveryPoints
from broker.log.validation import admit
from broker.producers.producer_state import MAX_ID, NO_ID, ProducerState, Sequenced, Written
from broker.protocol.records import Record, build_batch
from simulator.disk import FileSystem, Inode, SimulatedDisk
from simulator.loop import new_loop
from tests.broker.log.making import DIRECTORY, SMALL, in_loop, life_of, open_log, values

STORIES = in_loop
P = 7
KEY = ("log", 0)


def numbered(sequence: int, *texts: str, producer: int = P, epoch: int = 0) -> bytearray:
    """An idempotent producer's batch."""
    records = [Record(0, 0, None, text.encode()) for text in texts]
    return bytearray(
        build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, leader_epoch=-1)
    )


def write(log: PartitionLog, first: int, count: int) -> None:
    """`count` batches of one record with consecutive sequences, large enough for three in a segment."""
    for sequence in range(first, first + count):
        log.append_as_leader(numbered(sequence, f"{sequence:0300d}"), log.last_epoch)


def content(log: PartitionLog) -> dict[int, tuple[int, list[Written]]]:
    return {producer_id: (it.epoch, list(it.batches)) for producer_id, it in log.producers}


def snapshots(root: Path) -> list[int]:
    return [int(path.stem) for path in sorted((root / DIRECTORY).glob("*.snapshot"))]


def snapshots_of(disk: SimulatedDisk) -> list[int]:
    return [int(name.split(".")[0]) for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]


def written_anew(log: PartitionLog) -> ProducerState:
    """What the batches of a log say, read from its start."""
    from broker.log.append_validation import Batch
    from broker.protocol.records import iter_batches

    state = ProducerState()
    for _, header in iter_batches(log.read(log.log_start_offset, 1 << 30, log.log_end_offset)):
        batch = Batch.of(header)
        if batch.sequenced is not None:
            state.record(batch.sequenced, batch.offset, batch.max_timestamp, 0.0)
    return state


def agrees(log: PartitionLog) -> bool:
    anew = {producer_id: (it.epoch, list(it.batches)) for producer_id, it in written_anew(log)}
    return content(log) == anew


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(str(tmp_path))


@pytest.mark.conforms("K98-3")
async def test_a_batch_that_is_sent_again_is_not_written_again(disk: RealDisk) -> None:
    log = await open_log(disk)
    await log.start_leader_epoch(0)
    assert log.append_as_leader(numbered(0, "a", "b"), 0)[:2] == (0, 1)
    assert log.append_as_leader(numbered(2, "c"), 0)[:2] == (2, 2)
    assert log.append_as_leader(numbered(0, "a", "b"), 0) == AppendInfo(0, 1, 0)
    assert values(log) == ["a", "b", "c"]


@pytest.mark.conforms("K98-2", "K98-4")
async def test_a_refused_batch_of_a_producer_is_not_written(disk: RealDisk) -> None:
    log = await open_log(disk)
    await log.start_leader_epoch(0)
    log.append_as_leader(numbered(0, "a", epoch=1), 0)
    for batch, code in (
        (numbered(2, "x", epoch=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (numbered(1, "x", epoch=0), ErrorCode.INVALID_PRODUCER_EPOCH),
        (numbered(-1, "x", epoch=1), ErrorCode.INVALID_RECORD),
        (numbered(0, "x", epoch=-1), ErrorCode.INVALID_RECORD),
        (numbered(-1, "x", producer=P + 1), ErrorCode.INVALID_RECORD),
        (numbered(0, "x", producer=P + 1, epoch=-1), ErrorCode.INVALID_RECORD),
    ):
        with pytest.raises(ProtocolError) as refused:
            log.append_as_leader(batch, 0, admit=admit)
        assert refused.value.code is code
    assert values(log) == ["a"]


@pytest.mark.conforms("K98-9")
async def test_a_batch_of_a_transaction_is_refused(disk: RealDisk) -> None:
    log = await open_log(disk)
    await log.start_leader_epoch(0)
    batch = numbered(0, "a")
    batch[22] |= 0x10
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    with pytest.raises(ProtocolError) as refused:
        log.append_as_leader(batch, 0, admit=admit)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert log.log_end_offset == 0


async def test_batches_that_arrive_together_are_checked_together(disk: RealDisk) -> None:
    log = await open_log(disk)
    await log.start_leader_epoch(0)
    log.append_as_leader(numbered(0, "a") + numbered(1, "b"), 0)
    with pytest.raises(ProtocolError):
        log.append_as_leader(numbered(1, "b") + numbered(2, "c"), 0)
    assert values(log) == ["a", "b"]


@pytest.mark.conforms("K98-8")
async def test_a_follower_has_the_producer_state_of_its_leader(tmp_path: Path) -> None:
    leader = await open_log(RealDisk(str(tmp_path / "leader")))
    follower = await open_log(RealDisk(str(tmp_path / "follower")))
    await leader.start_leader_epoch(3)
    write(leader, 0, 9)
    await follower.replicate(leader.read(0, 1 << 30, leader.log_end_offset), 3)
    assert content(follower) == content(leader) != {}
    await follower.start_leader_epoch(4)
    assert follower.append_as_leader(numbered(8, f"{8:0300d}"), 4).bytes == 0


@pytest.mark.conforms("K98-6")
@pytest.mark.parametrize("clean", [True, False])
async def test_a_restart_keeps_the_producer_state(tmp_path: Path, clean: bool) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    write(log, 0, 10)
    before = content(log)
    if clean:
        await log.close()
        assert snapshots(tmp_path)[-1] == 10
    again = await open_log(RealDisk(str(tmp_path)), clean=clean)
    assert content(again) == before
    assert again.append_as_leader(numbered(6, f"{6:0300d}"), 0) == AppendInfo(6, 6, 0), "the fifth from behind"


@pytest.mark.conforms("K98-6")
async def test_each_segment_starts_with_a_snapshot(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    write(log, 0, 10)
    bases = [int(path.stem) for path in sorted((tmp_path / DIRECTORY).glob("*.log"))]
    assert len(bases) > 2
    assert snapshots(tmp_path) == bases[1:]


@pytest.mark.parametrize("damage", ["torn", "empty", "gone"])
@pytest.mark.parametrize("clean", [True, False])
async def test_without_its_newest_snapshots_a_log_reads_from_an_older_one(
    tmp_path: Path, damage: str, clean: bool
) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    write(log, 0, 10)
    before = content(log)
    await log.close()
    for path in sorted((tmp_path / DIRECTORY).glob("*.snapshot"))[-2:]:
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-3] if damage == "torn" else b"")
    again = await open_log(RealDisk(str(tmp_path)), clean=clean)
    assert content(again) == before


async def test_useless_snapshots_of_an_earlier_stop_are_removed(tmp_path: Path) -> None:
    for first in range(3):
        log = await open_log(RealDisk(str(tmp_path)), LogConfig(), clean=first > 0)
        await log.start_leader_epoch(first)
        write(log, first, 1)
        await log.close()
    assert snapshots(tmp_path) == [2, 3]
    await open_log(RealDisk(str(tmp_path)), LogConfig(), clean=True)
    assert snapshots(tmp_path) == [3]


@pytest.mark.conforms("K98-7")
@pytest.mark.parametrize("to", range(11))
async def test_truncated_batches_are_removed_from_the_producer_state(tmp_path: Path, to: int) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    write(log, 0, 10)
    await log.truncate_to(to)
    assert agrees(log)
    assert all(offset <= to for offset in snapshots(tmp_path))
    if to < 10:
        await log.start_leader_epoch(1)
        assert log.append_as_leader(numbered(to, "again"), 1)[:2] == (to, to)
    again = await open_log(RealDisk(str(tmp_path)))
    assert content(again) == content(log)


@pytest.mark.conforms("K98-7")
async def test_truncation_of_a_producers_epoch_restores_the_older_one(disk: RealDisk) -> None:
    log = await open_log(disk)
    await log.start_leader_epoch(0)
    log.append_as_leader(numbered(0, "a"), 0)
    log.append_as_leader(numbered(0, "b", epoch=1), 0)
    await log.truncate_to(1)
    assert log.append_as_leader(numbered(1, "c"), 0)[:2] == (1, 1)


@pytest.mark.conforms("K98-10")
@pytest.mark.parametrize("config", [SMALL, replace(SMALL, compacted=True)], ids=["SMALL", "compacted"])
@pytest.mark.parametrize("end", ["none", "clean", "kill", "truncation", "restart at 0"])
async def test_a_log_without_expired_producers_refuses_a_first_sequence_other_than_0(
    tmp_path: Path, end: str, config: LogConfig
) -> None:
    log = await open_log(RealDisk(str(tmp_path)), config)
    await log.start_leader_epoch(0)
    write(log, 0, 10 if end == "truncation" else 2)  # two leave no snapshot
    if end == "truncation":
        await log.truncate_to(7)
    elif end == "restart at 0":
        await log.truncate_fully_and_start_at(0)
        await log.start_leader_epoch(0)
    elif end != "none":
        if end == "clean":
            await log.close()
        log = await open_log(RealDisk(str(tmp_path)), config, clean=end == "clean")
    with pytest.raises(ProtocolError) as refused:
        log.append_as_leader(numbered(17, "b", producer=P + 1), 0)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append_as_leader(numbered(0, *"a" * 17, producer=P + 1), 0)
    log.append_as_leader(numbered(17, "b", producer=P + 1), 0)


@pytest.mark.conforms("K98-10", "K360-1")
@pytest.mark.parametrize("clean", [True, False])
async def test_a_restart_keeps_the_mark_of_an_expired_producer(tmp_path: Path, clean: bool) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    write(log, 0, 1)
    log.producers.expire(float("inf"))
    log.roll()
    if clean:
        await log.close()
    again = await open_log(RealDisk(str(tmp_path)), clean=clean)
    assert again.producers.forgotten_to == P
    assert again.append_as_leader(numbered(9, "x"), 0)[:2] == (1, 1)


@pytest.mark.conforms("K360-1")
async def test_a_follower_of_a_compacted_log_may_lack_any_producer(tmp_path: Path) -> None:
    """Compaction removes the batches of producers that the leader no longer knows."""
    compacted = replace(SMALL, compacted=True)
    leader = await open_log(RealDisk(str(tmp_path / "leader")))
    follower = await open_log(RealDisk(str(tmp_path / "follower")), compacted)
    await leader.start_leader_epoch(0)
    write(leader, 0, 6)
    await follower.replicate(leader.read(0, 1, leader.log_end_offset), 0)
    assert follower.producers.forgotten_to == NO_ID
    await follower.replicate(leader.read(4, 1 << 30, leader.log_end_offset), 0)
    assert follower.producers.forgotten_to == MAX_ID


@pytest.mark.conforms("K98-10", "K360-1")
@pytest.mark.kills("any_first_after_restart")
@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize(("gap", "mutated"), [(False, False), (True, False), (False, True)])
async def test_a_restart_without_snapshots_has_forgotten_a_producer_only_if_a_batch_is_missing(
    tmp_path: Path, taken_over: bool, gap: bool, mutated: bool
) -> None:
    """Compaction leaves gaps between offsets. Segments below the recovery point are taken over without a scan."""
    config = replace(SMALL, compacted=True, doubts_producers=mutated)
    leader = await open_log(RealDisk(str(tmp_path / "leader")))
    await leader.start_leader_epoch(0)
    write(leader, 0, 8)
    log = await open_log(RealDisk(str(tmp_path / "log")), config)
    await log.replicate(leader.read(0, 1, leader.log_end_offset), 0)
    await log.replicate(leader.read(2 if gap else 1, 1 << 30, leader.log_end_offset), 0)
    point = await log.flush() if taken_over else 0
    for path in (tmp_path / "log" / DIRECTORY).glob("*.snapshot"):
        path.unlink()
    again = await open_log(RealDisk(str(tmp_path / "log")), config, recovery_point=point)
    assert again.recovered.is_whole is (None if taken_over else not gap)
    assert again.producers.forgotten_to == (MAX_ID if gap or mutated else NO_ID)


async def test_a_restarted_log_has_no_producers(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    write(log, 0, 10)
    await log.truncate_fully_and_start_at(4)
    assert content(log) == {}
    assert snapshots(tmp_path) == []
    await log.start_leader_epoch(1)
    assert log.append_as_leader(numbered(99, "x"), 1)[:2] == (4, 4)


async def test_producers_outlive_the_segments_that_are_deleted(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    log.append_as_leader(numbered(0, "a", producer=1), 0)
    write(log, 0, 10)
    start = await log.delete_segments_before(log.log_end_offset)
    assert start > 1
    assert [offset for offset in snapshots(tmp_path) if offset < start] == []
    before = content(log)
    again = await open_log(RealDisk(str(tmp_path)))
    assert content(again) == before
    assert 1 in before


@pytest.mark.conforms("K98-6")
@pytest.mark.parametrize("missing", range(5))
async def test_unchecked_segments_are_read_for_producers_after_a_crash(tmp_path: Path, missing: int) -> None:
    """Segments below the recovery point are not scanned, and the last batches have no producer."""
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    write(log, 0, 6)
    for _ in range(6):
        log.append_as_leader(bytearray(build_batch([Record(0, 0, None, b"a" * 300)])), 0)
    end = await log.flush()
    for path in sorted((tmp_path / DIRECTORY).glob("*.snapshot"), reverse=True)[:missing]:
        path.unlink()
    again = await PartitionLog.open(RealDisk(str(tmp_path)), DIRECTORY, SMALL, clean_shutdown=False, recovery_point=end)
    assert again.recovered.scanned
    assert content(again) == content(log)


async def test_producers_outlive_the_records_below_a_start_inside_a_segment(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    log.append_as_leader(numbered(0, "a", producer=1), 0)
    write(log, 0, 10)
    first = log.segments[-2].base_offset
    assert await log.advance_start(first + 1) == first + 1
    assert log.segments[0].base_offset == first
    again = await PartitionLog.open(
        RealDisk(str(tmp_path)), DIRECTORY, SMALL, clean_shutdown=False, start_offset=first + 1
    )
    assert content(again) == content(log)
    assert 1 in content(log)


async def test_a_log_with_its_end_below_its_start_has_no_producers(tmp_path: Path) -> None:
    log = await open_log(RealDisk(str(tmp_path)))
    await log.start_leader_epoch(0)
    write(log, 0, 10)
    await log.close()
    again = await PartitionLog.open(RealDisk(str(tmp_path)), DIRECTORY, SMALL, clean_shutdown=True, start_offset=20)
    assert again.log_end_offset == 20
    assert content(again) == {}
    assert snapshots(tmp_path) == []


@pytest.mark.conforms("K98-6")
@pytest.mark.parametrize("file_system", list(FileSystem))
@pytest.mark.parametrize("seed", range(25))
def test_a_power_cut_keeps_the_producer_state_of_deleted_records(file_system: FileSystem, seed: int) -> None:
    """Any appends, syncs, truncations and deletions: the recovered state covers all batches up to its end."""
    loop = new_loop()
    rng = random.Random(seed)
    disk = SimulatedDisk(loop, random.Random(seed), file_system=file_system)
    said: list[Sequenced] = []  # by offset, for each batch has one record
    start = deleted = 0

    async def life() -> None:
        nonlocal start, deleted
        points = RecoveryPoints(disk)
        log = await PartitionLog.open(
            disk,
            DIRECTORY,
            SMALL,
            clean_shutdown=False,
            recovery_point=points.of(KEY),
            start_offset=start,
        )
        points.watch(KEY, log)
        log.before_cut = partial(points.lower, KEY)
        del said[log.log_end_offset :]
        expected = ProducerState()
        for offset, sequenced in enumerate(said):
            expected.record(sequenced, offset, 0, 0.0)
        known = content(log)
        deleted += bool(log.segments[0].base_offset and known)
        assert known == {producer_id: (it.epoch, list(it.batches)) for producer_id, it in expected}
        for _ in range(rng.randint(1, 12)):
            action = rng.random()
            if action < 0.7:
                producer = rng.choice([1, 2, 3, 4 + log.log_end_offset % 50])
                before = log.producers.find(producer)
                sequence = 0 if before is None else before.next_sequence
                text = "v" * rng.randint(1, 400)
                if log.last_epoch < 0:
                    await log.start_leader_epoch(0)
                log.append_as_leader(numbered(sequence, text, producer=producer), log.last_epoch)
                said.append(Sequenced(producer, 0, sequence, 0))
            elif action < 0.8:
                await log.flush()
                await points.write_durably()
            elif action < 0.9:
                start = rng.randint(log.log_start_offset, max(log.durable_end_offset, log.log_start_offset))
                await log.advance_start(start)
            else:
                end = await log.truncate_to(rng.randint(log.log_start_offset, log.log_end_offset))
                del said[end:]
        loop.create_task(log.flush())
        start = rng.randint(log.log_start_offset, max(log.durable_end_offset, log.log_start_offset))
        loop.create_task(log.advance_start(start))
        await asyncio.sleep(rng.random() * 0.01)

    processes = []
    for _ in range(24):
        processes.append(life_of(loop, life()))
        disk.power_loss(rng)
    assert deleted


@pytest.mark.conforms("K98-6")
@pytest.mark.parametrize("end", ["killed", "sync failed"])
@pytest.mark.parametrize("file_system", list(FileSystem))
def test_snapshots_of_an_earlier_process_are_synced_before_records_are_deleted(
    file_system: FileSystem, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = new_loop()
    disk = SimulatedDisk(loop, random.Random(1), file_system=file_system)

    commit = disk.commit_later

    async def fails_for_snapshots(inode: Inode | None, path: str) -> None:
        disk.faults.failing = path.endswith(".snapshot")
        await commit(inode, path)

    async def opened() -> PartitionLog:
        return await PartitionLog.open(disk, DIRECTORY, SMALL, clean_shutdown=False)

    async def first() -> None:
        log = await opened()
        await log.start_leader_epoch(0)
        write(log, 0, 2)
        log.roll()
        if end == "sync failed":
            with monkeypatch.context() as failing:
                failing.setattr(disk, "commit_later", fails_for_snapshots)
                with pytest.raises(OSError, match=r"\.snapshot"):
                    await log.flush()
            disk.faults.failing = False

    async def second() -> None:
        log = await opened()
        assert snapshots_of(disk) == [2]
        assert await log.advance_start(2) == log.segments[0].base_offset == 2

    async def third() -> None:
        log = await opened()
        assert log.log_end_offset == 2
        assert content(log).keys() == {P}

    loop.run_until_complete(first())
    loop.run_until_complete(second())
    disk.power_loss(random.Random(1), commit=False)
    loop.run_until_complete(third())


async def test_batches_without_a_producer_id_add_no_state(disk: RealDisk) -> None:
    log = await open_log(disk)
    await log.start_leader_epoch(0)
    log.append_as_leader(bytearray(build_batch([Record(0, 0, None, b"a")])), 0)
    assert content(log) == {}


@pytest.mark.parametrize(
    ("mutant", "first"),
    [("sequences_unchecked", 0), ("forgets_producers", 0), ("keeps_cut_producers", 0), ("any_first_sequence", 1)],
)
async def test_each_mutant_breaks_its_rule(disk: RealDisk, mutant: str, first: int) -> None:
    config = replace(SMALL, **{mutant: True})
    log = await open_log(disk, config)
    log.configure(lambda config: replace(config, segment_bytes=500, index_interval_bytes=100))
    # A topic's settings do not change what the log checks.
    await log.start_leader_epoch(0)
    write(log, first, 2)
    if mutant == "keeps_cut_producers":
        await log.truncate_to(1)
        assert log.append_as_leader(numbered(1, f"{1:0300d}"), 0).bytes == 0, "taken for written"
        return
    if mutant == "any_first_sequence":
        return
    if mutant == "forgets_producers":
        await log.close()
        log = await open_log(disk, config, clean=True)
    assert log.append_as_leader(numbered(1, f"{1:0300d}"), 0).bytes > 0, "written twice"


async def test_a_snapshot_removed_during_a_sync_does_not_fail_it(tmp_path: Path) -> None:
    (tmp_path / DIRECTORY).mkdir()
    files = ProducerSnapshots(RealDisk(str(tmp_path)), DIRECTORY)
    assert files.write(3, ProducerState())
    assert not files.write(3, ProducerState())
    assert files.write(5, ProducerState())
    assert files.remove_past(4)
    await files.sync()
    assert files.offsets == (3,)
