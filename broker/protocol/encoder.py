"""Compiles message declarations into straight-line encoding functions `f(m, o)`: append message `m` to bytearray `o`.

Fields that a version does not carry are omitted, whatever their value: the caller chooses the version.
"""

from collections.abc import Callable
from struct import pack
from typing import Any

from broker.protocol.schema import ArrayOf, Field, Fixed, Identifier, Message, Sized, StructOf, Wire, live_fields
from broker.protocol.source import FunctionSource


class EncodeError(ValueError):
    """A message that its version cannot carry: a number out of range, or null where the schema does not allow it."""


def uvarint(value: int) -> bytes:
    """An unsigned LEB128."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_UVARINTS = tuple(uvarint(value) for value in range(2048))


def fast_uvarint(value: int) -> bytes:
    """`uvarint` with a table for short values."""
    return _UVARINTS[value] if value < 2048 else uvarint(value)


def compile_encoder(cls: type[Message], version: int) -> Callable[[Any, bytearray], None]:
    """The encoding function of one class at one version."""
    source = FunctionSource()
    source.names.update(uvarint=fast_uvarint, pack=pack, EncodeError=EncodeError)
    _Encoder(source, version, version in cls.FLEXIBLE).struct(cls, "m", "o")
    source.line("return")
    return source.function("(m, o)", f"encode {cls.__name__} v{version}")


class _Encoder:
    """Writes the code that appends one message."""

    def __init__(self, source: FunctionSource, version: int, flexible: bool) -> None:
        self._source = source
        self._version = version
        self._flexible = flexible

    def struct(self, cls: type[Message], message: str, out: str) -> None:
        plain, tagged = live_fields(cls, self._version)
        numbers: list[Field] = []
        for field in plain:
            if isinstance(field.wire, Fixed):
                numbers.append(field)
                continue
            self._numbers(numbers, message, out)
            value = self._source.variable()
            self._source.line(f"{value} = {message}.{field.name}")
            self._value(field.wire, value, out, self._version in field.nullable)
        no_tags = self._flexible and not tagged
        if no_tags and not numbers:
            self._source.line(f"{out}.append(0)")
        self._numbers(numbers, message, out, padding="x" if no_tags else "")
        if self._flexible and tagged:
            self._tagged(tagged, message, out)

    def _numbers(self, run: list[Field], message: str, out: str, padding: str = "") -> None:
        """Generate one packing for neighbouring numbers of fixed size; `padding`: an empty tagged section after
        them."""
        if not run:
            return
        code = "".join(field.wire.code for field in run if isinstance(field.wire, Fixed))
        arguments = ", ".join(f"{message}.{field.name}" for field in run)
        self._source.line(f"{out} += {self._source.packer(code + padding)}({arguments})")
        run.clear()

    def _tagged(self, tagged: list[Field], message: str, out: str) -> None:
        """Generate the tagged fields that differ from their default, in the order of their tags."""
        source = self._source
        section = source.variable()
        source.line(f"{section} = []")
        for field in tagged:
            value, content = source.variable(), source.variable()
            source.line(f"{value} = {message}.{field.name}")
            if field.default is list:
                condition = value
            elif field.default is None:
                condition = f"{value} is not None"
            else:
                condition = f"{value} != {source.constant(field.default)}"
            with source.block(f"if {condition}:"):
                source.line(f"{content} = bytearray()")
                self._value(field.wire, value, content, self._version in field.nullable)
                source.line(f"{section}.append(({field.tag}, {content}))")
        with source.block(f"if {section}:"):
            source.line(f"{out} += uvarint(len({section}))")
            with source.block(f"for tag, content in {section}:"):
                source.line(f"{out} += uvarint(tag); {out} += uvarint(len(content)); {out} += content")
        source.line(f"else: {out}.append(0)")

    def _value(self, wire: Wire, value: str, out: str, nullable: bool) -> None:
        source = self._source
        if isinstance(wire, Fixed):
            source.line(f"{out} += {source.packer(wire.code)}({value})")
        elif isinstance(wire, Identifier):
            source.line(
                f"if len({value}) != 16: raise EncodeError('an identifier has 16 bytes, not %d' % len({value}))"
            )
            source.line(f"{out} += {value}")
        elif isinstance(wire, StructOf):
            self.struct(wire.cls, value, out)
        else:
            with source.block(f"if {value} is not None:"):
                self._length_prefixed(wire, value, out)
            with source.block("else:"):
                if nullable:
                    source.line(f"{out} += {self._null(wire)!r}")
                else:
                    source.line("raise EncodeError('null where the schema has none')")

    def _null(self, wire: Sized | ArrayOf) -> bytes:
        if self._flexible:
            return b"\0"
        return b"\xff" * (2 if wire == Sized("string") else 4)

    def _length_prefixed(self, wire: Sized | ArrayOf, value: str, out: str) -> None:
        source = self._source
        if wire == Sized("string"):
            source.line(f"{value} = {value}.encode()")
        if self._flexible:
            source.line(f"{out} += uvarint(len({value}) + 1)")
        else:
            source.line(f"{out} += {source.packer('h' if wire == Sized('string') else 'i')}(len({value}))")
        if isinstance(wire, Sized):
            source.line(f"{out} += {value}")
        elif isinstance(wire.element, Fixed):
            source.line(f"{out} += pack('>%d{wire.element.code}' % len({value}), *{value})")
        else:
            element = source.variable()
            with source.block(f"for {element} in {value}:"):
                self._value(wire.element, element, out, False)
