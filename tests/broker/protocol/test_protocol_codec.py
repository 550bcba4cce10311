"""Every message at every version decodes to its original, and the decoder bounds every input."""

import contextlib
import random
import struct
import tracemalloc
from typing import Annotated

import pytest

from broker.protocol.codec import DecodeError, EncodeError, decode, decode_exactly, encode, encoded
from broker.protocol.decoder import read_uvarint
from broker.protocol.encoder import uvarint
from broker.protocol.messages import control_records, fetch, metadata_records
from broker.protocol.messages.cluster_apis import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from broker.protocol.messages.offset_apis import OffsetForLeaderEpochRequest
from broker.protocol.messages.producer_apis import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.protocol.messages.quorum_apis import VotePartitionData, VoteRequest
from broker.protocol.messages.topic_apis import CreatableTopicResult, CreateTopicsResponse
from broker.protocol.schema import (
    NO_ID,
    DeclarationError,
    Int8,
    Int32,
    Message,
    Nullable,
    QuorumTopic,
    String,
    Tag,
    fields_of,
    v,
)
from tests.broker.protocol.samples import ALL_MESSAGES, every_message_and_version, sample, versions_of


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_every_version_of_a_message_survives_the_round_trip(cls: type[Message]) -> None:
    rng = random.Random(7)
    for version in versions_of(cls):
        for message in [cls(), *(sample(cls, version, rng) for _ in range(12))]:
            data = encoded(message, version)
            assert decode_exactly(cls, version, data) == message
            assert decode(cls, version, memoryview(b"ab" + data + b"c"), 2) == (message, 2 + len(data))
            assert decode(cls, version, bytearray(data)) == (message, len(data))


def test_a_truncated_message_is_refused_at_every_length() -> None:
    rng = random.Random(8)
    for cls, version in every_message_and_version():
        data = encoded(sample(cls, version, rng), version)
        for length in range(0, len(data), max(1, len(data) // 60)):
            with pytest.raises(DecodeError):
                decode_exactly(cls, version, data[:length])


def test_random_and_damaged_bytes_raise_only_decode_errors() -> None:
    rng = random.Random(9)
    for cls, version in every_message_and_version():
        for _ in range(30):
            _decode_or_refuse(cls, version, rng.randbytes(rng.randrange(80)))
            damaged = bytearray(encoded(sample(cls, version, rng), version))
            for _ in range(rng.randint(1, 4)):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF])
            _decode_or_refuse(cls, version, bytes(damaged))


def _decode_or_refuse(cls: type[Message], version: int, data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decode(cls, version, data)


HUGE_LENGTHS = [
    (MetadataRequest, 1, struct.pack(">i", 2**31 - 1)),
    (MetadataRequest, 12, uvarint(2**32 - 1)),
    (ProduceRequest, 3, struct.pack(">hhii", -1, -1, 0, 2**31 - 1)),
    (ProduceRequest, 3, struct.pack(">hhii", -1, -1, 0, 1) + b"\0\1t" + struct.pack(">iii", 1, 0, 2**31 - 1)),
    (fetch.FetchRequest, 12, b"\0" * 21 + uvarint(2**31)),
    (VoteRequest, 0, uvarint(2**32 - 1) + b"x" * 100),
    (ApiVersionsRequest, 3, b"\1\1" + uvarint(2**32 - 1) + b"\x09" + uvarint(2**32 - 1)),
    (ApiVersionsRequest, 3, b"\1\1" + uvarint(2**32 - 1) + b"\0\0" * 40),
]


@pytest.mark.parametrize(("cls", "version", "data"), HUGE_LENGTHS)
def test_a_huge_length_is_refused_before_any_allocation(cls: type[Message], version: int, data: bytes) -> None:
    with pytest.raises(DecodeError):  # compile first: what the compiler allocates is not the point
        decode(cls, version, data)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(cls, version, data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_the_size_of_the_elements_bounds_an_array() -> None:
    elements = 1000
    data = uvarint(elements + 1) + b"\0" * (elements * 17 - 1)
    with pytest.raises(DecodeError, match="announced"):
        decode(MetadataRequest, 12, data)


def test_null_is_taken_only_where_the_version_allows_it() -> None:
    null_array = struct.pack(">i", -1)
    assert decode(MetadataRequest, 1, null_array)[0].topics is None
    with pytest.raises(DecodeError, match="null"):
        decode(MetadataRequest, 0, null_array)
    with pytest.raises(EncodeError, match="null"):
        encoded(MetadataRequest(topics=None), 0)
    with pytest.raises(EncodeError, match="null"):
        encoded(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9)
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"i" * 16, name=None)])
    assert decode_exactly(MetadataRequest, 12, encoded(by_id, 12)) == by_id


