"""Compresses and opens batches, as a client does."""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from broker.protocol.compression import NAMES, compress_records, open_records
from broker.protocol.records import BATCH_HEADER_SIZE, COMPRESSION_MASK, parse_header

CODECS: Final = {name: codec for codec, name in NAMES.items()}
"""By the name in a client's configuration; `none` is not among them."""

# The positions of a batch's length, checksum and attributes; the checksum covers everything from the attributes on.
_LENGTH_AT, _CRC_AT, _ATTRIBUTES_AT = 8, 17, 21
_LENGTH_BEHIND: Final = 12


def compressed(batch: bytes, name: str) -> bytes:
    """The batch with its records compressed; unchanged for "none". Raises KeyError for an unknown codec."""
    if name == "none":
        return batch
    return _with_records(batch, CODECS[name], compress_records(CODECS[name], batch[BATCH_HEADER_SIZE:]))


def opened(batch: bytes) -> bytes:
    """The batch with its records decompressed. Raises `CorruptBatch` and what `open_records` raises."""
    codec = parse_header(batch).compression
    return _with_records(batch, 0, open_records(codec, batch[BATCH_HEADER_SIZE:])) if codec else batch


def _with_records(batch: bytes, codec: int, records: bytes) -> bytes:
    made = bytearray(batch[:BATCH_HEADER_SIZE]) + records
    attributes = parse_header(batch).attributes & ~COMPRESSION_MASK | codec
    struct.pack_into(">i", made, _LENGTH_AT, len(made) - _LENGTH_BEHIND)
    struct.pack_into(">h", made, _ATTRIBUTES_AT, attributes)
    struct.pack_into(">I", made, _CRC_AT, crc32c(bytes(made[_ATTRIBUTES_AT:])))
    return bytes(made)
