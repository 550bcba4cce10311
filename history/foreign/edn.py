"""Reads the forms of an EDN file one after another, and compares forms by EDN's rules.

A file is a sequence of forms, or one vector or list of them, as Knossos writes its histories. A form may span lines.
Two forms are equal if `text_of` gives both the same text: the order of maps and sets does not count, a list equals a
vector with the same elements, and `1`, `1.0`, `"1"`, `:1` and `true` are different (github.com/edn-format/edn).

Theory of operation. The reader takes the tokens of a line with one regular expression, and puts open collections on a
stack, so that the depth of a form does not use the stack of Python.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from history.foreign.history import ForeignError
from history.foreign.text_lines import LONGEST, lines_of
from history.strict_json import decode

_DEEPEST: Final = 200
_TOKEN: Final = re.compile(
    r'[\s,]*(?:;.*|("(?:[^"\\]|\\.)*"?|#\{|#_|#?[^\s,;"()\[\]{}#\\][^\s,;"()\[\]{}\\]*|##-?\w+|\\(?:\w+|.)|[()\[\]{}]|.))?',
    re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?(?:0|[1-9]\d*)N?", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?M?", re.ASCII)
_RATIO: Final = re.compile(r"[+-]?\d+/\d+", re.ASCII)
_SYMBOL: Final = re.compile(r"/|[^\W\d][^\s\\]*|[.*+!\-_?$%&=<>|][^\s\\]*")
_CHARACTERS: Final = {"newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f", "backspace": "\b"}
_ESCAPES: Final = {number: f"\\u{number:04x}" for number in range(0x20)}
_NAMES: Final = {character: name for name, character in _CHARACTERS.items()}
_CLOSES: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_NUMBER: Final = "0|-?[1-9][0-9]{0,17}"
_PLAIN_ENTRY: Final = re.compile(f"(:[a-z]+|{_NUMBER}) ({_NUMBER})")
_PLAIN_MAP: Final = re.compile(rf"\{{(?:{_PLAIN_ENTRY.pattern}(?:, |(?=\}})))*\}}")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_CONSTANTS: Final = {"nil": None, "true": True, "false": False}


@dataclass(frozen=True)
class Keyword:
    """`:name`; `name` has no colon."""

    name: str


@dataclass(frozen=True)
class Atom:
    """A symbol, a character or a number other than an integer, as the text that equal ones share."""

    text: str


@dataclass(frozen=True)
class Tagged:
    """`#tag form`."""

    tag: str
    form: Any


@dataclass(frozen=True)
class FormSet:
    """A set: its elements by their text."""

    elements: dict[str, Any]


@dataclass(frozen=True)
class FormMap:
    """A map: its keys and values by the text of the key."""

    entries: dict[str, tuple[Any, Any]]

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self.entries.values()


def forms_of(path: Path, line_form: Callable[[str], Any] | None = None) -> Iterator[tuple[int, Any]]:
    """The number of the line where each form starts, and the form: None, a bool, an int, a str, a list, or a class of
    this module. `line_form`: a faster reader of a line that is one form; it gives None for any other line. Raises
    ForeignError."""
    reader = _Reader(path)
    for number, line in lines_of(path):
        form = line_form(line) if line_form is not None and reader.is_between_forms else None
        if form is None:
            yield from reader.read(number, line)
        else:
            yield number, form
    reader.end()


def form_of(text: str) -> Any:
    """The one form in a text. Raises ForeignError."""
    if text == "nil" or (plain := plain_map(text)) is not None:
        return None if text == "nil" else plain
    reader = _Reader(text, is_file=False)
    forms = [form for number, line in enumerate(text.split("\n"), 1) for _, form in reader.read(number, line)]
    reader.end()
    if len(forms) != 1:
        raise ForeignError(text, 0, f"has {len(forms)} forms: one is needed")
    return forms[0]


def plain_map(text: str) -> FormMap | None:
    """A map of keywords or integers to integers; None for any other text."""
    if not _PLAIN_MAP.fullmatch(text):
        return None
    pairs = _PLAIN_ENTRY.findall(text)
    entries = {key: (Keyword(key[1:]) if key[0] == ":" else int(key), int(value)) for key, value in pairs}
    return FormMap(entries) if len(entries) == len(pairs) else None


def text_of(form: Any) -> str:
    """A form as EDN; equal forms have the same text."""
    if type(form) is int:
        return str(form)
    if isinstance(form, list):
        return f"[{' '.join(map(text_of, form))}]"
    if isinstance(form, FormMap):
        return f"{{{', '.join(f'{key} {text_of(value)}' for key, (_, value) in sorted(form.entries.items()))}}}"
    if isinstance(form, FormSet):
        return f"#{{{' '.join(sorted(form.elements))}}}"
    if isinstance(form, Tagged):
        return f"#{form.tag} {text_of(form.form)}"
    if isinstance(form, str):
        return json.dumps(form, ensure_ascii=False)
    if isinstance(form, Keyword):
        return f":{form.name}"
    if isinstance(form, Atom):
        return form.text
    return "nil" if form is None else str(form).lower()


def form_of_json(value: Any) -> Any:
    """A value of JSON as a form of EDN. Raises ValueError for half a character, which JSON can express."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, list):
        return [form_of_json(element) for element in value]
    if isinstance(value, dict):
        keys = [int(key) if re.fullmatch("0|-?[1-9][0-9]*", key) else _whole(key) for key in value]
        pairs = zip(keys, value.values(), strict=True)
        return FormMap({text_of(key): (key, form_of_json(element)) for key, element in pairs})
    return Atom(repr(value)) if isinstance(value, float) else value