def test_a_length_below_null_is_refused() -> None:
    with pytest.raises(DecodeError, match="negative"):
        decode(MetadataRequest, 1, struct.pack(">i", -2))


def test_unknown_tagged_fields_are_skipped() -> None:
    unknown = uvarint(2) + uvarint(0) + uvarint(3) + b"abc" + uvarint(99) + uvarint(0)
    body = b"\5name" + b"\4ver"
    request, end = decode(ApiVersionsRequest, 3, body + unknown)
    assert (request.client_software_name, request.client_software_version) == ("name", "ver")
    assert end == len(body + unknown)


def test_a_tagged_field_must_be_as_long_as_announced() -> None:
    message = fetch.FetchRequest(cluster_id="cluster")
    data = bytearray(encoded(message, 12))
    at = data.index(b"\x08cluster")
    data[at - 1] += 1
    with pytest.raises(DecodeError):
        decode(fetch.FetchRequest, 12, bytes(data) + b"\0")


def test_tagged_structures_are_absent_unless_set() -> None:
    answer = fetch.PartitionData(diverging_epoch=fetch.EpochEndOffset(3, 17), records=b"")
    topic = fetch.FetchableTopicResponse("t", partitions=[answer])
    decoded = decode_exactly(fetch.FetchResponse, 12, encoded(fetch.FetchResponse(responses=[topic]), 12))
    (partition,) = decoded.responses[0].partitions
    assert partition.diverging_epoch == fetch.EpochEndOffset(epoch=3, end_offset=17)
    assert partition.current_leader is None
    assert partition.snapshot_id is None


def test_records_are_views_of_the_buffer_and_other_bytes_are_not() -> None:
    data = bytearray(encoded(_produce(b"\1\2\3"), 9))
    request = decode_exactly(ProduceRequest, 9, data)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    data[data.index(b"\1\2\3")] = 9
    assert bytes(records) == b"\x09\2\3"


def _produce(records: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData("t", partition_data=[partition])])


def test_fetching_replica_is_found_at_every_version() -> None:
    old = decode_exactly(fetch.FetchRequest, 14, encoded(fetch.FetchRequest(replica_id=3), 14))
    new_request = fetch.FetchRequest(replica_state=fetch.ReplicaState(3, 40))
    new = decode_exactly(fetch.FetchRequest, 15, encoded(new_request, 15))
    consumer = decode_exactly(fetch.FetchRequest, 15, encoded(fetch.FetchRequest(), 15))
    assert fetch.fetching_replica(old) == fetch.ReplicaState(3, -1)
    assert fetch.fetching_replica(new) == fetch.ReplicaState(3, 40)
    assert fetch.fetching_replica(consumer).replica_id == -1


def test_a_message_that_cannot_be_encoded_leaves_the_buffer_unchanged() -> None:
    out = bytearray(b"before")
    bad = OffsetForLeaderEpochRequest(replica_id=2**40)
    with pytest.raises(EncodeError, match="OffsetForLeaderEpochRequest v3"):
        encode(bad, 3, out)
    assert out == b"before"
    with pytest.raises(EncodeError, match="16 bytes"):
        encode(CreateTopicsResponse(topics=[CreatableTopicResult("t", b"short")]), 7, out)
    assert out == b"before"


