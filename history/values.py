"""The unique int64 that each append carries, and its place in a Kafka record.

A value names its origin: session (15 bits), producer (16 bits), sequence (32 bits), so that no two appends of any
session share one and a stray record tells where it came from.

A record is made of nothing but its value, so that every byte of it can be checked: the 8 bytes from byte 8 i on are the
big-endian number value + i * RECORD_STEP modulo 2^64, the last of them cut off at the record's size. The first 8 bytes
are therefore the value itself. Records have no key and no headers.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

SESSIONS: Final = 1 << 15
PRODUCERS: Final = 1 << 16
SEQUENCES: Final = 1 << 32
VALUE_BYTES: Final = 8
RECORD_STEP: Final = 0x9E3779B97F4A7C15
DERIVED: Final = "derived"
VALUE_FIRST: Final = "value-first"
RECORD_FORMS: Final = (DERIVED, VALUE_FIRST)
"""What a run's records are made of: all of each from its value (`record_bytes`), or its value in 8 bytes, and then what
only the client knows that made it."""
NOT_A_VALUE: Final = -2
"""What is recorded for a record that carries no value: too short for one, or of other bytes than its value makes."""

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
    return session << 48 | producer << 32 | sequence


def decode_value(value: int) -> Value:
    """The parts of an append's value. Raises ValueError for a negative number, which no append carries."""
    if value < 0:
        raise ValueError(f"{value} is not the value of an append")
    return Value(value >> 48, value >> 32 & (PRODUCERS - 1), value & (SEQUENCES - 1))


def record_bytes(value: int, size: int = VALUE_BYTES) -> bytes:
    """The bytes of a record of `size` bytes (at least 8) that carries `value`."""
    if size < VALUE_BYTES:
        raise ValueError(f"a record of {size} bytes cannot carry a value: at least {VALUE_BYTES} are needed")
    words = record_steps(-(-size // VALUE_BYTES)) + np.uint64(value & 0xFFFF_FFFF_FFFF_FFFF)
    return words.astype(">u8").tobytes()[:size]


@lru_cache(maxsize=64)
def record_steps(words: int) -> npt.NDArray[np.uint64]:
    """What is added to a value to make each of the first `words` numbers of its record."""
    return np.arange(words, dtype=np.uint64) * np.uint64(RECORD_STEP)


def value_of_record(record: bytes | bytearray | memoryview | None) -> int:
    """The value a record carries; `NOT_A_VALUE`, which no append is ever given, when its bytes are not all those that
    `record_bytes` makes of the value that it begins with."""
    if record is None or len(record) < VALUE_BYTES:
        return NOT_A_VALUE
    value = int(_PACK.unpack_from(record)[0])
    return value if record == record_bytes(value, len(record)) else NOT_A_VALUE
