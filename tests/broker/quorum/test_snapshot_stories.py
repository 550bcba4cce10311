"""Stories of a log without its first records: the nodes that must fetch a snapshot, and the steps after it
(KIP-630)."""

import pytest

from broker.errors import ErrorCode
from broker.protocol.api import api_of
from broker.protocol.codec import decode_exactly, encode
from broker.protocol.messages.quorum_apis import FetchSnapshotRequest, FetchSnapshotResponse
from broker.quorum import wire
from broker.quorum.effects import InstallSnapshot, KeepPiece, ReadSnapshot, Reply
from broker.quorum.messages import FetchRequest, FetchResponse, OffsetAndEpoch, SnapshotRequest, SnapshotResponse
from broker.quorum.roles import Follower, Prospective
from tests.broker.quorum.story import Story

SNAPSHOT = OffsetAndEpoch(epoch=2, offset=5)


def leading() -> Story:
    """Leads; everything below offset 5, whose last record had the epoch 2, is in a snapshot only."""
    story = Story(log=[1, 1, 1, 2, 2, 2])
    story.log.log_start_offset = SNAPSHOT.offset
    story.node.snapshot_taken(SNAPSHOT)
    story.become_leader()
    return story


@pytest.mark.parametrize(("offset", "epoch"), [(0, -1), (3, 1), (4, 2), (5, 1), (9, 1), (5, 3)], ids=str)
def test_a_fetch_of_removed_records_is_directed_to_the_snapshot(offset: int, epoch: int) -> None:
    story = leading()
    answer = story.fetch(2, story.role.epoch, offset, epoch)
    assert answer is not None
    assert (answer.snapshot, answer.diverging, answer.records) == (SNAPSHOT, None, b"")


def test_a_fetch_at_the_end_of_the_snapshot_continues_with_the_log() -> None:
    story = leading()
    answer = story.fetch(2, story.role.epoch, 5, 2)
    assert answer is not None
    assert answer.snapshot is None
    assert answer.records


def test_only_the_newest_snapshot_is_served_and_only_by_its_leader() -> None:
    story = leading()
    epoch = story.role.epoch
    assert story.fetch_snapshot(2, epoch, SNAPSHOT).error is ErrorCode.NONE
    read = [effect.read for effect in story.done(Reply) if isinstance(effect, Reply)][-1]
    assert isinstance(read, ReadSnapshot)
    assert (read.snapshot, read.position) == (SNAPSHOT, 0)
    assert story.fetch_snapshot(2, epoch, OffsetAndEpoch(2, 4)).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert story.fetch_snapshot(2, epoch, SNAPSHOT, -1).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert story.fetch_snapshot(2, epoch - 1, SNAPSHOT).error is ErrorCode.FENCED_LEADER_EPOCH
    assert story.fetch_snapshot(2, epoch + 1, SNAPSHOT).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert Story().fetch_snapshot(2, 0, SNAPSHOT).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_snapshot_fetches_keep_a_leader_from_resigning() -> None:
    story = leading()
    epoch = story.role.epoch
    for _ in range(20):
        story.wait(0.5)
        story.fetch_snapshot(2, epoch, SNAPSHOT)
    assert story.role.leader_id == 1


def test_a_follower_fetches_the_pieces_in_order_and_restarts_at_the_snapshots_end() -> None:
    story = Story(log=[1])
    story.follow(2, epoch=3)
    story.fetched(snapshot=SNAPSHOT, high_watermark=9)
    assert [request.position for _, request in story.sent(SnapshotRequest)] == [0]
    story.piece(b"abc", 7)
    assert not story.done(InstallSnapshot)
    story.piece(b"defg", 7)
    assert story.done(KeepPiece) == [KeepPiece(SNAPSHOT, 0, b"abc"), KeepPiece(SNAPSHOT, 3, b"defg")]
    assert story.done(InstallSnapshot) == [InstallSnapshot(SNAPSHOT)]
    assert story.node.high_watermark == SNAPSHOT.offset
    assert story.sent(FetchRequest)[-1][1].fetch_from == SNAPSHOT
    story.fetched([3], high_watermark=6)
    assert story.node.high_watermark == 6


