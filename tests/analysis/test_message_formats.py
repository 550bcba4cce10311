"""The reader of message formats 0 and 1, on files written byte by byte."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from analysis.replicafiles.kafka import read_replica
from analysis.replicafiles.log import NO_EPOCH, NO_VALUE, ReplicaLog
from tests.analysis.compressed_sets import ALL, GZIP, LZ4, NAMES, compressed
from tests.analysis.message_files import message, messages, nullable, wrapper
from tests.analysis.segment_files import batch, log_bytes, record, value, write_replica

Read = Callable[[bytes], ReplicaLog]
UNKNOWN = 5
"""A codec that there is not."""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a log from the bytes of its first segment."""
    count = iter(range(1_000))

    def read_bytes(data: bytes) -> ReplicaLog:
        return read_replica("n1", "log", 0, write_replica(tmp_path / str(next(count)), "log", 0, {0: data}))

    return read_bytes


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_carry_offsets_and_values_and_no_epochs(read: Read, magic: int) -> None:
    log = read(messages([7, 8], magic=magic) + message(2, b"short", magic=magic) + message(3, None, magic=magic))
    assert log.offset.tolist() == [0, 1, 2, 3]
    assert log.value.tolist() == [7, 8, NO_VALUE, NO_VALUE]
    assert log.epoch.tolist() == [NO_EPOCH] * 4
    assert (log.end, log.damage, log.unread, log.formats, log.has_epochs) == (4, "", "", (magic,), False)
    assert len(set(log.digest.tolist())) == 4


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ALL, ids=NAMES.get)
def test_a_compressed_set_is_the_messages_that_it_holds(read: Read, magic: int, codec: int) -> None:
    contents = [value(number, 20) for number in (5, 6, 7)]
    before, after = message(0, value(4), magic=magic), messages([8], magic=magic, start=4)
    packed = read(before + wrapper(1, contents, magic=magic, codec=codec) + after)
    plain = b"".join(message(1 + i, each, magic=magic, time=1_000 + i) for i, each in enumerate(contents))
    unpacked = read(before + plain + after)
    assert packed.value.tolist() == [4, 5, 6, 7, 8]
    assert packed.offset.tolist() == unpacked.offset.tolist()
    assert packed.digest.tolist() == unpacked.digest.tolist()
    assert (packed.damage, packed.opaque) == ("", ())


def test_a_set_stamped_by_the_broker_has_one_time(read: Read) -> None:
    stamped = read(wrapper(0, [value(1), value(2)], time=5, attributes=8))
    plain = read(message(0, value(1), time=5) + message(1, value(2), time=5))
    assert stamped.digest.tolist() == plain.digest.tolist()


def test_the_checksum_of_an_lz4_frame_is_ignored_in_format_0_alone(read: Read) -> None:
    """Clients of that time computed it wrongly."""

    def log(magic: int) -> ReplicaLog:
        frame = bytearray(compressed(LZ4, message(0, value(1), magic=magic)))
        frame[6] ^= 0x5A
        return read(message(0, bytes(frame), magic=magic, attributes=LZ4))

    assert (log(0).value.tolist(), log(0).damage) == ([1], "")
    assert "does not open as lz4" in log(1).damage


def test_a_set_of_another_codec_is_not_opened(read: Read) -> None:
    data = messages([1]) + wrapper(1, [value(2), value(3)], codec=UNKNOWN) + messages([4], start=3)
    log = read(data)
    assert log.offset.tolist() == [0, 1, 2, 3]
    assert log.value.tolist() == [1, NO_VALUE, NO_VALUE, 4]
    assert (log.opaque, log.damage) == (((1, 3),), "")
    assert log.digest.tolist() == read(data).digest.tolist()


