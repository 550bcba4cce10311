"""Strict reading of TOML tables: the reader asks for every key by name and type, and all other keys are errors.

An error names the file, the line, the table and the key, what is wrong and what would be right. The first error ends
the reading; within `TomlSource.telling_all` the reading continues where it can, and all errors are raised at its end.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from history.regular_files import read_bytes
from installation.sanitize import brief
from systems.errors import InputError

KeyPath = tuple[str | int, ...]

# ---- The line of each key: `tomllib` does not report lines, which error messages need. The scanner expects text that
# `tomllib` has accepted. It understands just enough of TOML to find every key: headers, dotted and quoted keys, strings
# of all four kinds, arrays over several lines and inline tables.

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""+|' r"'''.*?'''+|" r'"(?:\\.|[^"\\\n])*"|' r"'[^'\n]*'",
    re.DOTALL,
)
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Map each key's path to its line (from 1). The n-th table of an array of tables has the index n in its path."""
    return _Scanner(text).scan()


class _Scanner:
    """One pass over the text; `position` only moves forward."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.lines: dict[KeyPath, int] = {}
        self.array_lengths: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip_space():
            if self._peek() == "[":
                table = self._header()
            else:
                self._key_and_value(table)
        return self.lines

    def _line(self) -> int:
        return self.text.count("\n", 0, self.position) + 1

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _skip_space(self) -> bool:
        match = _SPACE.match(self.text, self.position)
        self.position = match.end() if match else self.position
        return self.position < len(self.text)

    def _header(self) -> KeyPath:
        line, doubled = self._line(), self.text.startswith("[[", self.position)
        self.position += 2 if doubled else 1
        keys = self._dotted_key()
        self._skip_space()
        self.position += 2 if doubled else 1
        path = self._through_arrays(keys[:-1]) + keys[-1:]
        if doubled:
            index = self.array_lengths.get(path, 0)
            self.array_lengths[path] = index + 1
            self.lines.setdefault(path, line)
            path = (*path, index)
        elif path in self.array_lengths:
            path = (*path, self.array_lengths[path] - 1)
        self.lines[path] = line
        return path

    def _through_arrays(self, keys: KeyPath) -> KeyPath:
        """A header's parents that are arrays of tables stand for their last table."""
        path: KeyPath = ()
        for key in keys:
            path = (*path, key)
            if path in self.array_lengths:
                path = (*path, self.array_lengths[path] - 1)
        return path

    def _dotted_key(self) -> KeyPath:
        keys: list[str | int] = []
        while True:
            self._skip_space()
            match = _STRING.match(self.text, self.position) or _BARE.match(self.text, self.position)
            if match is None:  # not TOML; tomllib has rejected it before
                self.position = len(self.text)
                return tuple(keys)
            quoted = match.group()[0] in "\"'"
            keys.append(match.group()[1:-1] if quoted else match.group())
            self.position = match.end()
            self._skip_space()
            if self._peek() != ".":
                return tuple(keys)
            self.position += 1

    def _key_and_value(self, table: KeyPath) -> None:
        line = self._line()
        keys = self._dotted_key()
        path: KeyPath = table
        for key in keys:
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._skip_space()
        self.position += 1  # the equals sign
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        self._skip_space()
        if self._peek() == "{":
            self._collection("}", path)
        elif self._peek() == "[":
            self._collection("]", path)
        elif match := _STRING.match(self.text, self.position):
            self.position = match.end()
        else:
            while self._peek() not in ("", ",", "]", "}", "\n", "#"):
                self.position += 1

    def _collection(self, closing: str, path: KeyPath) -> None:
        self.position += 1
        index = 0
        while self._skip_space() and self._peek() != closing:
            if self._peek() == ",":
                self.position += 1
            elif closing == "}":
                self._key_and_value(path)
            else:
                self.lines.setdefault((*path, index), self._line())
                self._value((*path, index))
                index += 1
        self.position += 1


