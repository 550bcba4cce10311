"""Every decoder with input that has the structure of its messages and an error: it raises the decode error and no
other.

Hypothesis chooses and shrinks failures; `BROWNOUT_FUZZ_ROUNDS` increases the number of examples.
"""

import contextlib
import os
import random
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.errors import ProtocolError
from broker.log.append_validation import stamp_batches
from broker.log.checkpoint import CorruptCheckpointError, parse_lines
from broker.log.validation import MOST_RECORDS, admit, require_one_batch
from broker.protocol.api import APIS, Api, decode_request_header, decode_response_header, encode_request
from broker.protocol.codec import decode, decode_exactly, encoded
from broker.protocol.decoder import DecodeError
from broker.protocol.messages.metadata_records import RECORD_TYPES, decode_record
from broker.protocol.records import CorruptBatch, Record, build_batch, iter_batches, read_records, validate_batches
from broker.protocol.schema import Message
from broker.server.frames import SMALL, FrameBuffer, FrameError, Unlimited
from tests.broker.clients.poison import HONEST, POISON
from tests.broker.protocol.samples import ALL_MESSAGES, sample, versions_of
from tests.broker.protocol.structure import joined, mutated, parts, uvarint

ROUNDS = int(os.environ.get("BROWNOUT_FUZZ_ROUNDS", "4"))
BYTES_PER_BYTE = 700  # of memory for a byte of a frame: an array of empty structures costs most
BYTES_BESIDES = 1 << 17


def bounded(decoder: Callable[[], object], frame: bytes) -> None:
    """Call it; what it allocates is bounded by the frame's length. Raises what it raises."""
    tracemalloc.clear_traces()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        decoder()
    finally:
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before < BYTES_BESIDES + BYTES_PER_BYTE * len(frame), f"{peak - before} bytes for {len(frame)}"


BATCHES = [
    *HONEST.values(),
    *POISON.values(),
    build_batch([Record(0, number, b"k", b"v" * 20, (("h", None),)) for number in range(30)]),
]
CHANCE = st.randoms(use_true_random=False)
SEEDS = 1_000  # at most; the first few show it


def fuzzed(examples: int) -> settings:
    """The number of examples in a round, the same in every run, however slow the machine is."""
    return settings(
        max_examples=examples * ROUNDS,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def taken(cls: type[Message], version: int, rng: random.Random) -> bool:
    """Whether a message that was mutated is still one. Codec and parts agree on it before, and on what it is then."""
    message = sample(cls, version, rng)
    found = parts(message, version)
    assert encoded(message, version) == joined(found)
    assert decode_exactly(cls, version, joined(found)) == message
    frame = mutated(found, rng)
    try:
        other, end = decode(cls, version, frame)
    except DecodeError:
        return False
    assert end <= len(frame)
    again = encoded(other, version)
    assert encoded(decode_exactly(cls, version, again), version) == again, "as bytes, because a NaN differs from itself"
    return True


@pytest.mark.rotating(3)
@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_messages(cls: type[Message]) -> None:
    @fuzzed(15)
    @given(rng=CHANCE, version=st.sampled_from(versions_of(cls)))
    def look(rng: random.Random, version: int) -> None:
        taken(cls, version, rng)

    look()


@pytest.mark.parametrize("cls", ALL_MESSAGES, ids=lambda cls: cls.__name__)
def test_some_mutated_messages_are_messages_and_some_are_not(cls: type[Message]) -> None:
    """Of seeds of its own: what Hypothesis draws hangs on the constants of the modules that are loaded just then."""
    version = versions_of(cls)[0]
    assert any(taken(cls, version, random.Random(seed)) for seed in range(SEEDS))
    has_parts = bool(parts(sample(cls, version, random.Random(1)), version))
    assert not has_parts or not all(taken(cls, version, random.Random(seed)) for seed in range(SEEDS))


@fuzzed(50)
@given(rng=CHANCE, cls=st.sampled_from(ALL_MESSAGES))
def test_no_mutated_message_costs_more_memory_than_its_length_explains(rng: random.Random, cls: type[Message]) -> None:
    version = rng.choice(versions_of(cls))
    found = parts(sample(cls, version, rng), version)
    frame = mutated(found, rng)
    decode(cls, version, joined(found))  # the function is compiled
    tracemalloc.start()
    try:
        with contextlib.suppress(DecodeError):
            bounded(partial(decode, cls, version, frame), frame)
    finally:
        tracemalloc.stop()


@fuzzed(100)
@given(rng=CHANCE, api=st.sampled_from(list(APIS.values())))
def test_headers_of_requests_and_responses(rng: random.Random, api: Api) -> None:
    version = rng.randint(api.min_version, api.max_version)
    frame = bytes(encode_request(sample(api.request, version, rng), version, 7, "client"))[4:]
    header, _ = decode_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id) == (api.key, version, 7)
    noise = bytearray(frame[:40])
    for _ in range(rng.choice([1, 2, 8])):
        noise[rng.randrange(len(noise))] = rng.randrange(256)
    cut = bytes(noise[: rng.randrange(len(noise) + 1)])
    with contextlib.suppress(DecodeError):
        decode_request_header(cut)
    with contextlib.suppress(DecodeError):
        decode_response_header(api, 0, cut)


