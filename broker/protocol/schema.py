"""The declaration of messages: typed classes whose annotations define the wire format and the versions of each field.

    class FetchPartition(Message):
        partition: Int32 = 0
        current_leader_epoch: Annotated[Int32, v("9+")] = -1
        replica_directory_id: Annotated[Uuid, v("17+"), Tag(0)] = NO_ID

Fields are listed in wire order. `v` gives the versions that carry a field (all, when it is missing), `Tag` makes it a
tagged field of the flexible versions, `| None` makes it nullable, and `Nullable` limits the versions in which it is. A
tagged structure is declared `| None`: None means "absent", which is the meaning of the schema's default.
"""

import sys
import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import msgspec

from broker.ports import Buffer

NO_ID = b"\0" * 16
"""The absent value of a `Uuid` field."""


@dataclass(frozen=True)
class Versions:
    """A closed range of versions, in Kafka's notation: `3`, `0-12`, `9+`."""

    low: int
    high: int

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


def v(text: str) -> Versions:
    """Parse a range of versions; `none` contains no version."""
    if text == "none":
        return Versions(1, 0)
    if text.endswith("+"):
        return Versions(int(text[:-1]), 0x7FFF)
    low, _, high = text.partition("-")
    return Versions(int(low), int(high or low))


NO_VERSION = v("none")
Operation: TypeAlias = Literal["", "none", "ALTER", "CLUSTER_ACTION", "DESCRIBE", "DESCRIBE_CONFIGS"]
"""See `ServedApi.operation`."""


@dataclass(frozen=True)
class ServedApi:
    """The declaration of a request class whose API is served: `key`, the served `versions`, and those of them that are
    `flexible` (KIP-482)."""

    key: int
    versions: Versions
    flexible: Versions = NO_VERSION
    declared: Versions | None = None
    """The versions that the classes declare, if they declare more than the served ones."""
    advertised: Versions | None = None
    """The versions in the ApiVersions answer; None: the served ones; `none`: not listed, as only brokers use it."""
    operation: Operation = ""
    """The ACL operation on the cluster that the sender needs. `none`: every sender may use the API. Empty: the API has
    a check of its own in `broker.server.authorization`."""


@dataclass(frozen=True)
class Tag:
    """The number of a tagged field."""

    number: int


@dataclass(frozen=True)
class Nullable:
    """The versions in which a field may be null, where these are not all."""

    versions: str


@dataclass(frozen=True)
class Fixed:
    """A number of fixed size; `code` is its format character of the `struct` module."""

    code: str
    size: int


@dataclass(frozen=True)
class Sized:
    """Bytes after a length: `string`, `bytes` (copied) or `records` (a view of the buffer)."""

    name: str


@dataclass(frozen=True)
class Identifier:
    """Sixteen bytes."""


@dataclass(frozen=True)
class ArrayOf:
    element: "Wire"


@dataclass(frozen=True)
class StructOf:
    cls: type["Message"]


Wire = Fixed | Sized | Identifier | ArrayOf | StructOf

Bool = Annotated[bool, Fixed("?", 1)]
Int8 = Annotated[int, Fixed("b", 1)]
Int16 = Annotated[int, Fixed("h", 2)]
UInt16 = Annotated[int, Fixed("H", 2)]
Int32 = Annotated[int, Fixed("i", 4)]
Int64 = Annotated[int, Fixed("q", 8)]
Float64 = Annotated[float, Fixed("d", 8)]
String = Annotated[str, Sized("string")]
Bytes = Annotated[bytes, Sized("bytes")]
Records = Annotated[Buffer, Sized("records")]
Uuid = Annotated[bytes, Identifier()]