def test_versions_that_do_not_exist_are_refused_in_both_directions() -> None:
    with pytest.raises(DecodeError, match="no version 99"):
        decode(fetch.FetchRequest, 99, b"")
    with pytest.raises(EncodeError, match="no version 3"):
        encoded(fetch.FetchRequest(), 3)


def test_bytes_behind_a_message_are_noticed() -> None:
    data = encoded(VoteRequest(), 0)
    with pytest.raises(DecodeError, match="1 bytes left over"):
        decode_exactly(VoteRequest, 0, data + b"x")


def test_a_vote_request_has_the_bytes_of_the_schema() -> None:
    partition = VotePartitionData(0, 5, 1, b"D" * 16, NO_ID, 4, 77, True)
    request = VoteRequest("c", 2, [QuorumTopic("t", [partition])])
    body = b"\2c" + struct.pack(">i", 2) + b"\2" + b"\2t" + b"\2"
    numbers = struct.pack(">iii", 0, 5, 1) + b"D" * 16 + NO_ID + struct.pack(">iq", 4, 77)
    assert encoded(request, 2) == body + numbers + b"\1" + b"\0" * 3
    assert encoded(request, 1) == body + numbers + b"\0" * 3


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**31, 2**32 - 1])
def test_variable_length_integers(value: int) -> None:
    data = uvarint(value)
    assert read_uvarint(data, 0) == (value, len(data))


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\0", b"\xff" * 5 + b"\1", b"\xff\xff\xff\xff\x7f"])
def test_variable_length_integers_beyond_32_bits_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="32 bits"):
        read_uvarint(data, 0)


def test_metadata_records_are_framed_as_in_kraft() -> None:
    record = metadata_records.TopicRecord("t", b"I" * 16)
    assert metadata_records.encode_record(record) == b"\1\2\0" + b"\2t" + b"I" * 16 + b"\0"
    change = metadata_records.PartitionChangeRecord(1, b"I" * 16, isr=[2, 3], leader=2)
    data = metadata_records.encode_record(change)
    tags = b"\2" + b"\0\x09\3" + struct.pack(">ii", 2, 3) + b"\1\4" + struct.pack(">i", 2)
    assert data == b"\1\5\2" + struct.pack(">i", 1) + b"I" * 16 + tags
    assert metadata_records.decode_record(data) == change


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\2\2\0", b"\1\x7f\0", b"\1\2\x09", b"\1\2\0\2t", b"\1\2\0\2t" + b"I" * 18]
)
def test_malformed_metadata_records_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        metadata_records.decode_record(data)


class Unbounded(Message):
    when: float = 0.0


class PlainNullableStructure(Message):
    inner: control_records.Voter | None = None


@pytest.mark.parametrize("cls", [Unbounded, PlainNullableStructure])
def test_declarations_that_cannot_be_compiled_are_named(cls: type[Message]) -> None:
    with pytest.raises(DeclarationError):
        fields_of(cls)


class Declared(Message):
    VERSIONS = v("1-3")
    FLEXIBLE = v("3+")

    number: Annotated[Int8, v("2+")] = 5
    name: Annotated[String | None, Nullable("2+")] = ""
    extra: Annotated[Int32, v("3+"), Tag(4)] = -1


def test_a_declaration_encodes_as_documented() -> None:
    message = Declared(7, None, 9)
    assert encoded(Declared(7, "a", 9), 1) == b"\0\1a"
    assert encoded(message, 2) == b"\7\xff\xff"
    assert encoded(message, 3) == b"\7\0" + b"\1\4\4" + struct.pack(">i", 9)
    assert encoded(Declared(7, None), 3) == b"\7\0\0"
    with pytest.raises(EncodeError):
        encoded(message, 1)