def test_a_log_may_change_its_format_in_the_middle_of_a_segment(read: Read) -> None:
    data = messages([1], magic=0) + messages([2], start=1) + log_bytes([5], [3], start=2) + messages([4], start=3)
    log = read(data)
    assert log.value.tolist() == [1, 2, 3, 4]
    assert log.epoch.tolist() == [NO_EPOCH, NO_EPOCH, 5, NO_EPOCH]
    assert (log.end, log.formats, log.damage) == (4, (0, 1, 2), "")


def test_a_record_has_one_digest_in_formats_1_and_2(read: Read) -> None:
    old = read(message(0, value(1, 300), key=b"k") + message(1, None, key=b"k") + message(2, value(2)))
    new = read(batch(0, 3, [record(0, value(1, 300), key=b"k"), record(1, None, key=b"k"), record(2, value(2))]))
    assert old.digest.tolist() == new.digest.tolist()
    other = read(message(0, value(1, 300), key=b"K") + message(1, None, key=b"k", time=7) + message(2, value(3)))
    assert not set(other.digest.tolist()) & set(old.digest.tolist())


WHOLE = messages([10, 11, 12])
LAST = messages([13], start=3)


def checked(body: bytes) -> bytes:
    """A message at offset 3 with a right checksum over whatever body."""
    return struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b"", ""),
        (LAST[:5], "torn"),
        (LAST[:20], "torn"),
        (LAST[:-1], "torn"),
        (bytes(4096), "4096 bytes of zeros"),
        (LAST[:-1] + b"\1", "does not match its CRC-32"),
        (messages([13], start=7), "offset 7 where 3 is due"),
        (struct.pack(">qi", 3, -5) + bytes(100), "no batch"),
        (checked(b"\1\0" + bytes(8) + nullable(b"k") + struct.pack(">i", 99) + b"v"), "does not fit"),
        (checked(b"\0\0" + nullable(None) + nullable(b"value") + b"more"), "does not fit"),
        (message(3, b"no gzip", attributes=GZIP), "does not open as gzip"),
        *((wrapper(3, [value(13)], codec=codec)[:-9], "torn") for codec in ALL),
        *((message(3, compressed(codec, LAST)[:-1], attributes=codec & 7), "does not open as") for codec in ALL),
        (wrapper(9, [value(13)]), "offset 9 where 3 is due"),
        (wrapper(3, []), "are not messages"),
        (wrapper(1, [value(13)], codec=UNKNOWN), "end at offset 1 where 3 is due"),
    ],
)
def test_a_log_ends_where_its_bytes_stop_being_messages(read: Read, tail: bytes, why: str) -> None:
    log = read(WHOLE + tail)
    assert log.value.tolist() == [10, 11, 12]
    assert (log.end, log.unread) == (3, "")
    assert why in log.damage
    assert bool(log.damage) == bool(why)


def test_a_set_within_a_set_is_refused(read: Read) -> None:
    inner = wrapper(0, [value(1)])
    packer = zlib.compressobj(wbits=31)
    log = read(message(0, packer.compress(inner) + packer.flush(), attributes=GZIP))
    assert "hold what they must not" in log.damage


@pytest.mark.parametrize("before", [WHOLE, log_bytes([1, 1, 1], [10, 11, 12])], ids=["messages", "batches"])
def test_an_unknown_format_is_unread_and_not_damage(read: Read, before: bytes) -> None:
    log = read(before + message(3, value(13), magic=7) + bytes(100))
    assert (log.value.tolist(), log.end, log.damage) == ([10, 11, 12], 3, "")
    assert "message format 7" in log.unread
    assert "is not known" in log.unread


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, GZIP], ids=["plain", "gzip"])
def test_the_reader_reads_messages_of_a_client_library(read: Read, magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 16)
    for number in range(3):
        builder.append(number, timestamp=1_000 + number, key=b"k", value=value(40 + number, 60))
    data = bytes(builder.build())
    if codec:  # the broker gives the wrapper the offset of its last message
        data = struct.pack(">q", 2) + data[8:]
    log = read(data)
    assert (log.offset.tolist(), log.value.tolist(), log.damage) == ([0, 1, 2], [40, 41, 42], "")
