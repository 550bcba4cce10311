"""Running quorums: elections, appends, restarts, and the answers to Kafka's tools."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from broker.errors import (
    AppendRefusedError,
    CommitUncertainError,
    ErrorCode,
    NotLeaderError,
    ProtocolError,
    StartupError,
)
from broker.protocol.messages.quorum_apis import (
    DescribeQuorumPartitionData,
    DescribeQuorumPartitionResult,
    DescribeQuorumRequest,
    VotePartitionData,
    VoteRequest,
    VoteResponse,
)
from broker.protocol.records import iter_batches, read_records
from broker.protocol.schema import QuorumTopic
from broker.quorum.wire import METADATA_TOPIC
from broker.server.handlers.quorum_handler import QuorumHandler
from tests.broker.quorum.live import DIRECTORY, WALL_NS, LiveCluster, Seat, running
from tests.stories import run_by

STORIES = run_by(asyncio.run)
ASKED_AGAIN = 2_000
QUICK = {
    "quorum.fetch.timeout.ms": "300",
    "quorum.election.timeout.ms": "200",
    "quorum.election.backoff.max.ms": "60",
    "quorum.request.timeout.ms": "400",
}

UNSUSPECTING = {"quorum.fetch.timeout.ms": "600000"}
"""No follower loses its leader in a test's time; the first leader is still elected."""

UNHURRIED = {**UNSUSPECTING, "quorum.election.timeout.ms": "600000"}
"""No node that waits for this timeout is elected."""


def describe() -> DescribeQuorumRequest:
    return DescribeQuorumRequest(topics=[QuorumTopic(METADATA_TOPIC, [DescribeQuorumPartitionData(0)])])


async def described(cluster: LiveCluster, node: int) -> DescribeQuorumPartitionResult:
    response = await QuorumHandler(cluster.quorum(node)).handle_describe(describe(), 2)
    return response.topics[0].partitions[0]


@pytest.mark.conforms("K595-12", "K595-21", "K595-53")
async def test_a_single_voter_elects_itself_immediately_and_commits(tmp_path: Path) -> None:
    async with running(tmp_path, 1, 0, **UNHURRIED) as cluster:
        assert await cluster.leader() == 1, "it waited for no timeout"
        assert await cluster.quorum(1).append([b"a", b"b"]) == 3
        assert cluster.seats[1].committed == [(2, 1, [b"a", b"b"])]
        assert cluster.seats[1].leadership == [1]


async def test_the_limit_of_an_operation_does_not_depend_on_the_producers_batch_limit(tmp_path: Path) -> None:
    async with running(tmp_path, 1, 0, **{"message.max.bytes": "1000"}) as cluster:
        await cluster.leader()
        last = await cluster.quorum(1).append([bytes(1 << 20)] * 2)
        with pytest.raises(AppendRefusedError):
            await cluster.quorum(1).append([bytes(1 << 20)] * 9)
        assert await cluster.quorum(1).append([b"a"]) == last + 1


@pytest.mark.conforms("K595-12", "K595-53", "K595-42")
async def test_every_node_sees_all_committed_records_in_order(tmp_path: Path) -> None:
    async with running(tmp_path, 3, 1) as cluster:
        leader = await cluster.leader()
        values = [b"%d" % number for number in range(50)]
        offsets = await asyncio.gather(*(cluster.quorum(leader).append([value]) for value in values))
        assert offsets == sorted(offsets)
        assert cluster.seats[leader].values == values, "on_commit comes before append returns"
        await cluster.until_each(lambda seat: seat.values == values)
        for seat in cluster.seats.values():
            bases = [base for base, _, _ in seat.committed]
            assert bases == sorted(bases)


@pytest.mark.conforms("K595-41", "K595-21")
async def test_every_node_processes_the_control_record_of_a_new_leader(tmp_path: Path) -> None:
    async with running(tmp_path, 3, 1) as cluster:
        leader = await cluster.leader()
        epoch = cluster.quorum(leader).epoch
        await cluster.until(lambda: all(cluster.quorum(node).high_watermark > 0 for node in cluster.seats))
        for seat in cluster.seats.values():
            changes = events_of(seat, "quorum_leader_change")
            assert [(it["leader"], it["epoch"], it["offset"]) for it in changes] == [(leader, epoch, 0)]
            assert all(it["voters"] == [1, 2, 3] and leader in it["granting"] for it in changes)
            assert seat.committed == [], "control records are not for the state machine"


