"""Reads the tables of a TOML file whose keys are declared by a struct.

The struct has each key once: its type with bounds, its default, and its text below it. From this follow what is read
here, the JSON Schema of the table, and its rows in the documents. Words that only a room above the struct's knows, such
as the names of anomalies, are passed beside it.

A shape is the JSON Schema of one key, as msgspec makes it. Reader and schema share it, so both refuse the same.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import textwrap
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import fields

from installation.sanitize import brief
from systems.toml_tables import Table

Shape = Mapping[str, Any]
Words = Mapping[str, Collection[str]]
"""By key: the texts that it may have, or that its list may hold."""
NO_WORDS: Final[Words] = MappingProxyType({})
_S = TypeVar("_S", bound=msgspec.Struct)


def read(table: Table, declared: type[_S], words: Words = NO_WORDS, **computed: Any) -> _S:
    """The table as a struct; all other keys are refused. `computed`: the fields that are not keys. Raises
    `InputError`."""
    values = read_keys(table, declared, words)
    table.done()
    return declared(**values, **computed)


def read_keys(
    table: Table, declared: type[msgspec.Struct], words: Words = NO_WORDS, only: Collection[str] | None = None
) -> dict[str, Any]:
    """The values by field, of all keys or `only` these. Within `telling_all`, an optional key with a wrong value has
    its default. Raises `InputError`."""
    by_key = shapes(declared, words)
    keys = by_key.keys() if only is None else only
    values = {}
    for field in fields(declared):
        key = field.encode_name
        if key in keys and field.required:
            values[field.name] = read_key(table, key, by_key[key])
        elif key in keys:
            values[field.name] = read_optional(table, key, by_key[key], default_of(field))
    return values


def read_optional(table: Table, key: str, shape: Shape, default: Any) -> Any:
    """As `read_key`; the default if the key is missing."""
    if table.raw(key, None) is None:
        return default
    return table.source.attempt(lambda: read_key(table, key, shape), default)


def read_key(table: Table, key: str, shape: Shape) -> Any:
    """The value of one key. Raises `InputError` if it is missing or does not have the shape."""
    minimum, maximum, items = shape.get("minimum"), shape.get("maximum"), shape.get("items", {})
    match shape.get("type"):
        case "integer":
            return table.integer(key, minimum=minimum, maximum=maximum)
        case "number":
            return table.number(key, minimum=minimum, maximum=maximum)
        case "boolean":
            return table.boolean(key)
        case "string":
            text = table.text(key, choices=shape.get("enum", ()))
            if not _fits(text, shape):
                table.refuse(f"{key}: {text!r} is not {shape['title']}", key)
            return text
        case ["array", "string"] if isinstance(table.data.get(key), str):
            return (table.text(key, choices=items.get("enum", ())),)
        case "array" | ["array", "string"] if items.get("type") == "string":
            listed = table.texts(key, choices=items.get("enum", ()), unique=shape["uniqueItems"])
            if len(listed) < shape.get("minItems", 0):
                table.refuse(f"{key} is empty; name at least one", key)
            return listed
        case "array" if "minimum" in items:
            is_integer = items["type"] == "integer"
            return table.range(key, minimum=items["minimum"], maximum=items["maximum"], whole=is_integer)
        case "object":
            settings = _texts_of(table, key, shape.get("additionalProperties", {}))
            if len(settings) < shape.get("minProperties", 0):
                table.refuse(f"{key} is missing; write a table with at least one key", key if key in table else None)
            return settings
    if (value := table.raw(key, None)) is None:
        table.refuse(f"{key} is missing; add {shape['title']}")
    if not _fits(value, shape):
        table.refuse(f"{key}: {brief(repr(value), 40)} is not {shape['title']}", key)
    return _tuples(value)


def _texts_of(table: Table, key: str, shape: Shape) -> dict[str, Any]:
    """A table whose keys the file chooses; its values are texts if they have a shape."""
    inner = table.table(key)
    for name, value in inner.data.items():
        if not _fits(value, shape):
            problem = "not a text" if shape["type"] == "string" else "neither a text, a number, true nor false"
            table.refuse(f"{key}: {name}: {value!r} is {problem}; put a name with dots in quotes", key)
    values = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in inner.data.items()}
    return values if shape else dict(inner.data)


def _fits(value: Any, shape: Shape) -> bool:
    """Whether a value has a shape, by those words of JSON Schema that `read_key` leaves to it."""
    if "anyOf" in shape:
        return any(_fits(value, option) for option in shape["anyOf"])
    if "enum" in shape:
        return any(value == choice and type(value) is type(choice) for choice in shape["enum"])
    match shape.get("type"), value:
        case None, _:
            return True
        case [*types], _:
            return any(_fits(value, {**shape, "type": option}) for option in types)
        case ("boolean", bool()) | ("number", float()):
            return True
        case ("integer" | "number", int()) if not isinstance(value, bool):
            return bool(value >= shape.get("minimum", value))
        case "string", str():
            return re.fullmatch(shape.get("pattern", ".*"), value, re.DOTALL) is not None
        case "array", list():
            length = shape.get("minItems", 0) <= len(value) <= shape.get("maxItems", len(value))
            return length and all(_fits(item, shape["items"]) for item in value)
    return False


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """The value of a field that is not required."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def shapes(declared: type[msgspec.Struct], words: Words = NO_WORDS) -> dict[str, Shape]:
    """By key."""
    return {key: _with_words(shape, words[key]) if key in words else shape for key, shape in _shapes(declared).items()}


