"""Reads the tables of a TOML file whose keys are declared by a struct.

The struct has each key once: its type with bounds, its default, and its text below it. From this follow what is read
here, the JSON Schema of the table, and its rows in the documents. Words that only a room above the struct's knows, such
as the names of anomalies, are passed beside it.

A shape is the JSON Schema of one key, as msgspec makes it. Reader and schema share it, so both refuse the same.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args

import msgspec
from msgspec.structs import FieldInfo, fields

from broker.field_texts import field_texts
from installation.sanitize import brief
from systems.errors import InputError
from systems.toml_tables import KeyPath, Table, TomlSource, suggestion

Shape = Mapping[str, Any]
Words = Mapping[str, Collection[str]]
"""By key: the texts that it may have, or that its list may hold."""
NO_WORDS: Final[Words] = MappingProxyType({})
PAIR: Final = 2
_INNER: Final = ("items", "propertyNames", "additionalProperties")
"""The words of a shape with the shape of its parts."""
Problem = tuple[KeyPath, str]
"""The path of a key, and what is wrong with its value."""
_S = TypeVar("_S", bound=msgspec.Struct)
_T = TypeVar("_T")


def read(table: Table, declared: type[_S], words: Words = NO_WORDS, **computed: Any) -> _S:
    """The table as a struct; all other keys are refused. `computed`: the fields that are not keys. Raises
    `InputError`."""
    try:
        values = read_keys(table, declared, words)
    except InputError as error:
        table.source.complain(error)  # within `telling_all` the unknown keys are errors, too
        table.done()
        raise
    table.done()
    return declared(**values, **computed)


def read_file(
    source: TomlSource, declared: type[_S], problems: Callable[[_S], Iterable[Problem]], **computed: Any
) -> _S:
    """A whole file as a struct. `problems`: what is wrong though each key alone is right; `computed` as for `read`.
    Raises one `InputError` with all errors."""
    with source.telling_all():
        content = read(source.root(), declared, **computed)
        for (*tables, key), problem in problems(content):
            source.complain(Table(source, tuple(tables), {}).error(f"{key}: {problem}", key))
    return content


def read_keys(
    table: Table, declared: type[msgspec.Struct], words: Words = NO_WORDS, only: Collection[str] | None = None
) -> dict[str, Any]:
    """The values by field, of all keys or `only` these. Within `telling_all`, an optional key with a wrong value has
    its default. Raises `InputError`."""
    by_key = shapes(declared, words)
    keys = by_key.keys() if only is None else only
    chosen = [field for field in fields(declared) if field.encode_name in keys]
    reads = (functools.partial(_read_field, table, field, by_key[field.encode_name]) for field in chosen)
    return dict(zip((field.name for field in chosen), _results(table.source, reads), strict=True))


def _read_field(table: Table, field: FieldInfo, shape: Shape) -> Any:
    key = field.encode_name
    return read_key(table, key, shape) if field.required else read_optional(table, key, shape, default_of(field))


def _results(source: TomlSource, reads: Iterable[Callable[[], _T]]) -> list[_T]:
    """The results of all. Raises the last `InputError`; within `telling_all` those of all are kept."""
    results, last_error = list[_T](), None
    for read_one in reads:
        try:
            results.append(read_one())
        except InputError as error:
            source.complain(error)
            last_error = error
    if last_error:
        raise last_error
    return results


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
        case "string" if shape.get("format") == "date":
            return _date(table, key)
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
            for text in listed:
                if not _fits(text, items):
                    table.refuse(f"{key}: {text!r} is not {items['title']}", key)
            return listed
        case "array" if "struct" in items:
            entries = (functools.partial(read, entry, items["struct"]) for entry in table.tables(key))
            return tuple(_results(table.source, entries))
        case "array" if "minimum" in items and shape.get("maxItems") == PAIR:
            is_integer = items["type"] == "integer"
            return table.range(key, minimum=items["minimum"], maximum=items["maximum"], whole=is_integer)
        case "object":
            inner = table.table(key)
            if len(inner.data) < shape.get("minProperties", 0):
                table.refuse(f"{key} is missing; write a table with at least one key", key if key in table else None)
            values = (functools.partial(_named, inner, name, shape) for name in inner.data)
            return dict(zip(inner.data, _results(table.source, values), strict=True))
        case None if "struct" in shape:
            return read(table.table(key), shape["struct"])
    if (value := table.raw(key, None)) is None:
        table.refuse(f"{key} is missing; add {shape['title']}")
    if not _fits(value, shape):
        table.refuse(f"{key}: {brief(repr(value), 40)} is not {shape['title']}", key)
    return _tuples(value)


def _date(table: Table, key: str) -> date:
    value = table.raw(key, None)
    if not isinstance(value, date) or isinstance(value, datetime):
        table.refuse(f"{key} is a date without quotes, such as {key} = 2030-01-31", key if key in table else None)
    return value


def _named(table: Table, name: str, shape: Shape) -> Any:
    """The value of a key that the file chooses: a table, a number, any value if it has no shape, else a text."""
    names, values = {"type": "string", **shape.get("propertyNames", {})}, shape.get("additionalProperties", {})
    if not _fits(name, names):
        meant = f"known; {suggestion(name, names['enum'])}" if "enum" in names else names["title"]
        table.refuse(f"{name!r} is not {meant}", name)
    if "struct" in values:
        return read(table.table(name), values["struct"], name=name)
    if values.get("type") in ("object", "integer") or values.get("maxItems") == PAIR:
        return read_key(table, name, values)
    value = table.raw(name, None)
    if not _fits(value, values):
        problem = "not a text" if values["type"] == "string" else "neither a text, a number, true nor false"
        meant = f"not {values['title']}" if "title" in values else f"{problem}; put a name with dots in quotes"
        table.refuse(f"{name}: {value!r} is {meant}", name)
    if not values:
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


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
            return bool(shape.get("minimum", value) <= value <= shape.get("maximum", value))
        case "string", str():
            return re.fullmatch(shape.get("pattern", ".*"), value, re.DOTALL) is not None
        case "array", list():
            length = shape.get("minItems", 0) <= len(value) <= shape.get("maxItems", len(value))
            return length and all(_fits(item, shape["items"]) for item in value)
    return False


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def default_of(field: FieldInfo) -> Any:
    """The value of a field that is not required."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def shapes(declared: type[msgspec.Struct], words: Words = NO_WORDS) -> dict[str, Shape]:
    """By key."""
    return {key: _with_words(shape, words[key]) if key in words else shape for key, shape in _shapes(declared).items()}


