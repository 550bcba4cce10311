"""The reader of a quorum member's files, as written by our broker and by Kafka."""

import asyncio
import json
from pathlib import Path

import pytest

from analysis.replicafiles.kraft import Digests, QuorumStateFile, read_metadata
from broker.trace import Value
from tests.broker.quorum.live import running


def test_the_reader_agrees_with_files_and_trace_of_the_broker(tmp_path: Path) -> None:
    async def story() -> dict[int, dict[Value, Value]]:
        async with running(tmp_path, 3) as cluster:
            leader = await cluster.leader()
            for text in (b"a", b"b", b"c"):
                await cluster.quorum(leader).append([text])
            await cluster.until_each(lambda seat: len(seat.values) == 3)
            return {
                node: {e["offset"]: e["digest"] for e in seat.events if e["event"] == "quorum_high_watermark"}
                for node, seat in cluster.seats.items()
            }

    for node, applied in asyncio.run(story()).items():
        (tmp_path / str(node) / "meta.properties").write_text(f"version=1\nnode.id={node}\n")
        replica = read_metadata(f"n{node}", tmp_path / str(node))
        assert replica.doubts == ()
        assert replica.id == node
        assert replica.log is not None
        assert replica.digests.at(int(str(each)) for each in applied) == applied
        assert applied
        assert replica.leader_changes
        assert replica.log.epochs
        for change in replica.leader_changes:
            assert change.voters == (1, 2, 3)
            assert change.leader in change.granting
            assert len(change.granting) >= 2
            assert (change.epoch, change.offset) in replica.log.epochs
        assert replica.state is not None
        assert replica.state.epoch >= replica.leader_changes[-1].epoch


@pytest.mark.parametrize("snapshot", [True, False])
def test_an_epoch_with_its_start_below_a_snapshot_starts_at_its_first_record(tmp_path: Path, snapshot: bool) -> None:
    async def story() -> None:
        async with running(tmp_path, 1) as cluster:
            leader = await cluster.leader()
            for text in (b"a", b"b", b"c"):
                await cluster.quorum(leader).append([text])

    asyncio.run(story())
    (tmp_path / "1" / "meta.properties").write_text("version=1\nnode.id=1\n")
    before = read_metadata("n1", tmp_path / "1").log
    assert before is not None
    assert before.epochs
    ((epoch, start),) = before.epochs
    directory = tmp_path / "1" / "__cluster_metadata-0"
    (directory / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} {start + 2}\n")
    if snapshot:
        (directory / f"{start + 2:020d}-{epoch:010d}.checkpoint").write_bytes(b"")
    after = read_metadata("n1", tmp_path / "1").log
    assert after is not None
    assert after.epochs == ((epoch, start if snapshot else start + 2),)


@pytest.mark.parametrize(
    ("content", "state"),
    [
        (
            {"clusterId": "", "leaderId": 3, "leaderEpoch": 7, "votedId": -1, "appliedOffset": 0, "data_version": 0}
            | {"currentVoters": [{"voterId": 1}, {"voterId": 3}]},
            QuorumStateFile(7, 3, -1, (1, 3)),
        ),
        (
            {"leaderId": -1, "leaderEpoch": 8, "votedId": 2, "votedDirectoryId": "x", "data_version": 1},
            QuorumStateFile(8, -1, 2, ()),
        ),
    ],
)
def test_both_versions_of_the_quorum_state_file(
    tmp_path: Path, content: dict[str, object], state: QuorumStateFile
) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / "quorum-state").write_text(json.dumps(content))
    replica = read_metadata("n1", tmp_path)
    assert replica.state == state
    assert replica.doubts == ("n1 has no meta.properties that can be read", "n1 has no metadata log")


def test_digests_are_found_by_the_offset_at_which_a_batch_ends() -> None:
    digests = Digests.of({10: 7, 3: (1 << 32) - 1})
    assert digests.at([1, 3, 10, 11, -1, 1 << 70]) == {3: (1 << 32) - 1, 10: 7}
    assert Digests.of({}).at([3]) == {}