@pytest.mark.conforms("K595-4")
async def test_every_record_has_its_offset_epoch_type_and_time(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        await cluster.leader()
        epoch = cluster.quorum(1).epoch
        await cluster.quorum(1).append([b"a", b"b"])
        log = cluster.seats[1].log
        assert log is not None
        data = log.read(0, 1 << 20, log.log_end_offset)
        found = [
            (record.offset, header.leader_epoch, header.is_control, record.timestamp, record.value)
            for position, header in iter_batches(data)
            for record in read_records(data, position)
        ]
        now = WALL_NS // 1_000_000
        assert [record[:4] for record in found] == [
            (0, epoch, True, now),
            (1, epoch, True, now),
            (2, epoch, False, now),
            (3, epoch, False, now),
        ]
        assert [record[4] for record in found[2:]] == [b"a", b"b"]


@pytest.mark.conforms("K595-38", "K595-53")
async def test_only_the_leader_appends(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        other = next(node for node in cluster.seats if node != leader)
        with pytest.raises(NotLeaderError):
            await cluster.quorum(other).append([b"a"])
        await cluster.until(lambda: cluster.quorum(other).leader_id == leader)


@pytest.mark.conforms("K595-43", "K595-53", "H19", "H24")
async def test_an_isolated_leader_fails_its_appends_and_rejoins(tmp_path: Path) -> None:
    async with running(tmp_path, 3, 0, **QUICK) as cluster:
        old = await cluster.leader()
        await cluster.quorum(old).append([b"kept"])
        cluster.cut = {old: None}
        with pytest.raises(CommitUncertainError):
            await cluster.quorum(old).append([b"in doubt"])
        assert cluster.seats[old].leadership[-1] is None
        assert not cluster.quorum(old).is_leader
        new = await cluster.leader()
        await cluster.quorum(new).append([b"after"])
        cluster.cut = {}
        await cluster.until(lambda: cluster.seats[old].values == [b"kept", b"after"])


@pytest.mark.conforms("K595-27", "K595-28", "K595-29")
async def test_a_leader_that_stops_hands_over_without_a_timeout(tmp_path: Path) -> None:
    async with running(tmp_path, 3, 0, **UNSUSPECTING) as cluster:
        old = await cluster.leader()
        await cluster.quorum(old).append([b"a"])
        await cluster.stop(old)
        assert await cluster.leader() != old


@pytest.mark.conforms("K595-6", "K595-7", "H18")
async def test_a_restarted_quorum_replays_every_committed_record(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        epoch = cluster.quorum(leader).epoch
        values = [b"%d" % number for number in range(200)]
        for value in values:
            await cluster.quorum(leader).append([value, value + b"'"])
        expected = [part for value in values for part in (value, value + b"'")]
        await cluster.stop()
        await cluster.start()
        assert cluster.quorum(await cluster.leader()).epoch > epoch
        committed = 2 * len(values) + 1
        await cluster.until(lambda: all(cluster.quorum(n).high_watermark > committed for n in cluster.seats))
        assert all(seat.values == expected for seat in cluster.seats.values())


@pytest.mark.conforms("K595-37")
async def test_the_epochs_of_the_metadata_log_are_on_disk(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        expected = []
        for number in range(3):
            await cluster.leader()
            # An epoch has its leader's record and "a"; the first has that of the voters, too.
            expected.append((cluster.quorum(1).epoch, 2 * number + (number > 0)))
            await cluster.quorum(1).append([b"a"])
            lines = (tmp_path / "1" / DIRECTORY / "leader-epoch-checkpoint").read_text().splitlines()
            assert lines[2:] == [f"{epoch} {start}" for epoch, start in expected]
            log = cluster.seats[1].log
            assert log is not None
            assert [tuple(entry) for entry in log.epochs.entries] == expected
            await cluster.stop()
            await cluster.start()


@pytest.mark.conforms("K595-44", "K595-51")
async def test_describe_is_answered_by_the_leader(tmp_path: Path) -> None:
    async with running(tmp_path, 3, 1) as cluster:
        leader = await cluster.leader()
        last = await cluster.quorum(leader).append([b"a"])
        await cluster.until(lambda: all(cluster.quorum(n).high_watermark > last for n in cluster.seats))
        result = await described(cluster, leader)
        assert (result.leader_id, result.high_watermark) == (leader, last + 1)
        assert [state.replica_id for state in result.current_voters] == [1, 2, 3]
        assert [state.replica_id for state in result.observers] == [4]
        for _ in range(ASKED_AGAIN):  # the leader knows an end once its owner has fetched again
            ends = {state.log_end_offset for state in (*result.current_voters, *result.observers)}
            if ends == {last + 1}:
                break
            await asyncio.sleep(0.002)
            result = await described(cluster, leader)
        assert ends == {last + 1}
        for state in result.current_voters:
            assert 0 <= WALL_NS // 1_000_000 - state.last_fetch_timestamp < 60_000
        other = next(node for node in (1, 2, 3) if node != leader)
        result = await described(cluster, other)
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (result.leader_id, result.leader_epoch) == (leader, cluster.quorum(leader).epoch)


@pytest.mark.conforms("K595-10")
async def test_another_partition_is_an_invalid_request(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        handler = QuorumHandler(cluster.quorum(1))
        for topics in (
            [QuorumTopic("other", [DescribeQuorumPartitionData(0)])],
            [QuorumTopic(METADATA_TOPIC, [DescribeQuorumPartitionData(1)])],
        ):
            response = await handler.handle_describe(DescribeQuorumRequest(topics=topics), 2)
            assert response.error_code == ErrorCode.INVALID_REQUEST
        other = QuorumTopic(METADATA_TOPIC, [VotePartitionData(partition_index=1)])
        answer = await handler.handle(VoteRequest(topics=[other]), 2)
        assert isinstance(answer, VoteResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.conforms("K595-5")
async def test_the_quorum_state_file_has_kafkas_fields(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        state = json.loads((tmp_path / str(leader) / DIRECTORY / "quorum-state").read_text())
        assert state["leaderId"] == leader
        assert state["leaderEpoch"] == cluster.quorum(leader).epoch
        assert state["votedId"] == leader
        assert state["appliedOffset"] == 0
        assert state["currentVoters"] == [{"voterId": 1}, {"voterId": 2}, {"voterId": 3}]


@pytest.mark.conforms("K595-5")
async def test_a_broken_quorum_state_file_and_other_voters_are_refused(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 1)
    await cluster.start()
    await cluster.stop()
    path = tmp_path / "1" / DIRECTORY / "quorum-state"
    with pytest.raises(StartupError, match=r"quorum\.voters"):
        await cluster.start(1, **{"quorum.voters": "1@a:1,2@b:2"})
    path.write_text(path.read_text()[:-5])
    with pytest.raises(StartupError, match="quorum-state"):
        await cluster.start(1)


@pytest.mark.conforms("K595-8", "K595-25", "K595-47")
async def test_a_node_of_another_cluster_stops_when_the_elected_leader_finds_out(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 3)
    await cluster.start()
    leader = await cluster.leader()
    stranger = next(node for node in cluster.seats if node != leader)
    await cluster.stop(stranger)
    await cluster.start(stranger, **{"cluster.id": "another"})
    await cluster.until(lambda: cluster.seats[stranger].failures)
    assert "correct cluster.id" in str(cluster.seats[stranger].failures[0])
    await cluster.quorum(leader).append([b"the others go on"])
    await cluster.stop()


@pytest.mark.conforms("K595-2", "K595-3")
def test_a_peer_with_an_invalid_answer_is_queried_again(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = LiveCluster(tmp_path, 3)
        broken = 30

        def intercept(_sender: int, _receiver: int, _message: object) -> None:
            nonlocal broken
            broken -= 1
            if broken >= 0:
                raise ValueError("not an answer at all")

        cluster.intercept = intercept
        await cluster.start()
        await cluster.quorum(await cluster.leader()).append([b"a"])
        await cluster.stop()
        bad = [
            event for seat in cluster.seats.values() for event in seat.events if event["event"] == "quorum_bad_answer"
        ]
        assert len(bad) == 30

    asyncio.run(story())


@pytest.mark.conforms("K595-53")
async def test_calls_to_a_stopped_quorum_fail_immediately(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 3)
    await cluster.start(1)
    quorum = cluster.quorum(1)
    with pytest.raises(NotLeaderError):
        await quorum.append([b"a"])
    await cluster.stop(1)
    with pytest.raises(ProtocolError):
        await quorum.append([b"a"])
    answer = await QuorumHandler(quorum).handle_describe(describe(), 2)
    assert answer.error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert (quorum.leader_id, quorum.is_leader) == (None, False)


async def test_after_a_failed_write_the_node_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LiveCluster(tmp_path, 1)
    await cluster.start()
    await cluster.leader()

    async def broken() -> int:
        raise OSError(5, "Input/output error")

    log = cluster.seats[1].log
    assert log is not None
    monkeypatch.setattr(log, "flush", broken)
    with pytest.raises(CommitUncertainError):
        await cluster.quorum(1).append([b"a"])
    assert isinstance(cluster.seats[1].failures[0], OSError)
    assert cluster.seats[1].leadership == [1, None]
    monkeypatch.undo()
    await cluster.stop()


@pytest.mark.conforms("K595-14", "K595-19")
async def test_the_trace_has_votes_after_they_are_on_disk_and_applied_records(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        await cluster.quorum(leader).append([b"a"])
        await cluster.until_each(lambda seat: seat.values == [b"a"])
        marks, votes = set(), 0
        for seat in cluster.seats.values():
            kept = events_of(seat, "quorum_persisted")
            for vote in events_of(seat, "quorum_vote"):
                votes += 1
                before = [each for each in kept if each["seq"] < vote["seq"]]
                assert (vote["epoch"], vote["candidate"]) in {(each["epoch"], each["voted"]) for each in before}
            marks |= {(mark["offset"], mark["digest"]) for mark in events_of(seat, "quorum_high_watermark")}
        assert votes
        assert len({offset for offset, _ in marks}) == len(marks), "equal offsets have equal digests"
        await cluster.stop(leader)
        on_disk = events_of(cluster.seats[leader], "quorum_persisted")[-1]
        await cluster.start(leader)
        restored = events_of(cluster.seats[leader], "quorum_restored")[-1]
        assert [restored[key] for key in ("epoch", "leader", "voted")] == [
            on_disk[key] for key in ("epoch", "leader", "voted")
        ]


def events_of(seat: Seat, event: str) -> list[dict[str, Any]]:
    return [each for each in seat.events if each["event"] == event]