@fuzzed(60)
@given(rng=CHANCE, number=st.sampled_from(list(RECORD_TYPES)))
def test_metadata_records(rng: random.Random, number: int) -> None:
    cls = RECORD_TYPES[number]
    found = parts(sample(cls, versions_of(cls)[-1], rng), versions_of(cls)[-1])
    frame = rng.choice([b"\1", b"\1", b"\0", b"\xff"])
    data = frame + uvarint(number) + uvarint(versions_of(cls)[-1]) + mutated(found, rng)
    with contextlib.suppress(DecodeError):
        decode_record(data)


@fuzzed(150)
@given(rng=CHANCE)
def test_record_batches(rng: random.Random) -> None:
    """What a batch's reader takes of a mutated batch, a leader takes only if consumers can read it too."""
    batch = bytearray(rng.choice(BATCHES))
    for _ in range(rng.choice([0, 1, 1, 3])):
        batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
    if rng.choice([True, True, False]) and len(batch) > 61:
        reseal(batch)
    for reader in (validate_batches, lambda data: list(iter_batches(data)), require_one_batch):
        with contextlib.suppress(CorruptBatch, ProtocolError):
            reader(batch)
    before = bytes(batch)
    try:
        stamped = stamp_batches(batch, 100, 3, admit)
    except (CorruptBatch, ProtocolError):
        assert batch == before, "a batch that is refused is left as it was"
        return
    assert all(0 < it.next_offset - it.offset <= MOST_RECORDS for it in stamped)
    validate_batches(batch)
    for position, header in iter_batches(batch):
        if not header.compression:
            assert len(read_records(batch, position)) == header.records_count


def test_honest_batches_are_taken() -> None:
    """So the test above looks at batches that are taken, and not at refusals alone."""
    for honest in HONEST.values():
        assert stamp_batches(bytearray(honest), 100, 3, admit)


def reseal(batch: bytearray) -> None:
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")


@fuzzed(25)
@given(rng=CHANCE)
def test_frames(rng: random.Random) -> None:
    """Whatever lengths a stream announces, and in how small pieces it comes: the buffer follows what has come."""
    buffer = FrameBuffer(1 << 20, Unlimited(), 8)
    buffer.make_room()
    received = 0
    with contextlib.suppress(FrameError):
        for _ in range(rng.randint(1, 6)):
            length = rng.choice([0, 7, 8, 100, 5_000, 1 << 20, (1 << 20) + 1, -1, 0x7FFFFFFF])
            data = length.to_bytes(4, "big", signed=True) + bytes(min(max(length, 0), rng.choice([0, 90, 20_000])))
            while data:
                space = buffer.space()
                size = min(len(space), len(data))
                space[:size] = data[:size]
                del space
                buffer.received(size)
                received += size
                data = data[size:]
                while buffer.next_frame() is not None:
                    pass
                buffer.make_room()
                assert buffer.capacity <= 4 * received + 2 * SMALL


@fuzzed(50)
@given(rng=CHANCE)
def test_checkpoints(rng: random.Random) -> None:
    whole = "0\n2\nlog 0 5\nlog 1 7\n"
    assert parse_lines("f", whole, 3, "remove it") == [["log", "0", "5"], ["log", "1", "7"]]
    text = list(whole)
    for _ in range(rng.choice([1, 2, 5])):
        text[rng.randrange(len(text))] = chr(rng.choice([0, 10, 32, 48, 57, 0x660, 0x10FFFF]))
    with contextlib.suppress(CorruptCheckpointError):
        parse_lines("f", "".join(text), 3, "remove it")
