"""Lists the files that a client process left in `history/operations`, with their size and digest at its end."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from history.checksummed_lines import LineReader
from history.regular_files import size_and_digest

STREAM: Final = ".arrows"
RESERVED: Final = ".reserved"
REGISTER_STREAM: Final = ".registers"
INVOKED: Final = ".invoked"
LINES: Final = ".jsonl"

_RECORD: Final = re.compile(r".+-\d+(?:(?:\.[1-9]\d*)?\.(?:arrows|registers)|\.(?:reserved|invoked))")
_SEGMENT: Final = re.compile(r"(?P<stem>.+-\d+)\.(?P<number>[1-9]\d{0,8})")
_ELSEWHERE: Final = re.compile(r"(?P<client>.+?)(?:-\d+)?\.jsonl")


@dataclass(frozen=True)
class ClientFiles:
    """`files`: by name, each with its size in `bytes` and its `sha256`. `operations`: the number of each kind that the
    client stated when it closed its record; None if it did not close it."""

    files: dict[str, dict[str, Any]]
    operations: dict[str, int] | None


def left_by(directory: Path, client: str) -> ClientFiles:
    """The files of an ended client in a directory."""
    paths = [path for path in sorted(directory.glob("*")) if belongs(path.name, client)]
    counts: Counter[str] = Counter()
    closed = [closing_counts(path) for path in paths if path.suffix in (RESERVED, INVOKED)]
    for each in closed:
        counts.update(each or {})
    return ClientFiles(
        files={path.name: size_and_digest(path) for path in paths},
        operations=dict(counts) if closed and None not in closed else None,
    )


def closing_counts(announced: Path) -> dict[str, int] | None:
    """The numbers of operations in the last line of a client's announcements; None if it is another kind of line."""
    last = deque(LineReader(announced).contents(), maxlen=1)
    counts = last[0][1].get("closed") if last else None
    return counts if is_counts(counts) else None


def is_counts(counts: object) -> bool:
    return isinstance(counts, dict) and all(type(count) is int and count >= 0 for count in counts.values())


def segment_of(stream: str) -> tuple[str, int]:
    """The recording that a stream's file belongs to, as the name of its segment 0, and the segment's number."""
    name = Path(stream)
    found = _SEGMENT.fullmatch(name.stem)
    return (found["stem"] + name.suffix, int(found["number"])) if found else (stream, 0)


def belongs(name: str, client: str) -> bool:
    """Whether a file belongs to this client's record."""
    if name == client + LINES:
        return True
    return any(form.fullmatch(name) and _rest(name, client) for form in (_RECORD, _ELSEWHERE))


def owner(name: str, clients: Iterable[str]) -> str | None:
    """The client that a file belongs to; the one with the longest name if several match."""
    return max((client for client in clients if belongs(name, client)), key=len, default=None)


def _rest(name: str, client: str) -> bool:
    return name.startswith(client + "-") and name[len(client) + 1 :].partition(".")[0].isdigit()