# ---- Tables.

_MISSING: Any = object()
_BITS = 63

_T = TypeVar("_T")


class TomlSource:
    """A TOML file: its data, and the line of each key."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        try:
            self.data: dict[str, Any] = tomllib.loads(text)
            self._lines = key_lines(text)
        except tomllib.TOMLDecodeError as error:
            line = getattr(error, "lineno", None) or _line_in(str(error))
            raise InputError(f"{name}:{line}: not valid TOML: {error}") from None
        except ValueError:  # Python's own, for a number of more digits than it converts
            raise InputError(f"{name}: a number in it has too many digits") from None
        except RecursionError:
            raise InputError(f"{name}: a list or a table in it is nested too deeply") from None
        self._complaints: list[InputError] | None = None
        self._refuse_excess()

    @classmethod
    def read(cls, path: Path) -> TomlSource:
        """Read a file that a user names, which may be a pipe. Raises `InputError` when it is missing, unreadable or not
        UTF-8."""
        return cls._read(path, lambda path: path.read_text(encoding="utf-8-sig"))

    @classmethod
    def read_stored(cls, path: Path) -> TomlSource:
        """Read a file of a store, a policy or a description of a system: a regular file, so that no command waits for
        a pipe. Raises as `read`."""
        return cls._read(path, lambda path: read_bytes(path).decode("utf-8-sig"))

    @classmethod
    def _read(cls, path: Path, content: Callable[[Path], str]) -> TomlSource:
        """`content` skips a mark of the byte order, which some editors write."""
        try:
            return cls(str(path), content(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not UTF-8 text; save it as UTF-8") from None

    def line(self, path: KeyPath) -> int:
        """The line of a key, or of the nearest table around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def root(self) -> Table:
        return Table(self, (), self.data)

    def _refuse_excess(self) -> None:
        """Raise `InputError` for values that TOML allows and Brownout cannot use: whole numbers beyond 64 bits, and
        texts that cannot be a path or an argument."""
        pending: list[tuple[KeyPath, Any]] = [((), self.data)]
        while pending:
            path, value = pending.pop()
            if isinstance(value, dict):
                pending += [((*path, key), inner) for key, inner in value.items()]
            elif isinstance(value, list):
                pending += [((*path, index), inner) for index, inner in enumerate(value)]
            elif isinstance(value, int) and value.bit_length() > _BITS:
                self._refuse_at(path, "a whole number here has 64 bits at most")
            elif isinstance(value, str) and "\0" in value:
                self._refuse_at(path, f"{_show(value)} has a character that no text here may have: U+0000")

    def _refuse_at(self, path: KeyPath, message: str) -> NoReturn:
        while not isinstance(path[-1], str):  # an entry of a list
            path = path[:-1]
        Table(self, path[:-1], {}).refuse(f"{path[-1]}: {message}", path[-1])

    @property
    def complained(self) -> bool:
        """Whether an error waits for the end of `telling_all`: what was read so far is incomplete."""
        return bool(self._complaints)

    @contextlib.contextmanager
    def telling_all(self) -> Iterator[None]:
        """Within this, an error about one key, or in what `attempt` reads, does not end the reading.

        Invariant: no error is lost. All are raised at the end as one `InputError`, in the order of lines."""
        self._complaints = complaints = []
        try:
            yield
        except InputError as error:
            complaints.append(error)
        finally:
            self._complaints = None
        if complaints:
            raise _as_one(self.name, complaints)

    def attempt(self, read: Callable[[], _T], otherwise: _T) -> _T:
        """The result of `read`; within `telling_all`, `otherwise` when it raises."""
        try:
            return read()
        except InputError as error:
            self.complain(error)
            return otherwise

    def complain(self, error: InputError) -> None:
        """Raise an error, or keep it for the end of `telling_all`."""
        if self._complaints is None:
            raise error
        self._complaints.append(error)


