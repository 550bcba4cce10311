"""Collects the operations on registers of a foreign history as rows of the schema REGISTERS."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow as pa

from history.foreign.events import ForeignOperation
from history.foreign.history import REGISTER, ForeignError, ForeignHistory, Numbers
from history.registers import table_of
from history.schemas import CAS, FAIL, INFO, MISMATCH, OK, PHASE_MAIN, READ, WRITE

OBJECT_ROWS: Final = 1 << 14
"""The most rows that are objects of Python at once."""
F_OF: dict[str, int] = {"read": READ, "write": WRITE, "cas": CAS}


class RegisterRows:
    """The rows of one file. Values are texts, which get numbers; None is nil."""

    def __init__(self, path: Path, *, failed_cas_is_mismatch: bool) -> None:
        self._path = path
        self._mismatch = failed_cas_is_mismatch
        self._values = Numbers()
        self._counts: Counter[int] = Counter()
        self._rows: list[tuple[object, ...]] = []
        self._parts: list[pa.Table] = []

    def add(self, operation: ForeignOperation, key: str, value: str | None, expected: str | None = None) -> None:
        """One operation. `value`: read or written, or the new value of a cas. Raises ForeignError for a write of
        nil."""
        f, outcome = F_OF[operation.f], operation.outcome
        if f == READ and outcome == INFO:  # a read without an answer proves nothing
            return
        if f != READ and value is None:
            raise ForeignError(self._path, operation.line, f"{operation.f} of nil: only values can be written")
        error = operation.error
        if outcome == FAIL:
            error = MISMATCH if f == CAS and self._mismatch else error or "failed"
        number = operation.process << 32 | self._counts[operation.process]
        self._counts[operation.process] += 1
        given, wanted = self._number(value), self._number(expected)
        values = (None, wanted, given) if f == CAS else (given, None, None)
        self._rows.append(
            (
                *(number, operation.process, f"process {operation.process}", f, key, outcome),
                *(operation.inv, operation.ret, *values, PHASE_MAIN, "" if outcome == OK else error, ""),
            )
        )
        if len(self._rows) >= OBJECT_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._parts.append(table_of(self._rows))
        self._rows = []

    def _number(self, text: str | None) -> int | None:
        return None if text is None else self._values.of(text)

    def history(self, *not_judged: str) -> ForeignHistory:
        """All rows. Raises ForeignError without one."""
        self._flush()
        if not self._parts:
            raise ForeignError(
                self._path, 0, "has no operation that can be judged; name the history of a test that ran"
            )
        rows = pa.concat_tables(self._parts).unify_dictionaries().combine_chunks()
        return ForeignHistory(REGISTER, rows, self._values.names, not_judged)
