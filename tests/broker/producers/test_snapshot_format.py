"""Producer snapshots as bytes: Kafka's layout, and damaged files."""

import struct
from random import Random

import pytest
from crc32c import crc32c

from broker.producers.producer_state import MAX_ID, NO_ID, ProducerState, Sequenced, Written
from broker.producers.snapshot_format import CorruptSnapshot, decode_snapshot, encode_snapshot


def state_of(*batches: tuple[Sequenced, int]) -> ProducerState:
    state = ProducerState()
    for batch, offset in batches:
        state.record(batch, offset, 50 + offset, 0.0)
    return state


def content(state: ProducerState) -> list[tuple[int, int, list[Written]]]:
    return [(producer_id, producer.epoch, list(producer.batches)) for producer_id, producer in state]


def test_the_layout_is_kafkas() -> None:
    """ProducerSnapshot.json, version 1: version int16, crc uint32, count int32, then the entries."""
    data = encode_snapshot(state_of((Sequenced(7, 3, 10, 4), 100)))
    entry = struct.pack(">qhiqiqiq", 7, 3, 14, 104, 4, 150, -1, -1)
    nothing_forgotten = struct.pack(">qhiqiqiq", -1, -1, -1, -1, 0, -1, -1, -1)
    checked = struct.pack(">i", 2) + entry + nothing_forgotten
    assert data == struct.pack(">hI", 1, crc32c(checked)) + checked


def test_a_snapshot_with_one_entry_per_producer_gives_the_last_batch() -> None:
    """So Kafka reads it."""
    data = encode_snapshot(state_of(*((Sequenced(7, 0, n, 0), n) for n in range(3))))
    last = {producer: offset for producer, _, _, offset, *_ in struct.iter_unpack(">qhiqiqiq", data[10:])}
    assert last.pop(NO_ID) == -1
    assert last == {7: 2}


@pytest.mark.parametrize("seed", range(20))
def test_a_written_producer_snapshot_reads_back(seed: int) -> None:
    rng = Random(seed)
    batches = [
        Sequenced(rng.randint(0, 3), rng.randint(0, 2), rng.randint(0, (1 << 31) - 1), rng.randint(0, 9))
        for _ in range(rng.randint(0, 20))
    ]
    state = state_of(*((batch, 10 * n) for n, batch in enumerate(batches)))
    if rng.random() < 0.5:
        state.may_have_forgotten(rng.choice([0, 17, MAX_ID]))
    read = decode_snapshot(encode_snapshot(state), 9.0)
    assert content(read) == content(state)
    assert read.forgotten_to == state.forgotten_to
    assert all(producer.seen_at == 9.0 for _, producer in read)


def test_an_entry_without_a_batch_is_passed_over() -> None:
    """A transaction's marker leaves such a one in Kafka's own files."""
    checked = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 3, -1, -1, 0, 5, 2, -1)
    read = decode_snapshot(struct.pack(">hI", 1, crc32c(checked)) + checked, 0.0)
    assert len(read) == 0
    assert read.forgotten_to == MAX_ID, "it does not say which producers were forgotten"


def test_a_damaged_one_is_refused() -> None:
    whole = encode_snapshot(state_of((Sequenced(7, 0, 0, 0), 0), (Sequenced(8, 0, 0, 0), 1)))
    damaged = [whole[:length] for length in range(len(whole))]
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    for data in damaged:
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data, 0.0)


@pytest.mark.parametrize("data", [b"", bytes(10), bytes(4096), b"\xff" * 60])
def test_a_snapshot_damaged_by_a_power_cut_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(data, 0.0)
