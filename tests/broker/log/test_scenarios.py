"""The known holes of the KIPs as stories of two logs, by hand: leaders, crashes and contents of the disks."""

from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from tests.broker.log.making import DIRECTORY, batch, in_loop, only_file, open_log, values, write

STORIES = in_loop


async def replica(root: Path, name: str) -> PartitionLog:
    return await open_log(RealDisk(str(root / name)))


async def replicate(leader: PartitionLog, follower: PartitionLog, up_to: int) -> None:
    """Fetch once."""
    data = leader.read(follower.log_end_offset, 1 << 20, up_to)
    await follower.replicate(data, leader.last_epoch)


async def make_them_match(leader: PartitionLog, follower: PartitionLog) -> list[tuple[int, int]]:
    """The truncation dialogue; what the leader answered, question by question."""
    answers: list[tuple[int, int]] = []
    while True:
        epoch, end = leader.epochs.end_offset_for(follower.last_epoch, leader.log_end_offset)
        answers.append((epoch, end))
        own_epoch, own_end = follower.epochs.end_offset_for(epoch, follower.log_end_offset)
        await follower.truncate_to(min(end, own_end))
        if own_epoch == epoch or follower.last_epoch == -1:
            return answers


@pytest.mark.conforms("H1", "K101-14")
async def test_fast_failovers_keep_one_history(tmp_path: Path) -> None:
    """KIP-279: B led epochs 1 and 3, A led 2 and 4; nothing of 1, 2 and 3 was committed.

    A first answers with an epoch that B never saw. With the end offset alone, B would keep its record of epoch 1 at an
    offset where A has one of epoch 2.
    """
    a, b = await replica(tmp_path, "a"), await replica(tmp_path, "b")
    await write(a, 0, "m0")
    await replicate(a, b, up_to=1)
    await write(b, 1, "lost 1")
    await write(a, 2, "m1", "m2")
    await write(b, 3, "lost 2")
    await a.start_leader_epoch(4)
    assert await make_them_match(a, b) == [(2, 3), (0, 1)]
    await replicate(a, b, up_to=3)
    assert values(a) == values(b) == ["m0", "m1", "m2"]
    assert b.epochs.entries == ((0, 0), (2, 1))


@pytest.mark.conforms("H2")
async def test_a_leader_without_records_keeps_the_start_of_its_epoch(tmp_path: Path) -> None:
    """KAFKA-7415: B led epoch 1 without a record; a query for it must not get the answer "unknown" from A."""
    a, b = await replica(tmp_path, "a"), await replica(tmp_path, "b")
    await write(a, 0, "m0", "m1")
    await replicate(a, b, up_to=2)
    await b.start_leader_epoch(1)
    await a.start_leader_epoch(2)
    assert b.epochs.end_offset_for(0, b.log_end_offset) == (0, 2)
    assert await make_them_match(a, b) == [(0, 2)]
    assert values(b) == ["m0", "m1"]
    assert b.epochs.entries == ((0, 0),), "epoch 1 has no record and A never heard of it"


@pytest.mark.conforms("H8")
async def test_a_truncation_that_removes_no_record_removes_the_epoch(tmp_path: Path) -> None:
    """KAFKA-10706: with the entry left in place, the next leader's smaller epochs would be refused for ever."""
    a, b = await replica(tmp_path, "a"), await replica(tmp_path, "b")
    await write(a, 0, "m0")
    await replicate(a, b, up_to=1)
    await b.start_leader_epoch(5)
    await b.truncate_to(1)
    assert values(b) == ["m0"]
    assert (tmp_path / "b" / DIRECTORY / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    await b.replicate(batch("m1", base=1, epoch=3), 3)
    assert b.epochs.entries == ((0, 0), (3, 1))


@pytest.mark.conforms("H10")
async def test_power_is_lost_between_the_epoch_file_and_its_rename(tmp_path: Path) -> None:
    """KAFKA-16541: the new text is torn, the old file counts, and the batches complete it."""
    log = await replica(tmp_path, "a")
    await write(log, 0, "m0")
    await write(log, 1, "m1")
    await log.flush()
    path = tmp_path / "a" / DIRECTORY / "leader-epoch-checkpoint"
    path.write_text("0\n1\n0 0\n")  # the rename for epoch 1 did not reach the disk
    path.with_suffix(".tmp").write_bytes(b"0\n2\n0 0\n\0\0\0")
    log = await replica(tmp_path, "a")
    assert log.epochs.entries == ((0, 0), (1, 1))
    assert values(log) == ["m0", "m1"]


@pytest.mark.conforms("H27", "K101-12")
async def test_an_epoch_at_the_very_end_does_not_survive_a_power_cut(tmp_path: Path) -> None:
    """Epoch 1 is in the file, its first record is lost. "offset > log end" would keep it, and then offset 2, written by
    the leader of epoch 3, would count as a record of epoch 1."""
    log = await replica(tmp_path, "a")
    await write(log, 0, "m0", "m1")
    end = only_file(tmp_path / "a", ".log").stat().st_size
    await write(log, 1, "torn")
    path = only_file(tmp_path / "a", ".log")
    path.write_bytes(path.read_bytes()[: end + 30])
    log = await replica(tmp_path, "a")
    assert log.epochs.entries == ((0, 0),)
    await log.replicate(batch("m2", base=2, epoch=3), 3)
    assert log.epochs.end_offset_for(1, log.log_end_offset) == (0, 2)


@pytest.mark.conforms("K101-14", "K101-5")
async def test_both_replicas_lose_power_and_the_longer_one_restarts_second(tmp_path: Path) -> None:
    """KIP-101's scenario 2: B lost m1 and led with another record at its offset; A must not keep both histories."""
    a, b = await replica(tmp_path, "a"), await replica(tmp_path, "b")
    await write(a, 0, "m0", "m1")
    await replicate(a, b, up_to=1)
    await write(b, 1, "m2")
    assert await make_them_match(b, a) == [(0, 1)]
    await replicate(b, a, up_to=2)
    assert values(a) == values(b) == ["m0", "m2"]