class _Reader:
    """Takes the lines of one source. `is_file`: a vector or list around all forms is not a form itself."""

    def __init__(self, source: Path | str, *, is_file: bool = True) -> None:
        self._source = source
        self._is_file = is_file
        self._open: list[tuple[str, list[Any]]] = []
        """Open collections, tags and discards (`#_`): the token, and the forms in it."""
        self._start = 0
        self._length = 0
        self._text: tuple[int, str] | None = None
        """The line where an open string starts, and the text from there on."""

    def read(self, number: int, line: str) -> Iterator[tuple[int, Any]]:
        """The forms that end in this line."""
        if self._text is not None:
            number, line = self._text[0], f"{self._text[1]}\n{line}"
            self._text = None
        self._length += len(line)
        if self._length > LONGEST:
            raise ForeignError(self._source, self._start or number, f"a form is longer than {LONGEST >> 20} MiB")
        at = 0
        while at < len(line):
            match = _TOKEN.match(line, at)
            if match is None or match.end() == at:
                break
            at, token = match.end(), match[1]
            if token is None:
                continue
            if token[0] == '"' and (len(token) == 1 or not _is_closed(token)):
                self._text = (number, token)
                self._start = self._start or number
                return
            try:
                yield from self._take(number, token)
            except ValueError as error:
                raise ForeignError(self._source, number, f"is not EDN ({error})") from error

    @property
    def is_between_forms(self) -> bool:
        """Whether nothing is open: the next line starts with a form of its own."""
        return self._text is None and not self._open

    def end(self) -> None:
        """Raises ForeignError if a form is not complete."""
        if self._text is not None or self._open:
            raise ForeignError(self._source, self._start, "is not EDN (the form that starts here does not end)")

    def _take(self, number: int, token: str) -> Iterator[tuple[int, Any]]:
        if not self._open or (len(self._open) == 1 and self._is_whole_file()):
            self._start, self._length = number, 0
        if token in _CLOSES or token == "#_" or (token[0] == "#" and not token.startswith("##")):
            if len(self._open) >= _DEEPEST:
                raise ValueError(f"a value is nested too deep: at most {_DEEPEST} levels")
            self._open.append((token, []))
            return
        if token not in ("]", ")", "}"):
            yield from self._add(_atom(token))
            return
        opened, forms = self._open.pop() if self._open else ("", [])
        if _CLOSES.get(opened) != token:
            raise ValueError(f"{token} closes what {opened or 'nothing'} opened")
        if self._open or not self._is_file or opened not in ("[", "("):
            yield from self._add(_collection(opened, forms))

    def _add(self, form: Any) -> Iterator[tuple[int, Any]]:
        """Puts a whole form into the collection around it, or yields it if that is the file."""
        while self._open and self._open[-1][0][0] == "#" and self._open[-1][0] != "#{":
            tag = self._open.pop()[0]
            if tag == "#_":
                return
            form = _tagged(tag[1:], form)
        if not self._open or (len(self._open) == 1 and self._is_whole_file()):
            yield self._start, form
        else:
            self._open[-1][1].append(form)

    def _is_whole_file(self) -> bool:
        return self._is_file and self._open[0][0] in ("[", "(")


