"""Message formats 0 and 1, Kafka's before record batches: a sequence of messages, compressed ones in a wrapper.

    message:  offset int64, size int32, CRC-32 of all that follows int32, magic int8, attributes int8,
              in format 1 timestamp int64, key bytes, value bytes

A wrapper's value is a compressed set of messages. In format 0 those carry their offsets; in format 1 their offsets are
relative to the set's first, and the wrapper has the offset of the last. Neither format has leader epochs. Digests are
taken over the record as format 2 would write it, so that a replica that converted it compares equal.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from analysis.replicafiles.digest import PADDING, digest_of, mix
from analysis.replicafiles.log import NO_EPOCH, NO_VALUE, LogColumns
from history.kafka.compression import CODECS, DamagedSetError, LargeSetError, decompressed, with_true_checksum
from history.record.record_payload import record_bytes
from history.record.values import VALUE_BYTES

MAGICS: Final = (0, 1)
COMPRESSION: Final = 0x07
LOG_APPEND_TIME: Final = 0x08  # the wrapper's timestamp applies to each of its messages
NO_TIMESTAMP: Final = -1
SMALLEST: Final = 14  # bytes after the size field of a message of format 0 without key and value

_FRAME: Final = struct.Struct(">qi")
_HEAD: Final = struct.Struct(">qiIbb")


class Messages(NamedTuple):
    """Consecutive intact messages: their records, the position and offset after them, why they end there (unless the
    segment ends or continues in another format), the offsets of sets that were not decompressed, and the formats
    found."""

    records: LogColumns
    position: int
    expected: int
    damage: str
    opaque: list[tuple[int, int]]
    formats: set[int]


class _Message(NamedTuple):
    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    end: int  # place behind the message

    @property
    def codec(self) -> int:
        return self.attributes & COMPRESSION


class _DamagedError(Exception):
    """The bytes at a position are not an intact message; the message says why."""


class _NotOpenedError(Exception):
    """A compressed set that this reader cannot decompress."""


class _Builder:
    """Collects records and turns them into columns."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[int] = []
        self._timestamps: list[int] = []
        self._bodies: list[bytes] = []
        self._sizes: list[int] = []
        self._exact: list[bool] = []
        self._digests: dict[int, int] = {}  # by index, of records that were not opened

    def add(self, message: _Message, timestamp: int) -> None:
        content = message.value or b""
        carries = len(content) >= VALUE_BYTES
        value = int.from_bytes(content[:VALUE_BYTES], "big", signed=True) if carries else NO_VALUE
        self._offsets.append(message.offset)
        self._values.append(value if value >= 0 else NO_VALUE)
        self._sizes.append(-1 if message.value is None else len(content))
        self._exact.append(carries and message.key is None and content == record_bytes(value, len(content)))
        self._timestamps.append(timestamp)
        self._bodies.append(_with_length(message.key) + _with_length(message.value) + b"\0")

    def add_opaque(self, offset: int, crc: int) -> None:
        """A record in a set that was not decompressed: equal sets give equal digests, as with batches of format 2."""
        seed = np.array([offset], np.uint64) ^ np.uint64(crc << 32)
        self._digests[len(self._offsets)] = int(mix(seed)[0])
        self._offsets.append(offset)
        self._values.append(NO_VALUE)
        self._sizes.append(NO_VALUE)
        self._exact.append(True)
        self._timestamps.append(NO_TIMESTAMP)
        self._bodies.append(b"")

    def columns(self) -> LogColumns:
        buffer = np.frombuffer(b"".join(self._bodies) + bytes(PADDING), np.uint8)
        end = np.cumsum(np.array([len(body) for body in self._bodies], np.int64))
        start = end - np.array([len(body) for body in self._bodies], np.int64)
        digest = digest_of(buffer, start, end, np.array(self._timestamps, np.int64))
        for index, number in self._digests.items():
            digest[index] = number
        offset = np.array(self._offsets, np.int64)
        epoch, value = np.full(len(offset), NO_EPOCH, np.int64), np.array(self._values, np.int64)
        sizes, exact = np.array(self._sizes, np.int64), np.array(self._exact, np.bool_)
        return LogColumns(offset, epoch, value, digest, sizes, exact, np.zeros(len(offset), np.uint64))


def scan(data: bytes, position: int, expected: int) -> Messages:
    """The intact messages from `position` on; `expected`: the offset of the first one."""
    builder, opaque, formats, damage = _Builder(), list[tuple[int, int]](), set[int](), ""
    while position < len(data) and not damage:
        if len(data) - position >= _FRAME.size + 5 and data[position + _FRAME.size + 4] not in MAGICS:
            break
        try:
            message = _message(data, position)
            next_offset = _take(message, expected, builder, opaque, position)
        except _DamagedError as error:
            damage = str(error)
        else:
            formats.add(message.magic)
            expected, position = next_offset, message.end
    return Messages(builder.columns(), position, expected, damage, opaque, formats)


