"""Writes messages of Kafka's formats 0 and 1 byte by byte, from their description."""

import struct
import zlib
from collections.abc import Sequence

from tests.analysis.compressed_sets import ALL, GZIP, compressed
from tests.analysis.segment_files import value


def nullable(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    offset: int,
    content: bytes | None,
    *,
    magic: int = 1,
    key: bytes | None = None,
    time: int = 1_000,
    attributes: int = 0,
) -> bytes:
    stamp = struct.pack(">q", time) if magic else b""
    checked = struct.pack(">bb", magic, attributes) + stamp + nullable(key) + nullable(content)
    return struct.pack(">qiI", offset, len(checked) + 4, zlib.crc32(checked)) + checked


def wrapper(
    first: int, contents: Sequence[bytes], *, magic: int = 1, time: int = 1_000, attributes: int = 0, codec: int = GZIP
) -> bytes:
    """A compressed set: offsets inside count from 0 in format 1, and are the log's in format 0. A codec that there is
    not leaves it as it is."""
    inside = b"".join(
        message(number + (0 if magic else first), content, magic=magic, time=time + number)
        for number, content in enumerate(contents)
    )
    packed = compressed(codec, inside) if codec in ALL else inside
    return message(first + len(contents) - 1, packed, magic=magic, time=time, attributes=attributes | codec & 7)


def messages(values: Sequence[int], *, magic: int = 1, start: int = 0) -> bytes:
    """One message per record."""
    return b"".join(message(start + i, value(number, 20), magic=magic) for i, number in enumerate(values))
