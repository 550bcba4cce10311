"""Collects the operations on registers of a foreign history as rows of the schema REGISTERS."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from history.foreign.events import ForeignOperation
from history.foreign.history import REGISTER, ForeignError, ForeignHistory, Numbers
from history.registers import table_of
from history.schemas import CAS, FAIL, INFO, MISMATCH, OK, PHASE_MAIN, READ, WRITE

F_OF: dict[str, int] = {"read": READ, "write": WRITE, "cas": CAS}


class RegisterRows:
    """The rows of one file. Values are texts, which get numbers; None is nil."""

    def __init__(self, path: Path, *, failed_cas_is_mismatch: bool) -> None:
        self._path = path
        self._mismatch = failed_cas_is_mismatch
        self._values = Numbers()
        self._counts: Counter[int] = Counter()
        self._rows: list[tuple[object, ...]] = []

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

    def _number(self, text: str | None) -> int | None:
        return None if text is None else self._values.of(text)

    def history(self, *not_judged: str) -> ForeignHistory:
        """All rows. Raises ForeignError without one."""
        if not self._rows:
            raise ForeignError(
                self._path, 0, "has no operation that can be judged; name the history of a test that ran"
            )
        return ForeignHistory(REGISTER, table_of(self._rows), self._values.names, not_judged)
