"""A foreign history in the form that the checkers take, and the error of reading one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LOG: Final = "log"
REGISTER: Final = "register"


class ForeignError(Exception):
    """A file is not a history of its format; the message names the file, the line if there is one, and the remedy."""

    def __init__(self, path: Path | str, line: int, what: str) -> None:
        super().__init__(f"{path}{f':{line}' if line else ''}: {what}")


@dataclass(frozen=True)
class ForeignHistory:
    """`directory`: where the operations are (`history.foreign.operation_files`), `rows` of them. `start`: the earliest
    invocation. `is_answered`: whether the outcome of an operation is known.

    `names`: the text in the file of each value that was renumbered. `not_judged`: what the format records, or a user
    may expect, and the checkers do not examine, as phrases. `doubts`: why no pass can be concluded, as sentences.
    """

    model: str
    directory: Path
    rows: int
    start: int
    is_answered: bool
    names: Mapping[int, str] = field(default_factory=dict)
    not_judged: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


OWN_PRODUCER: Final = 1 << 32
"""The step of the numbers of log values: each is the only value of its producer, so that no order is required of values
beyond real time (`history.values`)."""
