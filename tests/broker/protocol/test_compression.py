"""Compressed records of clients are opened; damaged records and records that expand above the limit are refused."""

import gzip
import tracemalloc
from collections.abc import Callable

import cramjam
import pytest

from broker.protocol.compression import MOST_BLOCKS, MOST_OPENED_BYTES, NAMES, TooLargeError, open_records, pieces
from broker.protocol.records import CorruptBatch, UnsupportedCompression

RECORDS = b"\x0e\x00\x00\x00\x01\x02v\x00" * 500


def snappy_block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def snappy_of_java(data: bytes) -> bytes:
    """Two blocks, each behind its length, as snappy-java frames them."""
    return framed_snappy([snappy_block(data[:1000]), snappy_block(data[1000:])])


def framed_snappy(blocks: list[bytes]) -> bytes:
    return b"\x82SNAPPY\0" + b"\0\0\0\1" * 2 + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (1, gzip.compress),
    "snappy block": (2, snappy_block),
    "snappy of Java": (2, snappy_of_java),
    "lz4": (3, lambda data: bytes(cramjam.lz4.compress(data))),
    "zstd": (4, lambda data: bytes(cramjam.zstd.compress(data))),
}


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> tuple[int, Callable[[bytes], bytes]]:
    return CODECS[request.param]


def test_every_codec_has_a_name_and_is_tried_here() -> None:
    assert {number for number, _ in CODECS.values()} == set(NAMES)


def test_compressed_records_decompress_to_the_original(codec: tuple[int, Callable[[bytes], bytes]]) -> None:
    number, compress = codec

    assert open_records(number, compress(RECORDS)) == RECORDS


def test_little_takes_little_memory_however_much_there_might_have_been(
    codec: tuple[int, Callable[[bytes], bytes]],
) -> None:
    """Memory that Python gives is set to zeros first: of the most that may come that takes longer than the opening."""
    number, compress = codec
    packed = compress(RECORDS)
    tracemalloc.start()
    try:
        open_records(number, packed)
        assert tracemalloc.get_traced_memory()[1] < MOST_OPENED_BYTES // 16
    finally:
        tracemalloc.stop()


def test_truncated_or_foreign_data_is_refused(codec: tuple[int, Callable[[bytes], bytes]]) -> None:
    number, compress = codec
    whole = compress(RECORDS)

    for damaged in (whole[:-1], whole[: len(whole) // 2], b"\x9b" * 100, b""):
        with pytest.raises(CorruptBatch):
            open_records(number, damaged)


def test_data_that_expands_above_the_limit_is_refused(codec: tuple[int, Callable[[bytes], bytes]]) -> None:
    number, compress = codec

    with pytest.raises(TooLargeError):
        open_records(number, compress(bytes(MOST_OPENED_BYTES + 1)))


def test_blocks_of_snappy_are_bounded_and_counted_however_little_is_in_them() -> None:
    most = framed_snappy([snappy_block(b"")] * (MOST_BLOCKS - 1) + [snappy_block(RECORDS)])
    assert open_records(2, most) == RECORDS
    assert pieces(2, most) == MOST_BLOCKS
    for look in (open_records, pieces):
        with pytest.raises(CorruptBatch, match=f"more than {MOST_BLOCKS} blocks"):
            look(2, most + len(snappy_block(b"")).to_bytes(4, "big") + snappy_block(b""))
    assert pieces(2, snappy_block(RECORDS)) == pieces(1, gzip.compress(RECORDS)) == 1


def test_a_codec_that_does_not_exist_is_unsupported() -> None:
    with pytest.raises(UnsupportedCompression):
        open_records(5, RECORDS)
