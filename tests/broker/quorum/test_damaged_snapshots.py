"""Running quorums with damaged bytes in a snapshot: no node discards its log for such a snapshot."""

import asyncio
from pathlib import Path

import pytest

from broker.disk import RealFile
from broker.protocol.messages.quorum_apis import FetchSnapshotResponse
from broker.protocol.records import CorruptBatch
from broker.protocol.schema import Message
from broker.quorum.messages import OffsetAndEpoch
from broker.quorum.snapshots import CHECKED_FOR_S
from tests.broker.log.making import in_loop
from tests.broker.quorum.live import DIRECTORY, LiveCluster
from tests.broker.quorum.test_runner import events_of
from tests.broker.quorum.test_snapshots import ID, NAME, snapshots
from tests.stories import run_by

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "1000"}
LARGE = b"y" * 2_000


async def one_lags_behind(cluster: LiveCluster) -> tuple[int, int]:
    """One is down while the others let their logs go; (leader, that one)."""
    await cluster.start()
    leader = await cluster.leader()
    await cluster.quorum(leader).append([b"first"])
    await cluster.until_each(lambda seat: seat.values == [b"first"])
    away = next(node for node in cluster.seats if node != leader)
    end = cluster.quorum(away).log_end.offset
    await cluster.stop(away)
    await cluster.quorum(leader).append([LARGE])
    await cluster.until(lambda: cluster.quorum(leader).log_start_offset > end)
    return leader, away


def damage(path: Path, node: int) -> None:
    """Turn one bit of a node's snapshot over."""
    (file,) = (path / str(node) / DIRECTORY).glob("*.checkpoint")
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("behind_it", [True, False], ids=["the log has gone on", "the log ends with it"])
@run_by(asyncio.run)
async def test_a_leader_does_not_serve_a_damaged_snapshot_and_makes_it_again(tmp_path: Path, behind_it: bool) -> None:
    cluster = LiveCluster(tmp_path, 3, 0, **SMALL)
    leader, away = await one_lags_behind(cluster)
    if behind_it:
        await cluster.quorum(leader).append([b"more"])
    else:
        # The new leader cannot commit a record, including its own first one, before the other node has the
        # snapshot.
        other = next(node for node in cluster.seats if node not in (leader, away))
        await cluster.until(lambda: cluster.quorum(other).high_watermark == cluster.quorum(leader).log_end.offset)
        await cluster.stop()
        await cluster.start(leader)
    damage(tmp_path, leader)
    await cluster.start(away)
    leader = await cluster.leader()
    await cluster.until(lambda: cluster.quorum(away).log_start_offset == cluster.quorum(leader).log_start_offset)
    last = await cluster.quorum(leader).append([b"last"])
    await cluster.until(lambda: cluster.quorum(away).high_watermark > last)
    assert events_of(cluster.seats[leader], "quorum_snapshot_damaged")
    assert [seat.failures for seat in cluster.seats.values()] == [[], [], []]
    await cluster.stop()
    await cluster.start()  # what was made again is whole
    await cluster.leader()
    await cluster.stop()


class DamagingCluster(LiveCluster):
    """Turns a bit of the next snapshot that is sent over."""

    damages = True

    async def request(self, sender: int, receiver: int, message: Message, limit: float) -> Message:
        answer = await super().request(sender, receiver, message, limit)
        if self.damages and isinstance(answer, FetchSnapshotResponse):
            self.damages = False
            piece = answer.topics[0].partitions[0]
            data = bytearray(piece.unaligned_records)
            data[200] ^= 1
            piece.unaligned_records = bytes(data)
        return answer


@run_by(asyncio.run)
async def test_a_node_that_fetches_a_damaged_snapshot_stops_with_an_unchanged_log(tmp_path: Path) -> None:
    cluster = DamagingCluster(tmp_path, 3, 0, **SMALL)
    leader, away = await one_lags_behind(cluster)
    await cluster.start(away)
    await cluster.until(lambda: cluster.seats[away].failures)
    assert "what was fetched is damaged" in str(cluster.seats[away].failures.pop())
    seat = cluster.seats[away]
    assert seat.log is not None
    had = seat.log.log_end_offset
    assert 0 < had < cluster.quorum(leader).log_start_offset
    await cluster.stop(away)
    await cluster.start(away)
    await cluster.until(lambda: cluster.quorum(away).log_start_offset == cluster.quorum(leader).log_start_offset)
    await cluster.stop()
    assert [seat.failures for seat in cluster.seats.values()] == [[], [], []]


@in_loop
async def test_no_bytes_of_a_damaged_snapshot_are_read(tmp_path: Path) -> None:
    store = snapshots(tmp_path)
    await store.write_durably(ID, [b"a" * 100, b"b" * 100], None, 7)
    data = bytearray((tmp_path / NAME).read_bytes())
    data[200] ^= 1
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(CorruptBatch):
        store.read(ID, 0, 10, now=0.0)
    newer = OffsetAndEpoch(3, 121)
    store.append(newer, 0, bytes(data))
    with pytest.raises(CorruptBatch, match=r"0121-0000000003\.checkpoint\.part: what was fetched is damaged"):
        store.check(newer)


@in_loop
async def test_repeated_requests_for_the_first_piece_do_not_read_the_whole_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = snapshots(tmp_path)
    await store.write_durably(ID, [b"a" * 1_000] * 100, None, 7)
    file, content = tmp_path / NAME, (tmp_path / NAME).read_bytes()
    taken: list[int] = []
    read = RealFile.read

    def counted(self: RealFile, offset: int, length: int) -> bytes:
        data = read(self, offset, length)
        taken.append(len(data))
        return data

    monkeypatch.setattr(RealFile, "read", counted)
    for number in range(200):
        piece = store.read(ID, 0, 10, now=number * CHECKED_FOR_S / 200)
        assert piece is not None
        assert (piece.data, piece.size) == (content[:10], len(content))
    assert sum(taken) == len(content) + 200 * 10
    file.write_bytes(content[:-1])
    with pytest.raises(CorruptBatch):
        store.read(ID, 0, 10, now=CHECKED_FOR_S)
    await store.write_durably(ID, [b"a"], None, 7)
    assert store.read(ID, 0, 10, now=CHECKED_FOR_S) is not None
    await store.write_durably(ID, [b"b"], None, 7)  # another file, whatever was known of the one before
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptBatch):
        store.read(ID, 0, 10, now=CHECKED_FOR_S)
