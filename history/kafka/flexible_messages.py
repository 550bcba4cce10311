"""Reads the primitive types of Kafka's flexible messages (KIP-482) in sequence."""

import base64
import struct
from collections.abc import Callable
from typing import Final, TypeVar

UUID_BYTES: Final = 16
T = TypeVar("T")


def text_id(identity: bytes) -> str:
    """An id as text: 22 characters of base64 for URLs."""
    return base64.urlsafe_b64encode(identity).decode().rstrip("=")


class FlexibleReader:
    """Reads the fields of one message; `at` is the position. Every function raises ValueError, IndexError or
    struct.error at its end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at

    def number(self, form: str) -> int:
        """A number of a fixed size, in a format of `struct`."""
        (value,) = struct.unpack_from(form, self._data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def varint(self) -> int:
        """An unsigned varint."""
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def zigzag(self) -> int:
        """A signed varint."""
        raw = self.varint()
        return (raw >> 1) ^ -(raw & 1)

    def zigzag_bytes(self) -> bytes | None:
        """Bytes after their length as a signed varint; None for null."""
        size = self.zigzag()
        return None if size < 0 else self.take(size)

    def take(self, size: int) -> bytes:
        """This many bytes."""
        if size < 0 or self.at + size > len(self._data):
            raise ValueError(f"{size} bytes at {self.at} are not there")
        self.at += size
        return self._data[self.at - size : self.at]

    def compact_bytes(self) -> bytes | None:
        """Bytes after their length; None for null."""
        size = self.varint() - 1
        return None if size < 0 else self.take(size)

    def text(self) -> str:
        """A compact string; empty for null."""
        return (self.compact_bytes() or b"").decode()

    def uuid(self) -> str:
        """An id as text."""
        return text_id(self.take(UUID_BYTES))

    def array(self, read: Callable[[], T]) -> list[T]:
        """A compact array; empty for null."""
        return [read() for _ in range(self.varint() - 1)]

    def tags(self) -> dict[int, bytes]:
        """Tagged fields, undecoded, by their tag."""
        fields = {}
        for _ in range(self.varint()):
            tag = self.varint()
            fields[tag] = self.take(self.varint())
        return fields

    def tagged(self, read: Callable[[], T]) -> T:
        """A structure, with its tagged fields, which are skipped."""
        value = read()
        self.tags()
        return value
