"""Decompresses sets of records, in every codec of Kafka's message formats.

gzip, lz4 frames and zstd are streams that contain their own end. Snappy is either one raw block, which starts with its
size, or the stream of snappy-java: a header, and raw blocks, each preceded by its length. In lz4 frames of message
format 0 clients computed the header's checksum wrongly, so readers ignore it (KAFKA-3160).
"""

import struct
from typing import Final

import pyarrow as pa

CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
"""By the codec's number in a batch's or message's attributes; 0 means uncompressed."""
LARGEST_SET: Final = 64 << 20  # bytes of a decompressed set; a larger one is not decompressed

_AT_ONCE: Final = 1 << 16  # bytes
_SNAPPY_JAVA: Final = b"\x82SNAPPY\0"
_SNAPPY_JAVA_HEADER: Final = len(_SNAPPY_JAVA) + 8  # and two versions
_LENGTH: Final = struct.Struct(">i")
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_DICTIONARY: Final = 0x01
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)  # those of xxHash, 32 bits
_MASK: Final = 0xFFFFFFFF


class DamagedSetError(Exception):
    """The bytes are not valid for their codec; the message says why, as the end of a sentence."""


class LargeSetError(Exception):
    """A set of more than `LARGEST_SET` bytes."""


def decompressed(codec: int, data: bytes) -> bytes:
    """The content of a compressed set. Raises `DamagedSetError`, `LargeSetError`, and KeyError for an unknown codec."""
    name = CODECS[codec]
    try:
        return _snappy(data) if name == "snappy" else _stream(name, data)
    except (OSError, pa.ArrowInvalid) as error:
        raise DamagedSetError(f"does not open as {name}: {error}") from None


def with_true_checksum(frame: bytes) -> bytes:
    """An lz4 frame of message format 0 with its header's correct checksum. Anything else is returned unchanged."""
    flags = frame[4] if len(frame) > 6 and frame.startswith(_LZ4_MAGIC) else 0
    size = 2 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    if not flags or len(frame) <= 4 + size:
        return frame
    return frame[: 4 + size] + bytes([_xxhash_of_few(frame[4 : 4 + size]) >> 8 & 0xFF]) + frame[5 + size :]


def _stream(name: str, data: bytes) -> bytes:
    """Decompress a codec that marks its own end. Bytes after the end are damage, unless they are another stream."""
    if not data:
        raise DamagedSetError(f"is empty, where a stream in {name} should start")
    pieces, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        while piece := stream.read(_AT_ONCE):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST_SET:
                raise LargeSetError
    return b"".join(pieces)


def _snappy(data: bytes) -> bytes:
    if not data.startswith(_SNAPPY_JAVA):
        return _block(data)
    blocks, at, size = [], _SNAPPY_JAVA_HEADER, 0
    while at < len(data):
        if len(data) - at < _LENGTH.size:
            raise DamagedSetError("does not open as snappy: its last block has no length")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 < length <= len(data) - at:
            raise DamagedSetError(f"does not open as snappy: a block of {length} bytes does not fit it")
        blocks.append(_block(data[at : at + length]))
        at, size = at + length, size + len(blocks[-1])
        if size > LARGEST_SET:
            raise LargeSetError
    return b"".join(blocks)


def _block(data: bytes) -> bytes:
    """One raw block of snappy: a varint of its decompressed size, then its elements."""
    size = 0
    for number, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            break
    else:
        raise DamagedSetError("does not open as snappy: it has no size")
    if size > LARGEST_SET:
        raise LargeSetError
    opened: bytes = pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True)
    return opened


def _xxhash_of_few(data: bytes) -> int:
    """xxHash of 32 bits, with seed 0, of less than 16 bytes."""
    one, two, three, four, five = _PRIMES
    digest = five + len(data)
    aligned = len(data) & ~3
    for (value,) in struct.iter_unpack("<I", data[:aligned]):
        digest = _rotated(digest + value * three, 17) * four
    for byte in data[aligned:]:
        digest = _rotated(digest + byte * five, 11) * one
    digest &= _MASK
    digest = (digest ^ digest >> 15) * two & _MASK
    digest = (digest ^ digest >> 13) * three & _MASK
    return digest ^ digest >> 16


def _rotated(number: int, bits: int) -> int:
    number &= _MASK
    return number << bits & _MASK | number >> (32 - bits)
