"""Encodes and decodes messages, with functions that are compiled when a version is first used."""

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from broker.ports import Buffer
from broker.protocol.decoder import UNLIMITED, DecodeError, compile_decoder, entries_left
from broker.protocol.encoder import EncodeError, compile_encoder
from broker.protocol.schema import Message

__all__ = ["DecodeError", "EncodeError", "decode", "decode_exactly", "encode", "encoded", "entries_decoded"]

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int], Callable[[Buffer, int, int], tuple[Any, int]]] = {}
_most_entries = UNLIMITED
_encoders: dict[tuple[type[Message], int], Callable[[Any, bytearray], None]] = {}


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0, *, most_entries: int = UNLIMITED) -> tuple[M, int]:
    """Decode a message at `pos`. Returns the message and the position after it.

    Strings, ids and `bytes` are copied out of the buffer; `records` are views of it and keep it alive (and a bytearray
    from being resized). Unknown tagged fields are skipped. `most_entries` bounds the elements of all arrays together;
    `entries_decoded` returns how many there were. Raises only `DecodeError`, whatever the bytes are.
    """
    decoder = _decoders.get((cls, version))
    if decoder is None:
        if version not in cls.VERSIONS:
            raise DecodeError(f"{cls.__name__} has no version {version}")
        decoder = _decoders[cls, version] = compile_decoder(cls, version)
    global _most_entries
    _most_entries = entries_left[0] = most_entries
    try:
        return decoder(buf, pos, len(buf))
    except DecodeError as error:
        raise DecodeError(f"{cls.__name__} v{version}: {error}") from None
    except (IndexError, struct.error):
        raise DecodeError(f"{cls.__name__} v{version}: ends too early") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"{cls.__name__} v{version}: a string is not UTF-8: {error.reason}") from None


def entries_decoded() -> int:
    """How many elements the arrays of the last message had that was decoded, as far as it was read."""
    return _most_entries - max(0, entries_left[0])


def decode_exactly(cls: type[M], version: int, buf: Buffer, pos: int = 0, *, most_entries: int = UNLIMITED) -> M:
    """`decode` a message that fills the rest of the buffer. Raises `DecodeError`, also when bytes are left over."""
    message, end = decode(cls, version, buf, pos, most_entries=most_entries)
    if end != len(buf):
        raise DecodeError(f"{cls.__name__} v{version}: {len(buf) - end} bytes left over")
    return message


def encode(message: Message, version: int, out: bytearray) -> None:
    """Append a message. Raises `EncodeError` and leaves `out` as it was when the version cannot carry the values."""
    cls = type(message)
    encoder = _encoders.get((cls, version))
    if encoder is None:
        if version not in cls.VERSIONS:
            raise EncodeError(f"{cls.__name__} has no version {version}")
        encoder = _encoders[cls, version] = compile_encoder(cls, version)
    start = len(out)
    try:
        encoder(message, out)
    except (struct.error, ValueError) as error:
        del out[start:]
        raise EncodeError(f"{cls.__name__} v{version}: {error}") from error


def encoded(message: Message, version: int) -> bytes:
    """A message's bytes. Raises `EncodeError`."""
    out = bytearray()
    encode(message, version, out)
    return bytes(out)
