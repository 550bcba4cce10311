"""Record batches: ours read by us, other clients' read by us, ours read by other clients, and damage noticed."""

import random
import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder

from broker.protocol.records import (
    BATCH_HEADER_SIZE,
    CorruptBatch,
    Record,
    UnsupportedCompression,
    build_batch,
    iter_batches,
    parse_header,
    read_records,
    read_varint,
    stamp,
    validate_batch,
    validate_batches,
    varint,
)

RECORDS = [
    Record(10, 1_700_000_000_000, b"key", b"value", (("name", b"data"), ("nothing", None))),
    Record(11, 1_700_000_000_005, None, b""),
    Record(12, 1_699_999_999_990, b"", None),
    Record(13, 1_700_000_000_000, None, b"x" * 1000),
]


def test_a_batch_survives_the_round_trip() -> None:
    batch = build_batch(RECORDS, base_offset=10, leader_epoch=3)
    header = validate_batch(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (10, 13, 14)
    assert (header.leader_epoch, header.records_count, header.max_timestamp) == (3, 4, 1_700_000_000_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert not header.is_control
    assert read_records(batch) == RECORDS


def test_a_control_batch_is_marked_and_may_have_one_timestamp_for_all_records() -> None:
    batch = build_batch(RECORDS, 10, 3, 5, control=True)
    assert validate_batch(batch).is_control
    assert {record.timestamp for record in read_records(batch)} == {5}


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


@pytest.mark.conforms("K101-13")
def test_offset_and_leader_epoch_are_stamped_outside_of_the_crc() -> None:
    buffer = bytearray(build_batch(RECORDS[:1]) + build_batch(RECORDS[1:]))
    second = parse_header(buffer).size
    stamp(buffer, 0, 100, 7)
    stamp(memoryview(buffer), second, 101, 7)
    headers = validate_batches(buffer)
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [(100, 7), (101, 7)]
    assert [record.offset for record in read_records(buffer, second)] == [101, 102, 103]


def _append(builder: Any) -> bytes:
    for delta, record in enumerate(RECORDS):
        headers = [(name, value) for name, value in record.headers if value is not None]
        builder.append(delta, timestamp=record.timestamp, key=record.key, value=record.value, headers=headers)
    return bytes(builder.build())


def _builder(cls: Any, compression: int = 0) -> Any:
    names = {"magic": 2, "compression_type": compression, "is_transactional": False}
    return cls(**names, producer_id=7, producer_epoch=1, base_sequence=0, batch_size=999999)


@pytest.mark.parametrize("cls", [KafkaBuilder, AioBuilder], ids=["kafka-python", "aiokafka"])
def test_a_batch_of_another_client_is_read(cls: Any) -> None:
    batch = _append(_builder(cls))
    header = validate_batch(batch)
    assert (header.producer_id, header.records_count, header.size) == (7, 4, len(batch))
    first, *rest = read_records(batch)
    assert first == Record(0, RECORDS[0].timestamp, b"key", b"value", (("name", b"data"),))
    assert [(r.offset, r.timestamp, r.key, r.value) for r in rest] == [
        (delta, r.timestamp, r.key, r.value) for delta, r in enumerate(RECORDS[1:], 1)
    ]


@pytest.mark.parametrize("cls", [KafkaBuilder, AioBuilder], ids=["kafka-python", "aiokafka"])
def test_a_compressed_batch_is_validated_but_not_opened(cls: Any) -> None:
    batch = _append(_builder(cls, compression=1))
    assert validate_batch(batch).compression == 1
    with pytest.raises(UnsupportedCompression, match="codec 1"):
        read_records(batch)


@pytest.mark.parametrize("cls", [KafkaBatch, AioBatch], ids=["kafka-python", "aiokafka"])
def test_our_batch_is_read_by_another_client(cls: Any) -> None:
    theirs = cls(bytearray(build_batch(RECORDS, base_offset=10, leader_epoch=3)))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == RECORDS


def test_any_damage_behind_the_crc_is_noticed() -> None:
    batch = build_batch(RECORDS, base_offset=10, leader_epoch=3)
    rng = random.Random(1)
    for _ in range(300):
        damaged = bytearray(batch)
        damaged[rng.randrange(16, len(batch))] ^= 1 << rng.randrange(8)
        with pytest.raises(CorruptBatch):
            validate_batch(damaged)


def test_an_incomplete_batch_is_noticed_at_every_length() -> None:
    batch = build_batch(RECORDS)
    for length in range(len(batch)):
        with pytest.raises(CorruptBatch):
            validate_batch(batch[:length])
    assert validate_batches(b"") == []


@pytest.mark.parametrize(
    ("offset", "code", "value", "message"),
    [
        (16, "b", 1, "magic 1"),
        (8, "i", 48, "too small"),
        (8, "i", -(2**31), "too small"),
        (8, "i", 2**31 - 1, "are left"),
        (57, "i", 0, "0 records"),
        (57, "i", 2**31 - 1, "records"),
        (23, "i", 2**31 - 1, "last offset delta"),
        (17, "I", 0, "CRC-32C"),
    ],
)
def test_a_header_that_cannot_be_is_explained(offset: int, code: str, value: int, message: str) -> None:
    batch = bytearray(build_batch(RECORDS))
    struct.pack_into(">" + code, batch, offset, value)
    with pytest.raises(CorruptBatch, match=message):
        validate_batch(batch)


def test_iteration_stops_at_an_incomplete_batch_and_refuses_garbage() -> None:
    one, two = build_batch(RECORDS[:1], 10), build_batch(RECORDS[1:], 11)
    found = list(iter_batches(one + two + one[:70]))
    assert [(position, header.base_offset) for position, header in found] == [(0, 10), (len(one), 11)]
    with pytest.raises(CorruptBatch, match=f"position {len(one)}: magic 0"):
        list(iter_batches(one + b"\0" * BATCH_HEADER_SIZE))


def test_records_that_contradict_their_batch_raise_only_the_expected_error() -> None:
    batch = build_batch(RECORDS)
    rng = random.Random(2)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(batch[:200])
        struct.pack_into(">i", damaged, 8, 200 - 12)
        damaged[rng.randrange(BATCH_HEADER_SIZE, 200)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        try:
            read_records(damaged)
        except CorruptBatch:
            refused += 1
    assert refused > 1000


def test_a_count_of_records_is_bounded_by_the_batch() -> None:
    damaged = bytearray(build_batch(RECORDS))
    struct.pack_into(">i", damaged, 57, 2**31 - 1)
    with pytest.raises(CorruptBatch):
        read_records(damaged)


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 64, 2**31, -(2**31), 2**63 - 1, -(2**63)])
def test_signed_variable_length_integers(value: int) -> None:
    data = varint(value)
    assert read_varint(data, 0) == (value, len(data))


def test_a_variable_length_integer_has_an_end() -> None:
    with pytest.raises(CorruptBatch, match="too long"):
        read_varint(b"\xff" * 20, 0)
