"""Reads the events of a Jepsen history, for every model: EDN, JSON, and the `history.txt` of a store.

- EDN: one map after another, or one vector or list of them.
- JSON: one object after another, or one array of them, as Jepsen and elle-cli export a history. JSON has neither
  keywords nor maps with numbers as keys. So the first element of a step, `["append", 1, 2]`, is a keyword, and a key of
  digits is a number.
- Text: one event per line, PROCESS, TYPE, F, VALUE and at most an ERROR, each after a tab (`jepsen.util/op->str`).

A store of Jepsen or Maelstrom is a directory `store/TEST/TIME` with `history.edn` or `history.txt`. Maelstrom names the
test after its workload, from which the model follows.

Theory of operation. Almost every line of a large EDN history is one event with integers only. Such a line is matched
with the form of the line before it, and its value becomes JSON by a few replacements of text; each other line goes to
the reader of EDN. Both give the same event.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from history.foreign.edn import FormMap, Keyword, Tagged, form_of, form_of_json, forms_of, plain_map, text_of
from history.foreign.events import TYPES, Event
from history.foreign.history import ForeignError
from history.foreign.kinds import EDN, JSON, TEXT, TRANSACTION_NAMES, WORKLOADS, kind_of, refusal, refusal_by_model
from history.foreign.text_lines import LONGEST, lines_of
from history.strict_json import decode

AS_WRITTEN: Final = "give the history as the tool wrote it"
_FILES: Final = {"history.edn": EDN, "history.txt": TEXT}
_INTEGER: Final = "(0|[1-9][0-9]{0,17})"
_PLAIN: Final = {
    "type": f":({'|'.join(TYPES)})",
    "f": ":([a-z]+(?:-[a-z]+)*)",
    "value": r"([\[\]0-9, :\-nilrapedw]+|\{[^{}]*\}[, ]*)",
    **dict.fromkeys(("process", "index", "time"), _INTEGER),
}
"""What the fields of a plain line look like."""
_NAME: Final = re.compile(r"(?<![\[\w]):([a-z]+)(?= +[:\[0-9n])")
_INNER_MAP: Final = re.compile(r"(?<=.)\{[^{}]*\}")
_NO_OBJECTS: Final = "is not JSON: an object for each event, or an array of them, is needed"
_TEXTS_AND_BRACES: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]')

_keyword: Final = lru_cache(Keyword)
_NEMESIS: Final = Keyword("nemesis")
_WITH_STEPS: Final = ("txn", "send", "poll")
"""Operations whose values are steps, whatever the model."""
Plain = Callable[[str], Any]
"""Gives the value that JSON states; raises ValueError for one that only the reader of EDN may take."""


@dataclass(frozen=True)
class FromTheStart:
    """The keys of an assignment that moves the consumer to the start of each."""

    keys: Any


@dataclass(frozen=True)
class KeyedValue:
    """The value of an operation on the object with this key, as Porcupine's key-value logs have it."""

    key: Any
    value: Any


def stored_history(directory: Path) -> tuple[Path, str, str]:
    """The history of a store, its notation, and the model of its workload; empty if the store does not say it. Raises
    ForeignError."""
    path = next((directory / name for name in _FILES if (directory / name).exists()), None)
    if path is None:
        raise ForeignError(directory, 0, f"has no {' and no '.join(_FILES)}: name a history, or store/TEST/latest")
    return path, _FILES[path.name], WORKLOADS.get(directory.resolve().parent.name, "")