class Message(msgspec.Struct, gc=False):
    """The base of every message and of every structure inside one. Messages contain no cycles, hence no garbage
    collection.

    A whole message (not a structure inside one) declares which versions exist and which of them are flexible (KIP-482).
    A request class whose API is served declares them in its `API`, also for its response class, which follows in the
    same module.
    """

    API: ClassVar[ServedApi | None] = None

    VERSIONS: ClassVar[Versions] = v("0+")
    FLEXIBLE: ClassVar[Versions] = NO_VERSION

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        request = getattr(sys.modules[cls.__module__], f"{cls.__name__.removesuffix('Response')}Request", cls)
        if (api := request.API) is not None:
            cls.VERSIONS, cls.FLEXIBLE = api.declared or api.versions, api.flexible


Partition = TypeVar("Partition", bound=Message)


class Topic(Message, Generic[Partition]):
    """The elements of a request or response about partitions of one topic."""

    name: String = ""
    partitions: list[Partition] = []


class QuorumTopic(Message, Generic[Partition]):
    """As `Topic`, in the requests of the metadata quorum, where Kafka names the field otherwise."""

    topic_name: String = ""
    partitions: list[Partition] = []


class SecretMessage(Message):
    """A message with secrets: its `repr`, which ends up in logs, contains only its type."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


@dataclass(frozen=True)
class Field:
    """One declared field, with its resolved type and versions."""

    name: str
    wire: Wire
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    """The default, or `list` for an array that is empty by default."""


class DeclarationError(TypeError):
    """A message class that cannot be compiled; a mistake in its declaration."""


@cache
def fields_of(cls: type[Message]) -> tuple[Field, ...]:
    """The declared fields of a class in wire order. Raises `DeclarationError`."""
    return tuple(_field(cls, info) for info in msgspec.structs.fields(cls))


def _field(cls: type[Message], info: Any) -> Field:
    versions, nullable_versions, tag = v("0+"), v("0+"), None
    hint, marks = _unwrap(info.type)
    for mark in marks:
        if isinstance(mark, Versions):
            versions = mark
        elif isinstance(mark, Nullable):
            nullable_versions = v(mark.versions)
        elif isinstance(mark, Tag):
            tag = mark.number
    wire, nullable = _wire(hint, marks)
    if wire is None:
        raise DeclarationError(f"{cls.__name__}.{info.name}: {hint} has no wire type")
    if isinstance(wire, StructOf) and nullable != (tag is not None):
        raise DeclarationError(f"{cls.__name__}.{info.name}: a structure is nullable exactly when it is tagged")
    default: Any = list if info.default is msgspec.NODEFAULT else info.default
    if isinstance(wire, StructOf) and info.default_factory is wire.cls:
        default = None  # the field is in every version of its message, so the default is never used
    elif info.default is msgspec.NODEFAULT and info.default_factory is not list:
        raise DeclarationError(f"{cls.__name__}.{info.name}: needs a constant default or an empty list")
    return Field(info.name, wire, versions, nullable_versions if nullable else NO_VERSION, tag, default)


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if typing.get_origin(hint) is Annotated:
        return hint.__origin__, hint.__metadata__
    return hint, ()


def _wire(hint: Any, marks: tuple[Any, ...]) -> tuple[Wire | None, bool]:
    """The wire type of a (partly unwrapped) annotation, and whether it is nullable."""
    for mark in marks:
        if isinstance(mark, Fixed | Sized | Identifier):
            return mark, False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        arguments = [argument for argument in typing.get_args(hint) if argument is not type(None)]
        if len(arguments) == 1:
            return _wire(*_unwrap(arguments[0]))[0], True
    if typing.get_origin(hint) is list:
        element = _wire(*_unwrap(typing.get_args(hint)[0]))[0]
        return (ArrayOf(element) if element is not None else None), False
    structure = typing.get_origin(hint) or hint
    if isinstance(structure, type) and issubclass(structure, Message):
        return StructOf(hint), False
    return None, False


def live_fields(cls: type[Message], version: int) -> tuple[list[Field], list[Field]]:
    """The plain and the tagged fields that a version carries, the tagged ones in the order of their tags."""
    present = [field for field in fields_of(cls) if version in field.versions]
    plain = [field for field in present if field.tag is None]
    tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
    return plain, tagged