def _take(message: _Message, expected: int, builder: _Builder, opaque: list[tuple[int, int]], position: int) -> int:
    """Add the records of a message, or of the set that it wraps (all or none); returns the offset after them."""
    if not message.codec:
        _require_offset(message.offset, expected, position)
        builder.add(message, message.timestamp)
        return expected + 1
    try:
        inner = list(_opened(message, position))
    except _NotOpenedError:
        if message.offset < expected:
            raise _DamagedError(
                f"the messages at {position} end at offset {message.offset} where {expected} is due"
            ) from None
        for offset in range(expected, message.offset + 1):
            builder.add_opaque(offset, message.crc)
        opaque.append((expected, message.offset + 1))
        return message.offset + 1
    for number, inner_message in enumerate(inner):
        _require_offset(inner_message.offset, expected + number, position)
    for inner_message in inner:
        builder.add(
            inner_message, message.timestamp if message.attributes & LOG_APPEND_TIME else inner_message.timestamp
        )
    return expected + len(inner)


def _require_offset(offset: int, expected: int, position: int) -> None:
    if offset != expected:
        raise _DamagedError(f"the message at {position} has offset {offset} where {expected} is due")


def _message(data: bytes, position: int) -> _Message:
    """The message at a place. Raises `_DamagedError`."""
    size = len(data)
    if size - position < _FRAME.size + SMALLEST:
        raise _DamagedError(f"{size - position} bytes of a torn message at {position}")
    offset, length, crc, magic, attributes = _HEAD.unpack_from(data, position)
    end, at = position + _FRAME.size + length, position + _HEAD.size
    if length < SMALLEST or offset < 0:
        content = "no batch" if any(data[position : position + _FRAME.size + SMALLEST]) else "zeros"
        raise _DamagedError(f"{size - position} bytes of {content} at {position}")
    if end > size:
        raise _DamagedError(f"{size - position} bytes of a torn message at {position}")
    if zlib.crc32(memoryview(data)[position + _FRAME.size + 4 : end]) != crc:
        raise _DamagedError(f"the message at {position} does not match its CRC-32")
    timestamp = NO_TIMESTAMP
    try:
        if magic == 1:
            (timestamp,) = struct.unpack_from(">q", data, at)
            at += 8
        key, at = _bytes(data, at, end)
        value, at = _bytes(data, at, end)
    except struct.error:
        at = -1
    if at != end:
        raise _DamagedError(f"the message at {position} has a key or value that does not fit it")
    return _Message(offset, crc, magic, attributes, timestamp, key, value, end)


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """A nullable field and the position after it, which exceeds `end` if it does not fit. Raises `struct.error`."""
    (size,) = struct.unpack_from(">i", data, at)
    at += 4
    return (None, at) if size < 0 else (data[at : min(at + size, end)], at + size)


def _opened(wrapper: _Message, position: int) -> Iterator[_Message]:
    """The messages of a compressed set, with their offsets in the log. Raises `_DamagedError`, `_NotOpenedError`."""
    data = _decompressed(wrapper, position)
    messages, at = [], 0
    while at < len(data):
        try:
            messages.append(_message(data, at))
        except _DamagedError as error:
            raise _DamagedError(f"inside the compressed messages at {position}: {error}") from None
        at = messages[-1].end
        if messages[-1].codec or messages[-1].magic != wrapper.magic:
            raise _DamagedError(f"the compressed messages at {position} hold what they must not: another set or format")
    if not messages:
        raise _DamagedError(f"the compressed messages at {position} are not messages")
    shift = wrapper.offset - messages[-1].offset if wrapper.magic == 1 else 0
    yield from (message._replace(offset=message.offset + shift) for message in messages)


def _decompressed(wrapper: _Message, position: int) -> bytes:
    data = wrapper.value or b""
    if wrapper.codec not in CODECS:
        raise _NotOpenedError
    try:
        # Clients computed the checksum of this format wrongly, in the frame's header; the message has one of its own.
        return decompressed(wrapper.codec, with_true_checksum(data) if wrapper.magic == 0 else data)
    except DamagedSetError as error:
        raise _DamagedError(f"the compressed set at {position} {error}") from None
    except LargeSetError:
        raise _NotOpenedError from None


def _with_length(data: bytes | None) -> bytes:
    """A key or value as record format 2 writes it: its length (-1: null) as a zigzag varint, then its bytes."""
    size = -1 if data is None else len(data)
    number = (size << 1) ^ (size >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out) + (data or b"")