def schema(declared: type[msgspec.Struct], words: Words = NO_WORDS) -> dict[str, Any]:
    """The JSON Schema of a table (draft 7, which editors of TOML know)."""
    explained, by_key = texts(declared), shapes(declared, words)
    described = {
        key: {keyword: value for keyword, value in shape.items() if keyword not in ("names", "title")}
        | {"description": explained[key]}
        for key, shape in by_key.items()
    }
    needed = [field.encode_name for field in fields(declared) if field.required and field.encode_name in by_key]
    return {"type": "object", "properties": described, "required": needed, "additionalProperties": False}


@functools.cache
def _shapes(declared: type[msgspec.Struct]) -> dict[str, Shape]:
    _, parts = msgspec.json.schema_components([declared])
    properties: dict[str, Any] = parts[declared.__name__]["properties"]
    return {key: _plain(shape) for key, shape in properties.items() if "computed" not in shape}


def _plain(shape: dict[str, Any]) -> dict[str, Any]:
    """Without what TOML cannot have (null), what only newer drafts know, and what `enum` says, too."""
    options = [option for option in shape.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1:
        (shape,) = options
    if "prefixItems" in shape:
        shape = {**shape, "items": shape["prefixItems"][0]}
    shape = {**shape, **shape.get("instead", {})}
    if isinstance(shape.get("items"), dict):
        shape["items"] = _plain(shape["items"])
        if shape["items"].get("type") == "string":
            shape.setdefault("uniqueItems", True)
    unneeded = ["pattern"] if "enum" in shape else []
    unneeded += ["default"] if shape.get("default") in (None, "", (), [], {}) else []
    return {key: value for key, value in shape.items() if key not in ("prefixItems", "instead", *unneeded)}


def _with_words(shape: Shape, words: Collection[str]) -> Shape:
    choices = sorted(words)
    match shape["type"]:
        case "string":
            return {**shape, "enum": choices}
        case "array":
            return {**shape, "items": {**shape["items"], "enum": choices}}
    return {**shape, "items": {"type": "string", "enum": choices}, "pattern": f"^({'|'.join(choices)})$"}


@functools.cache
def texts(declared: type[msgspec.Struct]) -> Mapping[str, str]:
    """By key: the text below its field."""
    keys = {field.name: field.encode_name for field in fields(declared)}
    owners = [
        base for base in reversed(declared.__mro__) if issubclass(base, msgspec.Struct) and base is not msgspec.Struct
    ]
    text_by_key = dict[str, str]()
    sources = [textwrap.dedent(inspect.getsource(owner)) for owner in owners]
    for statement in (statement for source in sources for statement in ast.parse(source).body):
        assert isinstance(statement, ast.ClassDef)
        for pair in itertools.pairwise(statement.body):
            match pair:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))) if name in keys:
                    text_by_key[keys[name]] = " ".join(text.split())
    return text_by_key
