"""Similar batches are checked together: the result is the same as for each alone."""

import random
from collections.abc import Sequence

import pytest
from crc32c import crc32c

from broker.errors import ProtocolError
from broker.log.append_validation import Admit, Batch, fetched_alike, is_plain_single, stamp_batches
from broker.log.identical_batches import FEWEST, MOST, LetIn
from broker.log.validation import BatchClaims, admit, admit_keyed, bytes_examined
from broker.protocol.records import CorruptBatch, Record, build_batch, parse_header, stamp, validate_batch

BROKEN = 12
"""Which of the batches is another."""
COUNT = 24
NOW_MS = 1_700_000_000_000


def batch(number: int, *, key: bytes | None = None, value: bytes = b"v" * 70) -> bytearray:
    return bytearray(build_batch([Record(0, NOW_MS + number, key, value)]))


def mend(data: bytearray) -> bytearray:
    """The batch with the CRC that its bytes have."""
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return data


def taken(
    batches: Sequence[bytes | bytearray], known: dict[Admit, LetIn] | None = None
) -> tuple[list[Batch], bytes] | str:
    """What a leader makes of batches that come together, or why it refuses."""
    buf = bytearray(b"".join(batches))
    try:
        return stamp_batches(buf, 100, 7, admit, known), bytes(buf)
    except (CorruptBatch, ProtocolError) as refused:
        return type(refused).__name__


def taken_alone(batches: Sequence[bytes | bytearray]) -> tuple[list[Batch], bytes] | str:
    """The same, of one after the other; the first that is refused has all refused."""
    found: list[Batch] = []
    stamped = bytearray()
    for each in batches:
        buf = bytearray(each)
        try:
            found += stamp_batches(buf, found[-1].next_offset if found else 100, 7, admit)
        except (CorruptBatch, ProtocolError) as refused:
            return type(refused).__name__
        stamped += buf
    return found, bytes(stamped)


@pytest.mark.parametrize("key", [None, b"key"])
def test_each_gets_its_offset_and_its_time(key: bytes | None) -> None:
    batches = [batch(number, key=key, value=b"%070d" % number) for number in range(COUNT)]
    result = taken(batches)
    assert result == taken_alone(batches)
    assert isinstance(result, tuple)
    size = len(batches[0])
    assert result[0] == [Batch(100 + number, 101 + number, size, NOW_MS + number) for number in range(COUNT)]


@pytest.mark.parametrize("value", [b"v" * 70, b"v" * 200])
@pytest.mark.parametrize("mended", [True, False])
def test_a_changed_byte_has_the_same_effect_together_and_alone(value: bytes, mended: bool) -> None:
    chance = random.Random(1)
    size = len(batch(0, value=value))
    refused = 0
    for at in range(size):
        for byte in {0, 1, 2, 127, 128, 255, chance.randrange(256)}:
            batches = [batch(number, key=b"key", value=value) for number in range(COUNT)]
            other = batches[BROKEN]
            other[at] = byte
            if mended:
                mend(other)
            result = taken(batches)
            assert result == taken_alone(batches), (at, byte)
            refused += isinstance(result, str)
    assert refused > 100


@pytest.mark.parametrize("mended", [True, False])
def test_the_memory_of_earlier_requests_does_not_change_results(mended: bool) -> None:
    chance = random.Random(4)
    known: dict[Admit, LetIn] = {}
    stamp_batches(bytearray(b"".join(batch(number, key=b"key") for number in range(2))), 0, 7, admit, known)
    assert known
    alone = batch(5, key=b"key")
    for at in range(len(alone)):
        for byte in {alone[at], 0, 1, 2, 127, 128, 255, chance.randrange(256)}:
            other = bytearray(alone)
            other[at] = byte
            if mended:
                mend(other)
            costs = bytes_examined()
            expected = taken([other])
            costs = bytes_examined() - costs
            before = bytes_examined()
            assert taken([other], known) == expected, (at, byte)
            assert bytes_examined() - before == costs, "no run may depend on what another has let in"


def test_batches_accepted_by_one_kind_of_topic_are_checked_for_another() -> None:
    known: dict[Admit, LetIn] = {}
    batches = b"".join(batch(number) for number in range(COUNT))
    stamp_batches(bytearray(batches), 0, 1, admit, known)
    with pytest.raises(ProtocolError, match="without a key"):
        stamp_batches(bytearray(batches), 0, 1, admit_keyed, known)


