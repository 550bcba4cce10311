"""The walk through a batch's records accepts exactly the records that consumers can read, in each of its ways."""

import random
from collections.abc import Callable

import pytest

import broker.log.record_walk as record_walk
from broker.log.record_walk import TimestampError, walk_records
from broker.protocol.records import BATCH_HEADER_SIZE, CorruptBatch, Record, build_batch, read_records

Drawn = Callable[[random.Random, int], Record]

SHAPES: dict[str, Drawn] = {
    "alike": lambda _, number: Record(number, 5, None, b"v" * 100),
    "alike, with keys and times": lambda _, number: Record(number, number // 7, b"%06d" % number, b"v" * 30),
    "alike, with larger and larger times": lambda _, number: Record(number, number * 100, None, b"v" * 200),
    "alike, with times forwards and backwards": lambda _, number: Record(number, _wide(number), None, b"v" * 20),
    "of many sizes": lambda rng, number: Record(number, rng.randint(-90, 90), None, bytes(rng.randint(0, 300))),
    "now alike, now not": lambda rng, number: Record(number, 0, None, bytes(50 if number % 90 else rng.randint(0, 9))),
    "with headers": lambda rng, number: Record(number, 0, b"k", None, (("name", rng.choice([None, b"x"])),)),
    "null": lambda _, number: Record(number, 0, None, None),
}


def _wide(number: int) -> int:
    """A time of two bytes whose sign changes."""
    return (100 + number) * (-1) ** number if number else 0


def payload(records: list[Record]) -> bytes:
    return build_batch(records)[BATCH_HEADER_SIZE:]


@pytest.mark.parametrize("count", [1, 2, 15, 64, 65, 700])
@pytest.mark.parametrize("shape", SHAPES)
def test_well_formed_records_pass_with_their_largest_timestamp(shape: str, count: int) -> None:
    rng = random.Random(count)
    records = [SHAPES[shape](rng, number) for number in range(count)]
    base = records[0].timestamp
    assert walk_records(payload(records), count, base) == max(record.timestamp for record in records)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_walk_gives_the_same_result_for_a_flipped_bit(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortcuts (similar records, usual records) give the result of the full walk."""
    rng = random.Random(shape)
    records = [SHAPES[shape](rng, number) for number in range(80)]
    whole = payload(records)
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        short = judged(bytes(data), len(records))
        with monkeypatch.context() as slow:
            slow.setattr(record_walk, "FEW", 1 << 30)
            slow.setattr(record_walk, "_usual", lambda *_: None)
            assert judged(bytes(data), len(records)) == short
        refused += short is None
        if short is not None:
            batch = build_batch(records)[:BATCH_HEADER_SIZE] + bytes(data)
            assert [record.offset for record in read_records(batch)] == list(range(len(records)))
    assert refused


def judged(data: bytes, count: int) -> int | None:
    try:
        return walk_records(data, count, 0)
    except (CorruptBatch, TimestampError):
        return None


def test_similar_batches_cost_a_bounded_number_of_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0
    alike = record_walk._alike

    def counted(*arguments: object) -> tuple[int, int, int] | None:
        nonlocal attempts
        attempts += 1
        return alike(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(record_walk, "_alike", counted)
    records = [Record(0, 0, None, bytes(number % 2)) for number in range(5_000)]
    walk_records(payload(records), len(records), 0)
    assert attempts == record_walk.MOST_FAILURES


def test_noise_is_refused() -> None:
    rng = random.Random(1)
    for _ in range(1_000):
        noise = rng.randbytes(rng.choice([0, 1, 7, 30, 300]))
        assert judged(noise, rng.choice([1, 2, 100, 2**31 - 1])) is None


def test_offset_deltas_of_every_length_are_known() -> None:
    records = [Record(number, 0, None, b"v") for number in range(17_000)]
    assert walk_records(payload(records), len(records), 0) == 0
    swapped = records[:16_500] + records[16_501:]
    with pytest.raises(CorruptBatch):
        walk_records(payload(swapped), len(records), 0)
