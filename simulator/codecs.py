"""Compressed batches, as a client makes and opens them."""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from broker.protocol.compression import NAMES, compress_records, open_records
from broker.protocol.records import BATCH_HEADER_SIZE, COMPRESSION_MASK, parse_header

CODECS: Final = {name: codec for codec, name in NAMES.items()}
"""By the name that a client's configuration has; `none` is none of them."""

# Where a batch has its length, its checksum and its attributes, with which what the checksum is of begins.
_LENGTH_AT, _CRC_AT, _ATTRIBUTES_AT = 8, 17, 21
_LENGTH_BEHIND: Final = 12


def compressed(batch: bytes, name: str) -> bytes:
    """The batch with its records compressed; as it is for "none". Raises KeyError for a codec that there is not."""
    if name == "none":
        return batch
    return _with_records(batch, CODECS[name], compress_records(CODECS[name], batch[BATCH_HEADER_SIZE:]))


def opened(batch: bytes) -> bytes:
    """The batch with its records as they were. Raises `CorruptBatch` and what `open_records` raises."""
    codec = parse_header(batch).compression
    return _with_records(batch, 0, open_records(codec, batch[BATCH_HEADER_SIZE:])) if codec else batch


def _with_records(batch: bytes, codec: int, records: bytes) -> bytes:
    made = bytearray(batch[:BATCH_HEADER_SIZE]) + records
    attributes = parse_header(batch).attributes & ~COMPRESSION_MASK | codec
    struct.pack_into(">i", made, _LENGTH_AT, len(made) - _LENGTH_BEHIND)
    struct.pack_into(">h", made, _ATTRIBUTES_AT, attributes)
    struct.pack_into(">I", made, _CRC_AT, crc32c(bytes(made[_ATTRIBUTES_AT:])))
    return bytes(made)