def test_the_second_single_batch_is_remembered_and_the_third_is_not_examined() -> None:
    looked_into: list[int] = []

    def counted(claims: BatchClaims, payload: memoryview) -> int:
        looked_into.append(claims.base_timestamp - NOW_MS)
        return admit(claims, payload)

    known: dict[Admit, LetIn] = {}
    for number in (0, 1, 2, 3):
        stamp_batches(batch(number), number, 7, counted, known)
    assert looked_into == [0, 1]
    for number in (10, 11):  # another size: those before are remembered until it has come twice
        stamp_batches(batch(number, value=b"w"), number, 7, counted, known)
        stamp_batches(batch(4), number, 7, counted, known)
    assert looked_into == [0, 1, 10, 11, 4]


def test_runs_of_several_kinds_follow_each_other() -> None:
    chance = random.Random(2)
    for _ in range(200):
        batches: list[bytes] = []
        while len(batches) < 60:
            length, kind = chance.randrange(1, 200), chance.randrange(4)
            for number in range(chance.randrange(1, 30)):
                if kind == 0:
                    records = [Record(0, NOW_MS, None, b"x" * length), Record(0, NOW_MS + 1, None, b"y")]
                    batches.append(build_batch(records))
                elif kind == 1:
                    records = [Record(0, NOW_MS, None, b"x" * length, (("h", b"1"),))]
                    batches.append(build_batch(records))
                elif kind == 2:
                    records = [Record(0, NOW_MS, None, b"x" * length)]
                    batches.append(build_batch(records, producer_id=5, producer_epoch=0, base_sequence=number))
                else:
                    batches.append(bytes(batch(number, value=b"z" * length)))
        assert taken(batches) == taken_alone(batches)


def test_a_largest_timestamp_that_no_record_has_is_put_right_among_others() -> None:
    batches = [batch(number) for number in range(COUNT)]
    batches[BROKEN][35:43] = (NOW_MS + 5_000).to_bytes(8, "big")
    mend(batches[BROKEN])
    result = taken(batches)
    assert result == taken_alone(batches)
    assert isinstance(result, tuple)
    assert result[0][BROKEN].max_timestamp == NOW_MS + BROKEN


def test_more_than_are_compared_at_once() -> None:
    batches = [bytes(batch(number)) for number in range(2 * MOST + 3 * FEWEST)]
    assert taken(batches) == taken_alone(batches)


def test_batches_examined_together_cost_the_same() -> None:
    def examined(batches: Sequence[Sequence[bytes]]) -> int:
        before = bytes_examined()
        for each in batches:
            stamp_batches(bytearray(b"".join(each)), 0, 1, admit)
        return bytes_examined() - before

    batches = [bytes(batch(number)) for number in range(COUNT)]
    assert examined([batches]) >= examined([[each] for each in batches])


def test_a_compacted_topic_takes_no_record_without_a_key_behind_others_that_have_one() -> None:
    batches = [batch(number, key=b"key") for number in range(COUNT)]
    batches[BROKEN] = batch(0, key=None, value=b"v" * 73)
    assert len({len(each) for each in batches}) == 1
    with pytest.raises(ProtocolError, match="without a key"):
        stamp_batches(bytearray(b"".join(batches)), 0, 1, admit_keyed)


# --- a follower


def fetched(count: int = COUNT, value: bytes = b"v" * 70) -> list[bytearray]:
    """Batches as a leader has them, from offset 40 on, of epoch 3."""
    batches = [batch(number, value=value) for number in range(count)]
    for number, each in enumerate(batches):
        stamp(each, 0, 40 + number, 3)
    return batches


def test_a_follower_appends_batches_that_continue_its_log() -> None:
    batches = fetched()
    size = len(batches[0])
    found = fetched_alike(b"".join(batches), 0, size, 41)
    assert found == [Batch.of(parse_header(each)) for each in batches[1:]]
    assert fetched_alike(b"".join(batches), 0, size, 42) == []
    assert fetched_alike(b"".join(batches[:FEWEST]), 0, size, 41) == []
    del batches[5]
    assert len(fetched_alike(b"".join(batches), 0, size, 41)) == 4


def test_a_follower_refuses_the_same_batches_together_and_alone() -> None:
    chance = random.Random(3)
    size = len(fetched()[0])
    for at in range(size):
        for byte in {0, 1, 2, 127, 128, 255, chance.randrange(256)}:
            batches = fetched()
            batches[BROKEN][at] = byte
            if chance.random() < 0.7:
                mend(batches[BROKEN])
            found = fetched_alike(b"".join(batches), 0, size, 41)
            for number, one in enumerate(found, 1):
                header = validate_batch(batches[number])
                assert (header.base_offset, header.leader_epoch) == (40 + number, 3)
                assert is_plain_single(header)
                assert one == Batch.of(header)
            assert len(found) >= BROKEN - 1