class Table:
    """A table during reading. Read each key once, then call `done()`."""

    def __init__(self, source: TomlSource, path: KeyPath, data: Mapping[str, Any]) -> None:
        self.source = source
        self.path = path
        self.data = data
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def refuse(self, message: str, key: str | int | None = None) -> NoReturn:
        """Raise the error that `error` makes."""
        raise self.error(message, key)

    def error(self, message: str, key: str | int | None = None) -> InputError:
        """An `InputError` about this table, or about one key of it."""
        path = self.path if key is None else (*self.path, key)
        return InputError(f"{self.source.name}:{self.source.line(path)}: {self._label()}{message}")

    def _label(self) -> str:
        names = [str(part) for part in self.path if isinstance(part, str)]
        return f"[{'.'.join(names)}] " if names else ""

    def done(self) -> None:
        """Reject keys that were not read, with the nearest known key."""
        for key in self.data:
            if key not in self._asked:
                self.source.complain(self.error(f"unknown key {key!r}; {suggestion(key, self._asked)}", key))

    def _attempt(self, key: str, default: Any, read: Callable[[], Any]) -> Any:
        """The result of `read`. Within `telling_all`, an optional key with a wrong value has its default until all
        errors are raised."""
        self._asked.add(key)
        return read() if default is _MISSING else self.source.attempt(read, default)

    def _take(self, key: str, default: Any, types: tuple[type, ...], description: str) -> Any:
        if key not in self.data:
            if default is _MISSING:
                self.refuse(f"{key} is missing; add {key} = {description}")
            return default
        value = self.data[key]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            self.refuse(f"{key}: {_show(value)} is not {description}", key)
        return value

    def text(self, key: str, default: str = _MISSING, *, choices: Collection[str] = ()) -> str:
        def read() -> str:
            value: str = self._take(key, default, (str,), 'a text such as "..."')
            if choices and value not in choices:
                self.refuse(f"{key}: {value!r} is not known; {suggestion(value, choices)}", key)
            return value

        value: str = self._attempt(key, default, read)
        return value

    def integer(
        self, key: str, default: int = _MISSING, *, minimum: int | None = None, maximum: int | None = None
    ) -> int:
        def read() -> int:
            value: int = self._take(key, default, (int,), "a whole number")
            self._at_least(key, value, minimum)
            self._at_most(key, value, maximum)
            return value

        value: int = self._attempt(key, default, read)
        return value

    def number(
        self, key: str, default: float = _MISSING, *, minimum: float | None = None, maximum: float | None = None
    ) -> float:
        def read() -> float:
            value = float(self._take(key, default, (int, float), "a number"))
            if not math.isfinite(value):
                self.refuse(f"{key}: {value} is not a number that can be waited for or counted to", key)
            self._at_least(key, value, minimum)
            self._at_most(key, value, maximum)
            return value

        value: float = self._attempt(key, default, read)
        return value

    def boolean(self, key: str, default: bool = _MISSING) -> bool:
        value: bool = self._attempt(key, default, lambda: self._take(key, default, (bool,), "true or false"))
        return value

    def texts(
        self, key: str, default: Iterable[str] = _MISSING, *, choices: Collection[str] = (), unique: bool = True
    ) -> tuple[str, ...]:
        def read() -> tuple[str, ...]:
            values = self._take(key, default, (list, tuple), 'a list of texts such as ["...", "..."]')
            for value in values:
                if not isinstance(value, str):
                    self.refuse(f"{key}: {_show(value)} is not a text", key)
                if choices and value not in choices:
                    self.refuse(f"{key}: {value!r} is not known; {suggestion(value, choices)}", key)
            if unique and (repeated := [value for value in values if values.count(value) > 1]):
                self.refuse(f"{key}: {repeated[0]!r} is given twice", key)
            return tuple(values)

        return tuple(self._attempt(key, default, read))

    def range(self, key: str, *, minimum: float, maximum: float, whole: bool) -> tuple[float, float]:
        """`[low, high]`, in the unit at the end of the key's name; `whole`: both are whole numbers."""
        values = self._take(key, _MISSING, (list, tuple), "a pair [low, high]")
        numbers = [v for v in values if isinstance(v, int if whole else int | float) and not isinstance(v, bool)]
        if len(numbers) != 2 or len(values) != 2:
            self.refuse(f"{key}: {_show(values)} is not a pair [low, high]{' of whole numbers' if whole else ''}", key)
        low, high = numbers if whole else map(float, numbers)
        if not math.isfinite(low + high):
            self.refuse(f"{key}: {_show(values)} is not a pair of finite numbers", key)
        if high < low:
            self.refuse(f"{key}: the upper bound {high:g} is smaller than the lower bound {low:g}", key)
        self._at_least(key, low, minimum)
        self._at_most(key, high, maximum)
        return low, high

    def raw(self, key: str, default: Any) -> Any:
        """A value whose shape the caller checks."""
        self._asked.add(key)
        return self.data.get(key, default)

    def table(self, key: str) -> Table:
        """The sub-table `key`, empty when it is absent."""
        data = self._attempt(key, {}, lambda: self._take(key, {}, (dict,), f"a table [{key}]"))
        return Table(self.source, (*self.path, key), data)

    def tables(self, key: str) -> list[Table]:
        """The tables of `[[key]]`; empty when the key is absent."""
        items = self._attempt(key, [], lambda: self._read_tables(key))
        return [Table(self.source, (*self.path, key, index), item) for index, item in enumerate(items)]

    def _read_tables(self, key: str) -> list[Any]:
        items: list[Any] = self._take(key, [], (list,), f"an array of tables [[{key}]]")
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                self.refuse(f"{key}: entry {index + 1} is not a table; write it as [[{key}]]", key)
        return items

    def _at_least(self, key: str, value: float, minimum: float | None) -> None:
        if minimum is not None and value < minimum:
            self.refuse(f"{key}: {_number(value)} is smaller than {_number(minimum)}", key)

    def _at_most(self, key: str, value: float, maximum: float | None) -> None:
        if maximum is not None and value > maximum:
            share = "; it is a share, such as 0.25" if isinstance(value, float) and maximum == 1 else ""
            self.refuse(f"{key}: {_number(value)} is larger than {_number(maximum)}{share}", key)


