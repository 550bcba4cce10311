"""The unique int64 that each append carries, and its place in a Kafka record.

A value names its origin: session (15 bits), producer (16 bits), sequence (32 bits), so that no two appends of any
session share one and a stray record tells where it came from. A record's value is the big-endian int64, then padding.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

SESSIONS: Final = 1 << 15
PRODUCERS: Final = 1 << 16
SEQUENCES: Final = 1 << 32
VALUE_BYTES: Final = 8
SESSION_SHIFT: Final = 48

_PACK: Final = struct.Struct(">q")


class Value(NamedTuple):
    """What a value says about its append."""

    session: int
    producer: int
    sequence: int


def encode_value(session: int, producer: int, sequence: int) -> int:
    """The int64 of an append. Raises ValueError when a part does not fit its bits."""
    for name, part, limit in (
        ("session", session, SESSIONS),
        ("producer", producer, PRODUCERS),
        ("sequence", sequence, SEQUENCES),
    ):
        if not 0 <= part < limit:
            raise ValueError(f"{name} {part} does not fit: it must lie in 0 .. {limit - 1}")
    return session << SESSION_SHIFT | producer << 32 | sequence


def decode_value(value: int) -> Value:
    """The parts of an append's value. Raises ValueError for a negative number, which no append carries."""
    if value < 0:
        raise ValueError(f"{value} is not the value of an append")
    return Value(value >> SESSION_SHIFT, value >> 32 & (PRODUCERS - 1), value & (SEQUENCES - 1))


def record_bytes(value: int, size: int = VALUE_BYTES) -> bytes:
    """The bytes of a record of `size` bytes (at least 8) that carries `value`."""
    if size < VALUE_BYTES:
        raise ValueError(f"a record of {size} bytes cannot carry a value: at least {VALUE_BYTES} are needed")
    return _PACK.pack(value) + b"\0" * (size - VALUE_BYTES)


def value_of_record(record: bytes | bytearray | memoryview | None) -> int:
    """The value a record carries; -2 when it is too short to carry one, which no append is ever given."""
    if record is None or len(record) < VALUE_BYTES:
        return -2
    return int(_PACK.unpack_from(record)[0])
