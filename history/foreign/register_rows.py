"""Collects the operations on registers of a foreign history as rows of the schema REGISTERS."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from history.foreign.events import ForeignOperation
from history.foreign.history import INITIAL_PROCESS, INITIAL_TIMES, ForeignError, ForeignHistory, alike_keys
from history.foreign.numbered_texts import NumberedTexts
from history.foreign.operation_files import OperationFiles
from history.record.schemas import CAS, FAIL, INFO, MISMATCH, OK, PHASE_MAIN, READ, REGISTERS, WRITE
from history.record.shapes import REGISTER

OBJECT_ROWS: Final = 1 << 14
"""The most rows that are objects of Python at once."""
F_OF: dict[str, int] = {"read": READ, "write": WRITE, "cas": CAS}


def initial_write(number: int, key: str, value: int | None = None) -> tuple[object, ...]:
    """The row of the write that gives a register its initial value; `number`: of the key."""
    return (
        *(INITIAL_PROCESS << 32 | number, INITIAL_PROCESS, "initial value", WRITE, key, OK),
        *(*INITIAL_TIMES, value, None, None, PHASE_MAIN, "", ""),
    )


class RegisterRows:
    """The rows of one file, written below a directory. Values are texts, which get numbers; None is nil. `initial`:
    what each register holds at the start."""

    def __init__(self, path: Path, directory: Path, *, initial: str | None = None) -> None:
        self._path = path
        self._initial = initial
        self._keys: set[str] = set()
        self._values = NumberedTexts(directory)
        self._counts: Counter[int] = Counter()
        self._rows: list[tuple[object, ...]] = []
        self._texts: list[str | None] = []
        self._files = OperationFiles(directory, REGISTER)

    def add(
        self,
        operation: ForeignOperation,
        key: str,
        value: str | None,
        expected: str | None = None,
        *,
        is_mismatch: bool = False,
    ) -> None:
        """One operation. `value`: read or written, or the new value of a cas; `is_mismatch`: of a failed cas, whether
        the register answered that it holds another value than `expected`. Raises ForeignError for a write of nil."""
        f, outcome = F_OF[operation.f], operation.outcome
        if f == READ and outcome == INFO:  # a read without an answer proves nothing
            return
        if f != READ and value is None:
            raise ForeignError(self._path, operation.line, f"{operation.f} of nil: only values can be written")
        error = operation.error
        if outcome == FAIL:
            error = MISMATCH if is_mismatch else error or "failed"
        number = operation.process << 32 | self._counts[operation.process]
        self._counts[operation.process] += 1
        self._texts += value, expected
        self._keys.add(key)
        self._rows.append(
            (
                *(number, operation.process, f"process {operation.process}", f, key, outcome),
                *(operation.inv, operation.ret, None, None, None, PHASE_MAIN, "" if outcome == OK else error, ""),
            )
        )
        if len(self._rows) >= OBJECT_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Writes the operations that are objects, with the numbers of their values."""
        if self._rows:
            rows = REGISTER.table(self._rows)
            values, expected = self._values.places(self._texts).reshape(-1, 2).T
            is_cas = rows["f"].to_numpy() == CAS
            columns = {"value": (values, ~is_cas), "expected": (expected, is_cas), "new": (values, is_cas)}
            for name, (numbers, is_there) in columns.items():
                column = pa.array(numbers, mask=~is_there | (numbers == 0))
                rows = rows.set_column(REGISTERS.get_field_index(name), REGISTERS.field(name), column)
            self._files.add(rows)
        self._rows, self._texts = [], []

    def history(self, *not_judged: str, doubts: Sequence[str] = ()) -> ForeignHistory:
        """All rows. Raises ForeignError without one."""
        if self._initial is not None:
            for number, key in enumerate(sorted(self._keys)):
                self._rows.append(initial_write(number, key))
                self._texts += self._initial, None
        self._flush()
        history = self._files.history(self._values.texts(), (*not_judged, *alike_keys(sorted(self._keys))), doubts)
        if not history.rows:
            raise ForeignError(
                self._path, 0, "has no operation that can be judged; name the history of a test that ran"
            )
        return history
