"""A foreign history in the form that the checkers take, and the error of reading one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

LOG: Final = "log"
REGISTER: Final = "register"


class ForeignError(Exception):
    """A file is not a history of its format; the message names the file, the line if there is one, and the remedy."""

    def __init__(self, path: Path | str, line: int, what: str) -> None:
        super().__init__(f"{path}{f':{line}' if line else ''}: {what}")


@dataclass(frozen=True)
class ForeignHistory:
    """`operations` has the schema OPERATIONS (model `log`) or REGISTERS (model `register`).

    `names`: the text in the file of each value that was renumbered. `not_judged`: what the format records, or a user
    may expect, and the checkers do not examine, as phrases. `doubts`: why no pass can be concluded, as sentences.
    """

    model: str
    operations: pa.Table
    names: Mapping[int, str] = field(default_factory=dict)
    not_judged: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class NamesOfNumbers(Mapping[int, str]):
    """The texts of renumbered values by number: those of `values` have the numbers 1, 2, ... times `step`. Texts are
    made when they are asked for."""

    def __init__(self, values: Sequence[str] | npt.NDArray[np.int64], step: int) -> None:
        self._values = values
        self._step = step

    def __getitem__(self, number: int) -> str:
        place, rest = divmod(number, self._step)
        if rest or not 1 <= place <= len(self._values):
            raise KeyError(number)
        return str(self._values[place - 1])

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._step, (len(self._values) + 1) * self._step, self._step))

    def __len__(self) -> int:
        return len(self._values)


class Numbers:
    """Gives each distinct text a number, 1, 2, ... times `step`, in order of appearance."""

    def __init__(self, step: int = 1) -> None:
        self._step = step
        self._numbers: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self._numbers.setdefault(text, (len(self._numbers) + 1) * self._step)

    @property
    def names(self) -> Mapping[int, str]:
        return NamesOfNumbers(list(self._numbers), self._step)


OWN_PRODUCER: Final = 1 << 32
"""The step of the numbers of log values: each is the only value of its producer, so that no order is required of values
beyond real time (`history.values`)."""