def events_of(
    path: Path,
    functions: Mapping[str, bool],
    model: str = "",
    *,
    notation: str = EDN,
    plain: Plain | None = None,
    absent: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Event]:
    """The events of clients. `functions`: the known operations, and whether the value of an answered one is needed;
    `model`: whose they are, if the user named one; `plain`: decodes the value of a plain line; `absent`: what fields
    are that the file omits. Raises ForeignError. The value of an event with a `:key` is a `KeyedValue`."""
    last_index = -1
    for number, fields in _written(path, notation, plain or _integers, model):
        for name in absent:
            fields.setdefault(name, absent[name])
        process, kind, f = fields.get("process"), name_of(fields.get("type")), name_of(fields.get("f"))
        if kind is None or f is None or process is None:
            raise ForeignError(path, number, "is not an operation: a map with :type, :f, :process and :value is needed")
        index, time = _count(path, number, fields, "index"), _count(path, number, fields, "time")
        if process == _NEMESIS or (isinstance(process, Keyword) and f not in functions):
            continue
        if type(process) is not int:
            problem = f":process {text_of(process)} is neither the number of a client nor :nemesis"
            raise ForeignError(path, number, f"{problem}; {AS_WRITTEN}")
        if kind not in TYPES:
            raise ForeignError(path, number, f":type {kind} is unknown: one of {', '.join(TYPES)}")
        if f not in functions:
            problem = refusal_by_model(f, model, functions) if model else refusal(f, kind_of(f))
            raise ForeignError(path, number, problem)
        error = text_of(fields["error"]) if fields.get("error") is not None else ""
        if kind == "ok" and "value" not in fields and functions[f]:
            raise ForeignError(path, number, f":value of an answered {f} is missing; write nil where nothing was read")
        value = fields.get("value")
        if f == "assign" and fields.get("seek-to-beginning?"):
            value = FromTheStart(value)
        if model and "key" in fields:
            value = KeyedValue(fields["key"], value)
        if index is not None and index <= last_index:
            problem = (
                f":index {index} stands behind :index {last_index}, but the order of the lines is that of the events"
            )
            raise ForeignError(path, number, f"{problem}; {AS_WRITTEN}")
        last_index = last_index if index is None else index
        yield Event(number, process, kind, f, value, time, error)


def _count(path: Path, line: int, fields: dict[str, Any], name: str) -> int | None:
    """The number in a field, None without one. Raises ForeignError."""
    number = fields.get(name)
    if number is not None and (type(number) is not int or number < 0):
        raise ForeignError(path, line, f":{name} {text_of(number)} is not a number{' of ns' * (name == 'time')}")
    return number


def _fields(form: Any) -> dict[str, Any]:
    form = _untagged(form)
    if not isinstance(form, FormMap):
        return {}
    return {key.name: value for key, value in form.items() if isinstance(key, Keyword)}


def _untagged(form: Any) -> Any:
    """The form of a record, such as `#jepsen.history.Op{...}`."""
    return form.form if isinstance(form, Tagged) else form


def name_of(form: Any) -> str | None:
    """The name of a keyword, None for any other form."""
    return form.name if isinstance(form, Keyword) else None


