"""Compressed sets of records, as clients write them."""

import gzip
import struct
from typing import Final

import pyarrow as pa

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
JAVA: Final = 16
"""Snappy in the stream of snappy-java, which has the same number in the attributes."""
ALL: Final = (GZIP, SNAPPY, SNAPPY | JAVA, LZ4, ZSTD)
NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", SNAPPY | JAVA: "snappy-java", LZ4: "lz4", ZSTD: "zstd"}

_BLOCK: Final = 100  # bytes, so that short sets have several; snappy-java's own is 32 KiB


def compressed(codec: int, data: bytes) -> bytes:
    """The set in one of `ALL`."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec & JAVA:
        blocks = [_packed("snappy", data[at : at + _BLOCK]) for at in range(0, len(data), _BLOCK)]
        return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(map(_with_length, blocks))
    return _packed(NAMES[codec], data)


def _packed(name: str, data: bytes) -> bytes:
    return bytes(pa.Codec(name).compress(data, asbytes=True))


def _with_length(block: bytes) -> bytes:
    return struct.pack(">i", len(block)) + block
