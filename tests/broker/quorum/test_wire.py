"""The quorum's messages encode to Kafka's and decode back; requests for other partitions are refused."""

import pytest

from broker.errors import ErrorCode
from broker.protocol.api import api_of
from broker.protocol.messages import fetch, quorum_apis
from broker.protocol.records import Record, build_batch
from broker.protocol.schema import Message, QuorumTopic
from broker.quorum import wire
from broker.quorum.committed import leader_change_batch
from broker.quorum.messages import (
    BeginRequest,
    EndRequest,
    FetchRequest,
    FetchResponse,
    OffsetAndEpoch,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from tests.broker.quorum.live import through_bytes

FETCH = FetchRequest("c", 2, 5, OffsetAndEpoch(3, 10), 0.25, 1 << 20)
BEGIN = BeginRequest(None, 3, 5)
END = EndRequest("c", None, 5, (2, 3))
VOTE = VoteRequest("c", 2, 5, OffsetAndEpoch(-1, 0), pre_vote=True)


def received(message: Message, version: int) -> Request:
    """What the receiver of a request understands."""
    return wire.decode_request(through_bytes(message, version), version)


@pytest.mark.conforms("K595-33", "H20")
@pytest.mark.parametrize("request_", [VOTE, BEGIN, END, FETCH])
def test_a_request_arrives_as_it_was_sent(request_: Request) -> None:
    message = wire.encode_request(request_, to=3)
    assert received(message, api_of(message).max_version) == request_


def batch(offset: int, epoch: int, count: int = 1) -> bytes:
    return build_batch([Record(0, 0, None, b"x")] * count, offset, epoch)


@pytest.mark.conforms("K595-9", "K595-33")
@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (VOTE, VoteResponse(ErrorCode.NONE, None, 5, True)),
        (VOTE, VoteResponse(ErrorCode.NONE, None, 5, True, 1.25)),
        (VOTE, VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, 3, 9, False)),
        (BEGIN, Response(ErrorCode.INVALID_REQUEST, 3, 9)),
        (END, Response(ErrorCode.INCONSISTENT_VOTER_SET, None, 9)),
        (FETCH, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 9)),
        (FETCH, FetchResponse(ErrorCode.NONE, 1, 5, 7, OffsetAndEpoch(2, 8))),
        (FETCH, FetchResponse(ErrorCode.NONE, 1, 5, -1, OffsetAndEpoch(-1, 0))),
        (FETCH, FetchResponse(ErrorCode.NONE, 1, 5, 12, None, batch(10, 3, 2) + batch(12, 5))),
    ],
)
def test_an_answer_arrives_as_it_was_sent(request_: Request, response: Response) -> None:
    asked = wire.encode_request(request_, to=3)
    version = api_of(asked).max_version
    message = wire.encode_response(asked, response, 0)
    assert wire.decode_response(request_, through_bytes(message, version)) == response


@pytest.mark.conforms("K595-34")
@pytest.mark.parametrize("request_", [VOTE, BEGIN, END, FETCH])
def test_another_cluster_is_an_error_of_the_whole_request(request_: Request) -> None:
    error = ErrorCode.INCONSISTENT_CLUSTER_ID
    asked = wire.encode_request(request_, to=3)
    message = wire.encode_response(asked, Response(error, 1, 5), 0)
    assert message.error_code == error  # type: ignore[attr-defined]
    assert wire.decode_response(request_, message).error is error


@pytest.mark.conforms("K595-11")
def test_the_errors_of_the_quorum_have_kafkas_numbers() -> None:
    """Shipped Kafka has no INVALID_QUORUM_STATE: a request that does not fit the state is an INVALID_REQUEST."""
    assert {error.name: int(error) for error in ErrorCode if error in (1, 6, 42, 74, 75, 94, 98, 99, 104)} == {
        "OFFSET_OUT_OF_RANGE": 1,
        "NOT_LEADER_OR_FOLLOWER": 6,
        "INVALID_REQUEST": 42,
        "FENCED_LEADER_EPOCH": 74,
        "UNKNOWN_LEADER_EPOCH": 75,
        "INCONSISTENT_VOTER_SET": 94,
        "SNAPSHOT_NOT_FOUND": 98,
        "POSITION_OUT_OF_RANGE": 99,
        "INCONSISTENT_CLUSTER_ID": 104,
    }


@pytest.mark.conforms("K595-10")
def test_only_the_one_metadata_partition_is_meant() -> None:
    cases: tuple[list[QuorumTopic[quorum_apis.VotePartitionData]], ...] = (
        [],
        [QuorumTopic("other", [quorum_apis.VotePartitionData()])],
        [QuorumTopic(wire.METADATA_TOPIC, [])],
        [QuorumTopic(wire.METADATA_TOPIC, [quorum_apis.VotePartitionData(partition_index=1)])],
        [QuorumTopic(wire.METADATA_TOPIC, [quorum_apis.VotePartitionData(), quorum_apis.VotePartitionData()])],
    )
    for topics in cases:
        with pytest.raises(wire.InvalidRequestError):
            wire.decode_request(quorum_apis.VoteRequest(topics=topics), 2)


@pytest.mark.conforms("K595-10", "K595-33")
def test_a_fetch_of_another_topic_or_in_an_old_version_is_invalid() -> None:
    def asked(**fields: object) -> fetch.FetchRequest:
        partition = fetch.FetchPartition(**fields)  # type: ignore[arg-type]
        return fetch.FetchRequest(topics=[fetch.FetchTopic(topic=wire.METADATA_TOPIC, partitions=[partition])])

    for message, version in (
        (asked(), 11),
        (asked(partition=1), 12),
        (asked(fetch_offset=-1), 12),
        (asked(), 13),
        (fetch.FetchRequest(), 12),
    ):
        with pytest.raises(wire.InvalidRequestError):
            wire.decode_request(message, version)
    newer = fetch.FetchRequest(
        replica_state=fetch.ReplicaState(7, -1),
        topics=[fetch.FetchTopic(topic_id=wire.METADATA_TOPIC_ID, partitions=[fetch.FetchPartition()])],
    )
    decoded = wire.decode_request(newer, 17)
    assert isinstance(decoded, FetchRequest)
    assert decoded.replica_id == 7


@pytest.mark.conforms("H11")
@pytest.mark.parametrize(
    "records",
    [
        batch(11, 3),
        batch(10, 2),
        batch(10, 6),
        batch(10, 4) + batch(11, 3),
        batch(10, 3)[:-1],
        batch(10, 3)[:-1] + b"!",
        b"garbage",
    ],
)
def test_a_fetch_answer_with_a_gap_is_malformed(records: bytes) -> None:
    message = wire.encode_response(fetch.FetchRequest(), FetchResponse(ErrorCode.NONE, 1, 5, 7, None, records), 0)
    with pytest.raises(wire.MalformedResponseError):
        wire.decode_response(FETCH, message)


def test_an_answer_about_another_topic_is_malformed() -> None:
    with pytest.raises(wire.MalformedResponseError):
        wire.decode_response(VOTE, quorum_apis.VoteResponse())
    with pytest.raises(wire.MalformedResponseError):
        wire.decode_response(FETCH, fetch.FetchResponse())


@pytest.mark.conforms("K595-21", "K595-4", "H32")
def test_the_leader_change_record_is_a_control_batch() -> None:
    from broker.protocol.records import parse_header, read_records

    control = leader_change_batch(1, (1, 2, 3), (1, 3), 1_700_000_000_000)
    header = parse_header(control)
    assert header.is_control
    (record,) = read_records(control)
    assert record.key == b"\0\0\0\2"
    assert record.timestamp == 1_700_000_000_000
