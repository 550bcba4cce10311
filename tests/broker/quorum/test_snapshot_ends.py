"""Running quorums with logs that start at the end of a snapshot: the state of a voter whose log is truncated to that
offset."""

import asyncio
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.errors import StartupError
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.protocol.messages.fetch import FetchRequest
from broker.protocol.messages.quorum_apis import FetchSnapshotRequest
from broker.protocol.schema import Message
from broker.quorum.committed import data_batch
from broker.quorum.messages import OffsetAndEpoch, VoteRequest, VoteResponse
from broker.quorum.snapshots import Snapshots
from tests.broker.log.making import in_loop
from tests.broker.quorum.live import DIRECTORY, LiveCluster
from tests.stories import run_by

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "1000"}
LARGE = b"y" * 2_000


async def led_by(cluster: LiveCluster, wanted: int) -> None:
    """Have others that lead give it up until this node does."""
    while (leader := await cluster.leader()) != wanted:
        await cluster.quorum(leader).resign(cluster.quorum(leader).epoch)
        await cluster.until(lambda leader=leader: not cluster.quorum(leader).is_leader)  # type: ignore[misc]


async def tail_behind_its_snapshot(cluster: LiveCluster) -> OffsetAndEpoch:
    """Node 1 leads, takes a snapshot at its log's end, and is cut off with one more record there; the others elect."""
    await led_by(cluster, 1)
    await cluster.quorum(1).append([b"small"])
    await cluster.quorum(1).append([LARGE])
    await cluster.until_each(lambda seat: seat.quorum and seat.quorum.high_watermark == seat.quorum.log_end.offset)
    snapshot = cluster.quorum(1).log_end
    await cluster.until(lambda: cluster.quorum(1).log_start_offset == snapshot.offset)
    cluster.cut[1] = None
    tail = asyncio.create_task(cluster.quorum(1).append([b"never committed"]))
    await cluster.leader()
    await asyncio.gather(tail, return_exceptions=True)
    assert cluster.quorum(1).log_end == OffsetAndEpoch(snapshot.epoch, snapshot.offset + 1)
    return snapshot


@pytest.mark.conforms("K595-18", "K595-40")
@pytest.mark.parametrize("all_have_one", [False, True], ids=["it alone has a snapshot", "all have one"])
@run_by(asyncio.run)
async def test_a_log_that_is_cut_back_to_its_snapshots_end_ends_in_the_snapshots_epoch(
    tmp_path: Path, all_have_one: bool
) -> None:
    cluster = LiveCluster(tmp_path, 3)
    await cluster.start(1, **SMALL)
    await cluster.start(2, 3, **(SMALL if all_have_one else {}))
    snapshot = await tail_behind_its_snapshot(cluster)
    asked_for: list[Message] = []

    def nothing_beyond_the_snapshot(sender: int, _receiver: int, message: Message) -> None:
        if sender == 1 and isinstance(message, FetchSnapshotRequest):
            asked_for.append(message)
        at_its_end = cluster.quorum(1).log_end.offset == snapshot.offset
        if sender == 1 and at_its_end and isinstance(message, FetchRequest | FetchSnapshotRequest):
            raise ConnectionError("cut")

    cluster.intercept = nothing_beyond_the_snapshot
    cluster.cut.clear()
    await cluster.until(lambda: cluster.quorum(1).log_end.offset == snapshot.offset)
    voter = cluster.quorum(1)
    await voter.ask(lambda _now: [])  # the whole of that event is done
    assert voter.log_end == snapshot
    request = VoteRequest(
        "cluster", 2, voter.epoch + 1, OffsetAndEpoch(0, 1), voter_directory=cluster.seats[1].directory_id
    )
    answer = await voter.receive(request)
    assert isinstance(answer, VoteResponse)
    assert not answer.granted, "the candidate lacks what is committed"
    cluster.intercept = lambda _sender, _receiver, _message: None
    await cluster.commit(b"after")
    await cluster.until_each(lambda seat: seat.values[-1:] == [b"after"])
    assert asked_for == []
    assert [seat.failures for seat in cluster.seats.values()] == [[], [], []]
    await cluster.stop()


@in_loop
async def test_a_crash_just_after_the_cut_is_made_good_at_the_next_start(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = await PartitionLog.open(disk, "log", LogConfig(), clean_shutdown=False)
    snapshot = OffsetAndEpoch(epoch=9, offset=120)
    snapshots = Snapshots(disk, "log")
    await snapshots.write_durably(snapshot, [b"a"], None, 0)
    await snapshots.restore(log)
    assert log.last_epoch == 9, "it starts at the snapshot's end"
    log.append_as_leader(data_batch((b"x",), 0), 9)
    await log.truncate_to(120)
    await log.close()
    log = await PartitionLog.open(disk, "log", LogConfig(), clean_shutdown=False)
    await snapshots.restore(log)
    assert (log.log_start_offset, log.log_end_offset, log.last_epoch) == (120, 120, 9)
    await log.close()


@pytest.mark.conforms("K595-18")
@pytest.mark.parametrize("behind_it", [False, True], ids=["no record after it", "records behind it"])
@run_by(asyncio.run)
async def test_a_node_without_its_snapshot_does_not_accept_its_log_as_complete(tmp_path: Path, behind_it: bool) -> None:
    """It would vote as if it had nothing, or lead with an empty image."""
    cluster = LiveCluster(tmp_path, 3, 0, **SMALL)
    await cluster.start()
    leader = await cluster.leader()
    await cluster.quorum(leader).append([LARGE])
    await cluster.until(lambda: cluster.quorum(leader).log_start_offset > 0)
    if behind_it:
        await cluster.quorum(leader).append([b"small"])
    await cluster.stop()
    (snapshot,) = (tmp_path / str(leader) / DIRECTORY).glob("*.checkpoint")
    content = snapshot.read_bytes()
    snapshot.unlink()
    with pytest.raises(StartupError, match=r"the snapshot of records before it is missing; restore it, or remove"):
        await cluster.start(leader)
    await cluster.stop()
    snapshot.write_bytes(content)
    await cluster.start()
    last = await cluster.quorum(await cluster.leader()).append([b"last"])
    await cluster.until_each(lambda seat: seat.quorum and seat.quorum.high_watermark > last)
    await cluster.stop()
