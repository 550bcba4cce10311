"""Decompresses the records of a batch within a bound, and compresses what compaction has left of them.

The bound is needed because a few KB may decompress to gigabytes. gzip is the standard library's; the other codecs are
the package cramjam's. Records that cannot be decompressed are refused: a leader must be able to validate them.
"""

import mmap
import zlib
from collections.abc import Callable, Iterator, Mapping

import cramjam

from broker.protocol.records import CorruptBatch, UnsupportedCompression

MOST_OPENED_BYTES = 32 << 20
"""The most bytes of one batch's records after decompression; clients' batches have 16 KB to 1 MB."""

MOST_BLOCKS = 1 << 15
"""Most blocks of snappy in Java's frame: its clients put 32 KB into each, and an empty block takes a microsecond."""

_SNAPPY_CODEC = 2
_GZIP_WINDOW = 31  # zlib parameter: the largest window, and a gzip header is required
_XERIAL = b"\x82SNAPPY\0"  # start of Java's frame for blocks of snappy; other clients send one bare block
_XERIAL_HEADER = 16
_XERIAL_VERSIONS = bytes([0, 0, 0, 1, 0, 0, 0, 1])  # of the frame, and the oldest version that can read it
_XERIAL_BLOCK = 32 << 10  # bytes before compression
_ZSTD_LEVEL = 3
_TOO_SMALL = "write whole buffer"  # cramjam's error for a full output buffer


class TooLargeError(ValueError):
    """Compressed records that decompress to more than `MOST_OPENED_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"the compressed records have more than {MOST_OPENED_BYTES} bytes when decompressed")


def open_records(codec: int, data: bytes) -> bytes:
    """Decompress `data`. Raises `UnsupportedCompression`, `CorruptBatch`, `TooLargeError`."""
    opener = _OPENERS.get(codec)
    if opener is None:
        raise UnsupportedCompression(f"unknown codec {codec}")
    return opener(data)


def pieces(codec: int, data: bytes) -> int:
    """The number of compressed blocks in `data`: each costs time, whatever its size. Raises `CorruptBatch`."""
    return sum(1 for _ in _java_blocks(data)) if codec == _SNAPPY_CODEC and data.startswith(_XERIAL) else 1


def _gzip(data: bytes) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        opened = stream.decompress(data, MOST_OPENED_BYTES + 1)
    except zlib.error as error:
        raise CorruptBatch(f"the records are not gzip: {error}") from None
    if len(opened) > MOST_OPENED_BYTES:
        raise TooLargeError
    if not stream.eof or stream.unused_data:
        raise CorruptBatch(
            "the gzip stream of the records " + ("has bytes behind it" if stream.eof else "is cut short")
        )
    return opened


def _snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data, MOST_OPENED_BYTES)
    blocks = []
    remaining = MOST_OPENED_BYTES
    for start, end in _java_blocks(data):
        blocks.append(_snappy_block(data[start:end], remaining))
        remaining -= len(blocks[-1])
    return b"".join(blocks)


def _java_blocks(data: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of the blocks in Java's frame. Raises `CorruptBatch`."""
    position = _XERIAL_HEADER
    for _ in range(MOST_BLOCKS):
        if position >= len(data):
            return
        start = position + 4
        position = start + int.from_bytes(data[position:start], "big")
        if position <= start or position > len(data):
            raise CorruptBatch(f"a block of snappy ends at byte {position} of {len(data)}")
        yield start, position
    if position < len(data):
        raise CorruptBatch(f"more than {MOST_BLOCKS} blocks of snappy")


def _snappy_block(data: bytes, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(data) > limit:
            raise TooLargeError
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"the records are not snappy: {error}") from None


def _lz4(data: bytes) -> bytes:
    return _opened_into(cramjam.lz4.decompress_into, "lz4", data)


def _zstd(data: bytes) -> bytes:
    return _opened_into(cramjam.zstd.decompress_into, "zstd", data)


def _opened_into(decompress: Callable[[bytes, mmap.mmap], int], name: str, data: bytes) -> bytes:
    # Untouched pages cost nothing; writing 32 MB of zeros would cost the loop 20 ms for every batch.
    with mmap.mmap(-1, MOST_OPENED_BYTES) as output:
        try:
            size = decompress(data, output)
        except cramjam.DecompressionError as error:
            if _TOO_SMALL in str(error):
                raise TooLargeError from None
            raise CorruptBatch(f"the records are not {name}: {error}") from None
        return output[:size]


def compress_records(codec: int, data: bytes) -> bytes:
    """Compress `data` in a form that all clients can read. Raises `UnsupportedCompression`."""
    packer = _PACKERS.get(codec)
    if packer is None:
        raise UnsupportedCompression(f"unknown codec {codec}")
    return packer(data)


def _pack_gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=_GZIP_WINDOW)
    return stream.compress(data) + stream.flush()


def _pack_snappy(data: bytes) -> bytes:
    """In Java's frame: its clients need as much memory for a large bare block as it has bytes."""
    parts = [_XERIAL, _XERIAL_VERSIONS]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += [len(block).to_bytes(4, "big"), block]
    return b"".join(parts)


def _pack_lz4(data: bytes) -> bytes:
    # Java's clients cannot read blocks that depend on each other.
    stream = cramjam.lz4.Compressor(block_linked=False)
    stream.compress(data)
    return bytes(stream.finish())


def _pack_zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


NAMES: Mapping[int, str] = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_OPENERS: Mapping[int, Callable[[bytes], bytes]] = {1: _gzip, _SNAPPY_CODEC: _snappy, 3: _lz4, 4: _zstd}
_PACKERS: Mapping[int, Callable[[bytes], bytes]] = {1: _pack_gzip, 2: _pack_snappy, 3: _pack_lz4, 4: _pack_zstd}
