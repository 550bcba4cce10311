"""A message split by its declaration: the bytes of each number, length, tag and content.

Written from the declarations and independent of the compiled codec. Joined, the parts are the message's encoding.
"""

import random
import struct
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from broker.protocol.schema import ArrayOf, Fixed, Identifier, Message, Sized, StructOf, Wire, live_fields


class Kind(Enum):
    NUMBER = "number"
    LENGTH = "length"  # also of arrays, tags, sections of tags
    CONTENT = "content"


class Part(NamedTuple):
    kind: Kind
    data: bytes


def parts(message: Message, version: int) -> list[Part]:
    """The parts of a whole message, in order."""
    flexible = version in type(message).FLEXIBLE
    return list(_struct(type(message), message, version, flexible))


def joined(found: list[Part]) -> bytes:
    return b"".join(part.data for part in found)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _struct(cls: type[Message], message: Message, version: int, flexible: bool) -> Iterator[Part]:
    plain, tagged = live_fields(cls, version)
    for field in plain:
        yield from _value(field.wire, getattr(message, field.name), version, flexible)
    if not flexible:
        return
    present = []
    for field in tagged:
        value = getattr(message, field.name)
        if value != ([] if field.default is list else field.default):
            present.append((field.tag or 0, list(_value(field.wire, value, version, flexible))))
    yield Part(Kind.LENGTH, uvarint(len(present)))
    for tag, content in present:
        yield Part(Kind.LENGTH, uvarint(tag))
        yield Part(Kind.LENGTH, uvarint(len(joined(content))))
        yield from content


def _value(wire: Wire, value: Any, version: int, flexible: bool) -> Iterator[Part]:
    if isinstance(wire, Fixed):
        yield Part(Kind.NUMBER, struct.pack(">" + wire.code, value))
    elif isinstance(wire, Identifier):
        yield Part(Kind.CONTENT, value)
    elif isinstance(wire, StructOf):
        yield from _struct(wire.cls, value, version, flexible)
    elif value is None:
        yield Part(Kind.LENGTH, _length(wire, -1, flexible))
    elif isinstance(wire, ArrayOf):
        yield Part(Kind.LENGTH, _length(wire, len(value), flexible))
        for element in value:
            yield from _value(wire.element, element, version, flexible)
    else:
        data = value.encode() if isinstance(value, str) else bytes(value)
        yield Part(Kind.LENGTH, _length(wire, len(data), flexible))
        yield Part(Kind.CONTENT, data)


def _length(wire: Wire, length: int, flexible: bool) -> bytes:
    if flexible:
        return uvarint(length + 1)
    return struct.pack(">h" if wire == Sized("string") else ">i", length)


def mutated(found: list[Part], rng: random.Random) -> bytes:
    """The encoding with one to three of its parts changed in a way that fits what they are."""
    changed = list(found)
    for _ in range(rng.choice([1, 1, 2, 3])):
        if not changed:
            break
        index = rng.randrange(len(changed))
        change = rng.choice(_CHANGES)
        change(changed, index, rng)
    data = joined(changed)
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data


def _replace(changed: list[Part], index: int, rng: random.Random) -> None:
    kind, data = changed[index]
    if kind is Kind.LENGTH:
        lengths = [0, 1, 2, 127, 128, 0x7FFF, 0x7FFFFFFF, 0xFFFFFFFF]
        wide = rng.choice(lengths)
        new = rng.choice([uvarint(wide), (wide & (1 << 8 * len(data)) - 1).to_bytes(len(data), "big"), b"\xff" * 10])
    elif kind is Kind.NUMBER:
        new = rng.choice([bytes(len(data)), b"\xff" * len(data), b"\x7f" + b"\xff" * (len(data) - 1)])
    else:
        new = rng.choice([b"", data + b"\0", b"\xff" * len(data), data[1:], rng.randbytes(len(data))])
    changed[index] = Part(kind, new)


def _drop(changed: list[Part], index: int, rng: random.Random) -> None:
    del changed[index : index + rng.choice([1, 1, 3])]


def _repeat(changed: list[Part], index: int, rng: random.Random) -> None:
    changed[index:index] = changed[index : index + rng.choice([1, 2, 5])] * rng.choice([1, 1, 50])


def _swap(changed: list[Part], index: int, rng: random.Random) -> None:
    other = rng.randrange(len(changed))
    changed[index], changed[other] = changed[other], changed[index]


def _flip(changed: list[Part], index: int, rng: random.Random) -> None:
    kind, data = changed[index]
    if data:
        at = rng.randrange(len(data))
        changed[index] = Part(kind, data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])


_CHANGES = (_replace, _replace, _drop, _repeat, _swap, _flip)
