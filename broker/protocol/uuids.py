"""Ids in Kafka's form: sixteen random bytes, shown as 22 characters of URL-safe base64."""

import base64
import binascii
import random

_BYTES = 16


def random_id(rng: random.Random) -> bytes:
    """A random id (a version 4 UUID) whose text does not start with a hyphen, which tools would parse as an option."""
    while True:
        raw = bytearray(rng.randbytes(_BYTES))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if not id_text(bytes(raw)).startswith("-"):
            return bytes(raw)


def id_text(raw: bytes) -> str:
    """The text of an id."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def parse_id(text: str) -> bytes:
    """The id with this text. Raises `ValueError` for an invalid text."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _BYTES or id_text(raw) != text:
        raise ValueError(f"{text!r} is not an id of 22 characters of URL-safe base64")
    return raw
