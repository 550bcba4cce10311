"""Finds the line of each key in a TOML file; `tomllib` does not report lines, which error messages need.

The scanner below expects text that `tomllib` has accepted. It understands just enough of TOML to find every key:
headers, dotted and quoted keys, strings of all four kinds, arrays over several lines and inline tables.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""+|' r"'''.*?'''+|" r'"(?:\\.|[^"\\\n])*"|' r"'[^'\n]*'",
    re.DOTALL,
)
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


def key_lines(text: str) -> dict[Path, int]:
    """Map each key's path to its line (from 1). The n-th table of an array of tables has the index n in its path."""
    return _Scanner(text).scan()


class _Scanner:
    """One pass over the text; `position` only moves forward."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.lines: dict[Path, int] = {}
        self.array_lengths: dict[Path, int] = {}

    def scan(self) -> dict[Path, int]:
        table: Path = ()
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

    def _header(self) -> Path:
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

    def _through_arrays(self, keys: Path) -> Path:
        """A header's parents that are arrays of tables stand for their last table."""
        path: Path = ()
        for key in keys:
            path = (*path, key)
            if path in self.array_lengths:
                path = (*path, self.array_lengths[path] - 1)
        return path

    def _dotted_key(self) -> Path:
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

    def _key_and_value(self, table: Path) -> None:
        line = self._line()
        keys = self._dotted_key()
        path: Path = table
        for key in keys:
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._skip_space()
        self.position += 1  # the equals sign
        self._value(path)

    def _value(self, path: Path) -> None:
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

    def _collection(self, closing: str, path: Path) -> None:
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
