"""Lists the files that a client process left in `history/operations`, with their size and digest at its end."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from history.regular_files import size_and_digest

LINES: Final = ".jsonl"

_RECORD: Final = re.compile(r".+-\d+(?:(?:\.[1-9]\d*)?\.(?:arrows|registers|calls)|\.(?:reserved|invoked|called))")
_SEGMENT: Final = re.compile(r"(?P<stem>.+-\d+)\.(?P<number>[1-9]\d{0,8})")
_ELSEWHERE: Final = re.compile(r"(?P<client>.+?)(?:-\d+)?\.jsonl")


def left_by(directory: Path, client: str) -> dict[str, dict[str, Any]]:
    """The files of an ended client in a directory, by name, each with its size in `bytes` and its `sha256`."""
    return {path.name: size_and_digest(path) for path in sorted(directory.glob("*")) if belongs(path.name, client)}


def segment_of(stream: str) -> tuple[str, int]:
    """The recording that a stream's file belongs to, as the name of its segment 0, and the segment's number."""
    name = Path(stream)
    match = _SEGMENT.fullmatch(name.stem)
    return (match["stem"] + name.suffix, int(match["number"])) if match else (stream, 0)


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