def test_a_snapshot_below_the_high_watermark_does_not_replace_the_log() -> None:
    story = Story(log=[1, 1, 1, 2, 2, 2])
    story.follow(2, epoch=3)
    story.fetched(high_watermark=6)
    story.fetched(snapshot=SNAPSHOT)
    story.piece(b"abc", 3)
    assert not story.done(InstallSnapshot)
    assert story.node.high_watermark == 6
    assert story.sent(FetchRequest)[-1][1].fetch_from == OffsetAndEpoch(2, 6)


@pytest.mark.parametrize("refused_first", [True, False], ids=["after its leader was heard", "in the middle of that"])
def test_a_late_piece_is_followed_by_the_next(refused_first: bool) -> None:
    story = Story(log=[1])
    story.follow(2, epoch=3)
    story.fetched(snapshot=SNAPSHOT)
    story.piece(b"abc", 7)
    (under_way,) = story.sent(SnapshotRequest)
    story.wait(1.31)
    story.is_a(Prospective, 3)
    if refused_first:
        for voter in (2, 3):
            story.vote(voter, granted=False, leader=2)
        story.is_a(Follower, 3)
    assert story.sent(SnapshotRequest) == [under_way], "it is not asked for again"
    story.answer(2, SnapshotRequest, SnapshotResponse(ErrorCode.NONE, 2, 3, SNAPSHOT, 3, 9, b"defg"))
    story.is_a(Follower, 3)
    assert story.done(KeepPiece) == [KeepPiece(SNAPSHOT, 0, b"abc"), KeepPiece(SNAPSHOT, 3, b"defg")]
    assert [request.position for _, request in story.sent(SnapshotRequest)] == [7]


def test_a_failed_snapshot_fetch_is_repeated_when_the_leader_answers_again() -> None:
    story = Story(log=[1])
    story.follow(2, epoch=3)
    story.wait(1.31)
    story.is_a(Prospective, 3)
    story.no_answer(2, FetchRequest)
    for voter in (2, 3):
        story.vote(voter, granted=False, leader=2)
    story.wait(0.1)
    assert story.sent(FetchRequest)


@pytest.mark.parametrize(
    ("data", "position", "error"),
    [(b"abc", 4, ErrorCode.NONE), (b"", None, ErrorCode.NONE), (b"", None, ErrorCode.SNAPSHOT_NOT_FOUND)],
    ids=["another piece", "empty piece", "no such snapshot"],
)
def test_a_failed_download_restarts_with_a_fetch(data: bytes, position: int | None, error: ErrorCode) -> None:
    story = Story(log=[1])
    story.follow(2, epoch=3)
    story.fetched(snapshot=SNAPSHOT)
    story.piece(b"abc", 7)
    story.piece(data, 7, position=position, error=error)
    story.wait(1.0)
    assert not story.done(InstallSnapshot)
    assert not story.sent(SnapshotRequest)
    assert story.sent(FetchRequest)[-1][1].fetch_from == OffsetAndEpoch(1, 1)


def test_a_snapshot_request_and_response_decode_to_the_original() -> None:
    request = SnapshotRequest("c", 3, 7, SNAPSHOT, 11, 100)
    message = wire.encode_request(request, 2)
    version = api_of(message).max_version
    data = bytearray()
    encode(message, version, data)
    assert wire.decode_request(decode_exactly(FetchSnapshotRequest, version, data), version) == request
    response = SnapshotResponse(ErrorCode.NONE, 2, 7, SNAPSHOT, 11, 40, b"bytes")
    data = bytearray()
    encode(wire.encode_response(message, response, 0), version, data)
    assert wire.decode_response(request, decode_exactly(FetchSnapshotResponse, version, data)) == response
    fetch = FetchRequest("c", 3, 7, OffsetAndEpoch(1, 1), 0.1, 100)
    sent = FetchResponse(ErrorCode.NONE, 2, 7, 9, snapshot=SNAPSHOT)
    message = wire.encode_request(fetch, 2)
    assert wire.decode_response(fetch, wire.encode_response(message, sent, 5)) == sent
