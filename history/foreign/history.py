"""A foreign history in the form that the checkers take, and the error of reading one."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final


class ForeignError(Exception):
    """A file is not a history of its format; the message names the file, the line if there is one, and the remedy."""

    def __init__(self, path: Path | str, line: int, problem: str) -> None:
        super().__init__(f"{path}{f':{line}' if line else ''}: {problem}")


@dataclass(frozen=True)
class ForeignHistory:
    """`directory`: where the operations are (`history.foreign.operation_files`), `rows` of them. `start`: the earliest
    invocation. `is_answered`: whether an operation certainly happened; of one that failed nothing is known.

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
    initial: Hashable = None
    """The state of each object at the start, if the model is one of `analysis.core.models`."""
    time_doubts: tuple[str, ...] = ()
    """Doubts of transactions that count only if their model has an order of processes or of real time."""


def alike_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """What is not judged of keys that differ in their type only: a client may have changed it."""
    by_name: dict[str, list[str]] = {}
    for key in keys:
        by_name.setdefault(key.strip('":'), []).append(key)
    return tuple(f"whether {' and '.join(same)} are one key: they differ" for same in by_name.values() if len(same) > 1)


INITIAL_PROCESS: Final = 1 << 30
"""Behind all numbers of processes: the one that writes the initial value of each register, if one is stated."""
INITIAL_TIMES: Final = (0, 1)
"""The invocation and the return of these writes, in ns: before all other operations."""

OWN_PRODUCER: Final = 1 << 32
"""The step of the numbers of log values: each is the only value of its producer, so that no order is required of values
beyond real time (`history.record.values`)."""
