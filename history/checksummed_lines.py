"""JSON lines with a number and a checksum each, so that a reader detects lost, moved and changed lines.

`{..., "n": 7, "crc": 123}`: `n` counts the file's lines from 1, `crc` is the CRC-32 of the line's text before it. Each
line is one write, so a killed writer tears at most the last line.

Reserves disk space after the end of a file, for this file only.

The journal must be able to record that the disk is full. `fallocate` with FALLOC_FL_KEEP_SIZE gives a file blocks after
its end without changing its size; a later write there needs no free space. No other process can take them.
"""

import contextlib
import ctypes
import errno
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from history.regular_files import open_regular, read_bytes
from history.strict_json import decode

_KEEP_SIZE: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Reserve:
    """Keeps space for one open file that only grows. `size`: bytes; they are reserved again whenever half are used.

    `is_short`: the last reservation failed for lack of space. A filesystem without reservation is not short: the file
    continues without it.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._kept_to = 0
        self.is_short = False

    def before_write(self, end: int) -> None:
        """Reserve space when less than half of it is left after `end`, the file's end after the next write."""
        if end + self._size // 2 > self._kept_to:
            self._keep(end)

    def release(self) -> None:
        """Give back what is reserved after the file's end."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size)

    def _keep(self, end: int) -> None:
        to = end + self._size
        done = _libc.fallocate(self._descriptor, _KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(to)) == 0
        self.is_short = not done and ctypes.get_errno() in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if done or not self.is_short:
            self._kept_to = to


NUMBER: Final = "n"
CHECKSUM: Final = "crc"
_AT_ONCE: Final = 1 << 20
"""Bytes that are read at once."""

_CHECKED: Final = re.compile(rb'(?P<text>\{.*), "crc": (?P<crc>[0-9]{1,10})\}')


def line_of(content: Mapping[str, Any], number: int) -> bytes:
    """A line with its final newline. Values that JSON does not have are written as text."""
    text = json.dumps({**content, NUMBER: number}, default=str)[:-1].encode()
    return text + f', "{CHECKSUM}": {zlib.crc32(text)}}}\n'.encode()


def text_of(contents: Iterable[Mapping[str, Any]]) -> bytes:
    """A whole file of these lines."""
    return b"".join(line_of(content, number) for number, content in enumerate(contents, 1))


class LineWriter:
    """Appends lines to a file. Not safe to use from several threads: its owner locks."""

    def __init__(self, path: Path, *, continues: bool = False, reserve: int = 0) -> None:
        """Creates the file; with `continues`, appends to an existing one. `reserve`: bytes of disk space that are kept
        for further lines. Raises FileExistsError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if continues else os.O_EXCL)
        self._file = os.open(path, flags, 0o644)
        old_content = read_bytes(path)
        self.lines = old_content.count(b"\n")
        self._end = len(old_content)
        self._reserve = Reserve(self._file, reserve) if reserve else None
        if old_content and not old_content.endswith(b"\n"):  # the next line must not continue the torn one
            self._append(b"\n")
            self.lines += 1

    @property
    def closed(self) -> bool:
        return self._file < 0

    @property
    def has_room(self) -> bool:
        """Whether space could be kept for further lines; true if no space is to be kept."""
        return self._reserve is None or not self._reserve.is_short

    def write(self, content: Mapping[str, Any]) -> None:
        """Raises OSError; a partially written line is then torn."""
        self.lines += 1
        self._append(line_of(content, self.lines))

    def _append(self, text: bytes) -> None:
        self._end += len(text)
        if self._reserve is not None:
            self._reserve.before_write(self._end)
        while text:  # a nearly full disk accepts a part, and fails at the next call
            text = text[os.write(self._file, text) :]

    def close(self) -> None:
        """Safe to call twice."""
        if not self.closed:
            if self._reserve is not None:
                self._reserve.release()
            os.close(self._file)
            self._file = -1


@dataclass(frozen=True)
class Lines:
    """The content of a file: each line's object, without number and checksum, with its line number in the file.

    `torn`: the last line was not ended. `defects`: what was lost, changed or moved, as sentences without the file's
    name.
    """

    contents: tuple[tuple[int, dict[str, Any]], ...] = ()
    torn: bool = False
    defects: tuple[str, ...] = ()


def read_lines(path: Path) -> Lines:
    """Every intact line, in the file's order, repeated ones once. Raises OSError."""
    reader = LineReader(path)
    contents = tuple(reader.contents())
    return Lines(contents, reader.is_torn, tuple(reader.defects))


class LineReader:
    """Reads a file line by line, in memory that does not grow with the lines. `is_torn` and `defects` are as in
    `Lines`, and complete when `contents` ends."""

    def __init__(self, path: Path) -> None:
        self.is_torn = False
        self.defects: list[str] = []
        self._path = path
        self._due = 1
        self._unseen: list[range] = []  # the numbers below `_due` that no line had

    def contents(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every intact line, in the file's order, repeated ones once. Raises OSError."""
        with open_regular(self._path) as raw, io.BufferedReader(raw, _AT_ONCE) as file:
            for at, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    self.is_torn = True
                elif (content := self._numbered(at, line[:-1])) is not None:
                    yield at, content

    def _numbered(self, at: int, line: bytes) -> dict[str, Any] | None:
        """The content of a line that was not there before; None without one."""
        content = _content(line)
        if content is None:
            self.defects.append(f"line {at} is damaged")
            self._expect(self._due + 1)
            return None
        number = content.pop(NUMBER)
        if number >= self._due:
            if number > self._due:
                self.defects.append(f"before line {at}, {number - self._due} lines are missing")
            self._expect(number)
            self._due = number + 1
        elif self._is_late(number):
            self.defects.append(f"line {at} is out of order")
        else:
            self.defects.append(f"line {at} is there twice")
            return None
        return content

    def _expect(self, number: int) -> None:
        """No line had the numbers from the expected one up to this one."""
        if number > self._due:
            self._unseen.append(range(self._due, number))
        self._due = number

    def _is_late(self, number: int) -> bool:
        """Whether no line had this number, below the expected one, before."""
        for place, gap in enumerate(self._unseen):
            if number in gap:
                self._unseen[place : place + 1] = [range(gap.start, number), range(number + 1, gap.stop)]
                return True
        return False


def _content(line: bytes) -> dict[str, Any] | None:
    match = _CHECKED.fullmatch(line)
    if match is None or zlib.crc32(match["text"]) != int(match["crc"]):
        return None
    try:
        content = decode(match["text"] + b"}")
    except ValueError:
        return None
    is_numbered = isinstance(content, dict) and type(content.get(NUMBER)) is int and content[NUMBER] > 0
    return content if is_numbered else None