def _written(path: Path, notation: str, plain: Plain, model: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The line of each event, and the fields that it states."""
    if notation == JSON:
        for number, members in _objects(path):
            try:
                yield number, _of_object(members, model)
            except ValueError as error:
                raise ForeignError(path, number, f"is not JSON ({error})") from error
    elif notation == TEXT:
        yield from ((number, _of_line(path, number, line)) for number, line in lines_of(path) if line.strip())
    else:
        for number, form in forms_of(path, _PlainLines(plain).fields):
            yield number, form if isinstance(form, dict) else _fields(form)


def _integers(text: str) -> Any:
    """Decodes integers, nil, and vectors of these. Raises ValueError."""
    if '"' in text:
        raise ValueError("a keyword")
    return decode(text)


class _PlainLines:
    """Reads lines of EDN that are one event with integers only."""

    def __init__(self, decode_value: Plain) -> None:
        self._decode = decode_value
        self._readers: dict[str, Callable[[str], Any]] = {}
        self._form = re.compile("(?!)")
        """Of the last plain line that was unlike the one before: what reads the text of each field, and what such lines
        match."""

    def fields(self, line: str) -> dict[str, Any] | None:
        """The fields of an event, or None if the reader of EDN must read the line."""
        match = self._form.fullmatch(line)
        if match is None:
            names = _NAME.findall(_INNER_MAP.sub("0", line))
            readers = {name: self._reader(name) for name in names if name in _PLAIN}
            if list(self._readers) == names or len(readers) < len(names) or not {"type", "value"} <= readers.keys():
                return None
            self._readers = readers
            self._form = re.compile(rf"\{{{''.join(f'[, ]*:{name} +{_PLAIN[name]}' for name in names)}[, ]*\}}")
            return self.fields(line)
        try:
            pairs = zip(self._readers.items(), match.groups(), strict=True)
            return {name: read(text) for (name, read), text in pairs}
        except ValueError:
            return None

    def _reader(self, name: str) -> Callable[[str], Any]:
        """What reads the text of a field."""
        return self._value if name == "value" else int if _PLAIN[name] == _INTEGER else _keyword

    def _value(self, text: str) -> Any:
        """The value that a text states. Raises ValueError."""
        text = text.rstrip(", ")
        if text.startswith("{"):
            if (form := plain_map(text)) is None:
                raise ValueError("a map of other forms")
            return form
        text = text.replace(":r ", '"r",').replace(":append ", '"a",').replace(":w ", '"w",')
        return self._decode(text.replace("nil", "null").replace(", ", ",").replace(" ", ","))


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON file, each with the line where it starts: one after another, or in one array."""
    start, depth, pieces, array = 0, 0, list[str](), 0
    for number, line in lines_of(path):
        at = 0
        for mark in _TEXTS_AND_BRACES.finditer(line):
            step = {"{": 1, "}": -1}.get(mark[0], 0)
            if not depth:
                if step != 1 or line[at : mark.start()].strip(" \t,[]"):
                    raise ForeignError(path, number, _NO_OBJECTS)
                array += line.count("[", at, mark.start()) - line.count("]", at, mark.start())
                start, at, pieces = number, mark.start(), []
            depth += step
            if not depth:
                try:
                    yield start, decode("".join([*pieces, line[at : mark.end()]]))
                except ValueError as error:
                    raise ForeignError(path, start, f"is not JSON ({error})") from error
                at = mark.end()
        if depth:
            pieces.append(line[at:])
            if sum(map(len, pieces[-2:])) > LONGEST or len(pieces) > LONGEST >> 8:
                raise ForeignError(path, start, "the object that starts here is too long")
        elif line[at:].strip(" \t,[]"):
            raise ForeignError(path, number, _NO_OBJECTS)
        else:
            array += line.count("[", at) - line.count("]", at)
    if depth:
        raise ForeignError(path, start, "is not JSON (the object that starts here does not end)")
    if array:
        raise ForeignError(path, 0, "is not JSON (the array of events does not end, so that some may be missing)")


def _of_object(members: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The fields of an event in JSON; null is as good as an absent field, but for the value."""
    fields = {name: form_of_json(value) for name, value in members.items() if value is not None or name == "value"}
    for name in ("type", "f", "process"):
        if isinstance(members.get(name), str):
            fields[name] = _keyword(members[name].removeprefix(":"))
    if "value" in fields:
        fields["value"] = with_named_steps(fields["value"], name_of(fields.get("f")), model)
    return fields


def with_named_steps(value: Any, f: str | None, model: str) -> Any:
    """A value of JSON as a form. The names of the steps of a transaction are keywords, also behind the key of
    `jepsen.independent`; other vectors, such as the elements of a set, are as they are."""
    if f not in _WITH_STEPS and model not in TRANSACTION_NAMES:
        return value
    if isinstance(value, list) and len(value) == 2 and _are_steps(value[1]):
        return [value[0], _with_keywords(value[1])]
    return _with_keywords(value) if _are_steps(value) else value


def _are_steps(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(step, list) and step and type(step[0]) is str for step in value)


def _with_keywords(steps: list[Any]) -> list[Any]:
    return [[_keyword(name.removeprefix(":")), *rest] for name, *rest in steps]


def _of_line(path: Path, number: int, line: str) -> dict[str, Any]:
    """The fields of a line of `history.txt`."""
    columns = line.split("\t", 4)
    if len(columns) < 4:
        raise ForeignError(path, number, "is not an event: PROCESS, TYPE, F and VALUE with tabs between them is needed")
    try:
        fields = {name: form_of(text) for name, text in zip(("process", "type", "f", "value"), columns, strict=False)}
    except ForeignError as error:
        raise ForeignError(path, number, f"is not EDN between its tabs ({error})") from error
    if len(columns) == 5:
        fields["error"] = columns[4]
    return fields
