"""Compiles message declarations into straight-line decoding functions.

A generated function is `f(b, p, e)`: buffer, position, end of the buffer. It returns the message and the position after
it. Its safety rests on these invariants. Positions never decrease, so that indexing never wraps. Every slice is
preceded by a comparison with `e`. No loop runs more often than the remaining bytes allow: the least size of an array's
element is known when the code is generated. All loops of one message together run no more often than `entries_left`
says.
"""

import typing
from collections.abc import Callable
from functools import cache
from struct import unpack_from
from typing import Any

from broker.ports import Buffer
from broker.protocol.schema import (
    ArrayOf,
    Field,
    Fixed,
    Identifier,
    Message,
    Sized,
    StructOf,
    Wire,
    fields_of,
    live_fields,
)
from broker.protocol.source import FunctionSource

UNLIMITED = 1 << 62
entries_left = [UNLIMITED]
"""How many more array elements and tagged fields the message being decoded may have. One number for all generated
code, set by the caller that starts to decode: decoding is never interrupted."""


class DecodeError(ValueError):
    """Bytes that are not the message they should be: too short, contradictory, or outside the version's schema."""


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned LEB128 of at most 32 bits: value and the position after it. Raises `DecodeError`, `IndexError`."""
    value = buffer[position]
    position += 1
    if value < 128:
        return value, position
    value &= 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise DecodeError("a variable-length integer does not fit 32 bits")


def too_short(needed: int, available: int) -> DecodeError:
    """The error of a length that the buffer cannot hold."""
    return DecodeError(f"{needed} bytes announced, {available} left")


def too_many() -> DecodeError:
    """The error of a message with more entries than the caller allows."""
    return DecodeError("more entries than one message may have")


def compile_decoder(cls: type[Message], version: int) -> Callable[[Buffer, int, int], tuple[Any, int]]:
    """The decoding function of one class at one version."""
    source = FunctionSource()
    source.names.update(
        uvarint=read_uvarint,
        too_short=too_short,
        too_many=too_many,
        left=entries_left,
        DecodeError=DecodeError,
        unpack_from=unpack_from,
        memoryview=memoryview,
    )
    generator = _Decoder(source, version, version in cls.FLEXIBLE)
    source.line(f"return {generator.struct(cls)}, p")
    return source.function("(b, p, e)", f"decode {cls.__name__} v{version}")


@cache
def least_size(wire: Wire, version: int, flexible: bool) -> int:
    """The fewest bytes of a value; always at least 1, because otherwise an array of it would be unbounded."""
    if isinstance(wire, Fixed):
        return wire.size
    if isinstance(wire, Identifier):
        return 16
    if isinstance(wire, StructOf):
        plain, _ = live_fields(wire.cls, version)
        return max(1, sum(least_size(field.wire, version, flexible) for field in plain) + flexible)
    return 1 if flexible else 2 if wire == Sized("string") else 4


_READ_SIZED = {"string": "str(b[p:{}], 'utf-8')", "bytes": "bytes(b[p:{}])", "records": "memoryview(b)[p:{}]"}


class _Decoder:
    """Writes the code that reads one message."""

    def __init__(self, source: FunctionSource, version: int, flexible: bool) -> None:
        self._source = source
        self._version = version
        self._flexible = flexible

    def struct(self, cls: type[Message]) -> str:
        """Generate code that reads a structure. Returns the expression that builds it."""
        plain, tagged = live_fields(cls, self._version)
        values: dict[str, str] = {}
        numbers: list[Field] = []
        for field in plain:
            if isinstance(field.wire, Fixed):
                numbers.append(field)
                continue
            self._numbers(numbers, values)
            values[field.name] = self._value(field.wire, self._version in field.nullable)
        self._numbers(numbers, values)
        if self._flexible:
            self._tagged(tagged, values)
        arguments = [values.get(field.name) or self._default(field) for field in fields_of(cls)]
        return f"{self._source.constant(typing.get_origin(cls) or cls)}({', '.join(arguments)})"

    def _numbers(self, run: list[Field], values: dict[str, str]) -> None:
        """Generate one unpacking for neighbouring numbers of fixed size."""
        """Generate the tagged section: known tags go into their variables, unknown ones are skipped."""
        if not run:
            return
        wires = [field.wire for field in run if isinstance(field.wire, Fixed)]
        for field in run:
            values[field.name] = self._source.variable()
        targets = "".join(values[field.name] + ", " for field in run)
        unpack = self._source.unpacker("".join(wire.code for wire in wires))
        self._source.line(f"{targets}= {unpack}(b, p); p += {sum(wire.size for wire in wires)}")
        run.clear()

    def _default(self, field: Field) -> str:
        if field.default is list:
            return "[]"
        return repr(field.default) if field.default is None else self._source.constant(field.default)

    def _tagged(self, tagged: list[Field], values: dict[str, str]) -> None:
        """The tagged section: known tags into their variables, unknown ones skipped."""
        source = self._source
        for field in tagged:
            values[field.name] = source.variable()
            source.line(f"{values[field.name]} = {self._default(field)}")
        count, tag, end, size = (source.variable() for _ in range(4))
        source.line(f"{count} = b[p]; p += 1")
        with source.block(f"if {count}:"):
            source.line(f"if {count} > 127: {count}, p = uvarint(b, p - 1)")
            self._count(count)
            with source.block(f"for _ in range({count}):"):
                source.line(f"{tag}, p = uvarint(b, p); {size}, p = uvarint(b, p); {end} = p + {size}")
                source.line(f"if {end} > e: raise too_short({size}, e - p)")
                for index, field in enumerate(tagged):
                    with source.block(f"{'elif' if index else 'if'} {tag} == {field.tag}:"):
                        value = self._value(field.wire, self._version in field.nullable)
                        source.line(f"{values[field.name]} = {value}")
                        source.line(f"if p != {end}: raise DecodeError('a tagged field is not as long as announced')")
                if tagged:
                    source.line(f"else: p = {end}")
                else:
                    source.line(f"p = {end}")

    def _value(self, wire: Wire, nullable: bool) -> str:
        """Generate code that reads one value. Returns a variable, or an expression that is evaluated once."""
        source = self._source
        if isinstance(wire, StructOf):
            return self.struct(wire.cls)
        target = source.variable()
        if isinstance(wire, Fixed):
            source.line(f"{target}, = {source.unpacker(wire.code)}(b, p); p += {wire.size}")
        elif isinstance(wire, Identifier):
            source.line("if p + 16 > e: raise too_short(16, e - p)")
            source.line(f"{target} = bytes(b[p:p + 16]); p += 16")
        else:
            self._length_prefixed(wire, nullable, target)
        return target

    def _length_prefixed(self, wire: Sized | ArrayOf, nullable: bool, target: str) -> None:
        source = self._source
        length = source.variable()
        if self._flexible:
            source.line(f"{length} = b[p] - 1; p += 1")
            with source.block(f"if {length} > 126:"):
                source.line(f"{length}, p = uvarint(b, p - 1); {length} -= 1")
        else:
            code, size = ("h", 2) if wire == Sized("string") else ("i", 4)
            source.line(f"{length}, = {source.unpacker(code)}(b, p); p += {size}")
        with source.block(f"if {length} < 0:"):
            if nullable:
                source.line(f"if {length} < -1: raise DecodeError('a negative length')")
                source.line(f"{target} = None")
            else:
                source.line("raise DecodeError('null where the schema has none')")
        with source.block("else:"):
            if isinstance(wire, Sized):
                self._sized(wire, length, target)
            else:
                self._array(wire.element, length, target)

    def _sized(self, wire: Sized, length: str, target: str) -> None:
        source = self._source
        end = source.variable()
        source.line(f"{end} = p + {length}")
        source.line(f"if {end} > e: raise too_short({length}, e - p)")
        source.line(f"{target} = {_READ_SIZED[wire.name].format(end)}; p = {end}")

    def _array(self, element: Wire, length: str, target: str) -> None:
        source = self._source
        least = least_size(element, self._version, self._flexible)
        source.line(f"if {length} * {least} > e - p: raise too_short({length} * {least}, e - p)")
        self._count(length)
        if isinstance(element, Fixed):
            source.line(
                f"{target} = list(unpack_from('>%d{element.code}' % {length}, b, p)); p += {length} * {element.size}"
            )
            return
        append = source.variable()
        source.line(f"{target} = []; {append} = {target}.append")
        with source.block(f"for _ in range({length}):"):
            source.line(f"{append}({self._value(element, False)})")

    def _count(self, entries: str) -> None:
        self._source.line(f"left[0] -= {entries}")
        self._source.line("if left[0] < 0: raise too_many()")