def _is_closed(token: str) -> bool:
    """Whether a string's last quotation mark is not escaped."""
    return token[-1] == '"' and (len(token) - 1 - len(token[:-1].rstrip("\\"))) % 2 == 0


def _collection(opened: str, forms: list[Any]) -> Any:
    if opened in ("[", "("):
        return forms
    if opened == "#{":
        elements = {text_of(form): form for form in forms}
        if len(elements) != len(forms):
            raise ValueError("a set has an element twice")
        return FormSet(elements)
    if len(forms) % 2:
        raise ValueError("a map has a key without a value")
    entries = {text_of(key): (key, value) for key, value in zip(forms[::2], forms[1::2], strict=True)}
    if 2 * len(entries) != len(forms):
        raise ValueError("a map has a key twice")
    return FormMap(entries)


def _tagged(tag: str, form: Any) -> Any:
    if not tag.startswith(":"):
        return Tagged(tag, form)
    if not isinstance(form, FormMap):  # #:a{:b 1} is {:a/b 1}
        raise ValueError(f"the namespace {tag} stands before something other than a map")
    forms = [element for key, value in form.items() for element in (_in_namespace(tag[1:], key), value)]
    return _collection("{", forms)


def _in_namespace(name: str, key: Any) -> Any:
    if not isinstance(key, Keyword) or key.name.startswith("_/"):
        return Keyword(key.name[2:]) if isinstance(key, Keyword) else key
    return key if "/" in key.name else Keyword(f"{name}/{key.name}")


def _atom(token: str) -> Any:
    if token[0] == '"':
        return _string(token)
    if token[0] == ":" and len(token) > 1:
        return Keyword(token[1:])
    if token in _CONSTANTS:
        return _CONSTANTS[token]
    if _INTEGER.fullmatch(token):
        return int(token.removesuffix("N"))
    if token[0] == "\\" and len(token) > 1:
        character = _CHARACTERS.get(token[1:]) or _character(token[1:])
        return Atom(f"\\{_NAMES.get(character, character)}")
    if _FLOAT.fullmatch(token):
        number = f"{Decimal(token[:-1])}M" if token[-1] == "M" else repr(float(token) + 0.0)
        return Atom(number)
    if _RATIO.fullmatch(token) or _SYMBOL.fullmatch(token) or token in ("##NaN", "##Inf", "##-Inf"):
        return Atom(token)
    raise ValueError(f"{token[:40]!r} is not a form")


def _character(name: str) -> str:
    if len(name) == 1:
        return name
    if re.fullmatch(r"u[0-9a-fA-F]{4}", name):
        return _whole(chr(int(name[1:], 16)))
    raise ValueError(f"\\{name[:40]} is not a character")


def _string(token: str) -> str:
    return _whole(decode(token.translate(_ESCAPES)) if "\\" in token else token[1:-1])


def _whole(text: str) -> str:
    """Raises ValueError for half a character, which no file can hold."""
    if _SURROGATE.search(text):
        raise ValueError("it has an escape in \\ud800 .. \\udfff: write the character itself in UTF-8")
    return text
