"""The bytes of a Kafka record that carries a value.

A record is derived from its value alone, so every byte of it can be checked: the 8 bytes from byte 8 i on are the
big-endian number value + i * RECORD_STEP modulo 2^64; the last number is cut off at the record's size. The first 8
bytes are therefore the value itself. Records have no key and no headers.
"""

import struct
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from history.record.values import NOT_A_VALUE, RECORD_STEP, VALUE_BYTES

_PACK: Final = struct.Struct(">q")


def record_bytes(value: int, size: int = VALUE_BYTES) -> bytes:
    """The bytes of a record of `size` bytes (at least 8) that carries `value`."""
    if size < VALUE_BYTES:
        raise ValueError(f"a record of {size} bytes cannot carry a value: at least {VALUE_BYTES} are needed")
    numbers = record_steps(-(-size // VALUE_BYTES)) + np.uint64(value & 0xFFFF_FFFF_FFFF_FFFF)
    return numbers.astype(">u8").tobytes()[:size]


@lru_cache(maxsize=64)
def record_steps(count: int) -> npt.NDArray[np.uint64]:
    """The summands that turn a value into each of the first `count` numbers of its record."""
    return np.arange(count, dtype=np.uint64) * np.uint64(RECORD_STEP)


def value_of_record(record: bytes | bytearray | memoryview | None) -> int:
    """The value that a record carries; `NOT_A_VALUE`, which no append has, if its bytes are not `record_bytes` of the
    value in its first 8 bytes."""
    if record is None or len(record) < VALUE_BYTES:
        return NOT_A_VALUE
    value = int(_PACK.unpack_from(record)[0])
    return value if record == record_bytes(value, len(record)) else NOT_A_VALUE
