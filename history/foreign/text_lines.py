"""Reads the lines of a text file one after another, without holding the file in memory."""

import codecs
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from history.foreign.history import ForeignError
from history.regular_files import open_regular

LONGEST: Final = 1 << 24
"""Bytes of the longest line that is read."""


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The number and the text of each line, without its end and without a mark of the byte order at the file's start.
    Raises ForeignError, also if the file cannot be read."""
    try:
        with io.BufferedReader(open_regular(path), 1 << 20) as file:
            number = 0
            while line := file.readline(LONGEST + 1):
                number += 1
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if len(line) > LONGEST:
                    raise ForeignError(path, number, f"the line is longer than {LONGEST >> 20} MiB: one event per line")
                yield number, _decoded(path, number, line).rstrip("\r\n")
    except OSError as error:
        raise ForeignError(path, 0, f"cannot be read: {error.strerror}; name a regular file") from error


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ForeignError(path, number, "is not text in UTF-8; name a history, or another --format") from error