def schema(declared: type[msgspec.Struct], words: Words = NO_WORDS) -> dict[str, Any]:
    """The JSON Schema of a table (draft 7, which editors of TOML know)."""
    explained, by_key = texts(declared), shapes(declared, words)
    described = {key: _public(shape) | {"description": explained[key]} for key, shape in by_key.items()}
    needed = [field.encode_name for field in fields(declared) if field.required and field.encode_name in by_key]
    return {"type": "object", "properties": described, "required": needed, "additionalProperties": False}


def _public(shape: Shape) -> dict[str, Any]:
    """The shape without the words that only the reader knows; a struct as the schema of its table."""
    public = {keyword: value for keyword, value in shape.items() if keyword not in ("names", "title", "struct")}
    inner = {keyword: _public(shape[keyword]) for keyword in _INNER if isinstance(shape.get(keyword), Mapping)}
    return public | inner | (schema(shape["struct"]) if "struct" in shape else {})


@functools.cache
def _shapes(declared: type[msgspec.Struct]) -> dict[str, Shape]:
    _, parts = msgspec.json.schema_components([declared], ref_template="{name}")
    properties: dict[str, Any] = parts[declared.__name__]["properties"]
    structs = {inner.__name__: inner for field in fields(declared) for inner in structs_in(field.type)}
    return {key: _plain(shape, structs) for key, shape in properties.items() if "computed" not in shape}


def structs_in(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    """The structs that a type consists of."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for part in get_args(annotation):
        yield from structs_in(part)


def _plain(shape: dict[str, Any], structs: Mapping[str, type[msgspec.Struct]]) -> dict[str, Any]:
    """Without what TOML cannot have (null), what only newer drafts know, and what `enum` says, too. A struct is
    itself."""
    if "$ref" in shape:
        return {"struct": structs[shape["$ref"]]}
    options = [option for option in shape.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1:
        return _plain(options[0], structs)
    if "prefixItems" in shape:
        shape = {**shape, "items": shape["prefixItems"][0]}
    shape = {**shape, **shape.get("instead", {})}
    shape |= {keyword: _plain(shape[keyword], structs) for keyword in _INNER if isinstance(shape.get(keyword), dict)}
    if shape.get("items", {}).get("type") == "string":
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
    by_name = field_texts(declared)
    return {field.encode_name: by_name[field.name] for field in fields(declared) if field.name in by_name}