def place_of_key(path: Path, *keys: str | int) -> str:
    """`file:line` of a key in a TOML file, for errors that are found after the file was read."""
    source = TomlSource.read(path)
    return f"{source.name}:{source.line(keys)}"


def suggestion(word: str, names: Collection[str]) -> str:
    """`did you mean "x"?`, or the list of known words when none of them is near."""
    near = difflib.get_close_matches(word, sorted(names), n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(sorted(names))}" if names else "nothing is known here"


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show(value: Any) -> str:
    try:
        return brief(repr(value), 40)
    except RecursionError:  # keys with a thousand dots
        return "what is nested so deeply"


def _as_one(name: str, complaints: list[InputError]) -> InputError:
    """All complaints as one, in the order of lines; each text once."""
    texts = sorted(dict.fromkeys(map(str, complaints)), key=lambda text: _line_of(name, text))
    if len(texts) == 1:
        return complaints[0]
    return InputError(f"{name}: {len(texts)} things are wrong\n" + "\n".join(f"  {text}" for text in texts))


def _line_of(name: str, text: str) -> int:
    number = text.removeprefix(f"{name}:").partition(":")[0]
    return int(number) if number.isdigit() else 0


def _line_in(message: str) -> int:
    """`tomllib` reports `(at line 3, column 4)` or `(at end of document)`."""
    _, marker, tail = message.partition("at line ")
    return int(tail.split(",")[0]) if marker else 1
