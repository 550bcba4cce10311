"""Reads a history of a sequential model from Jepsen's EDN: operations of any name on objects with keys.

The key of an operation is its `:key`, as in Porcupine's key-value logs, or the first element of its value, as
`jepsen.independent` writes it, or there is one object. The operations are written below a directory:

    operations.parquet   `MODEL_OPERATIONS`, in the order of their completions; arguments and answers are EDN

An operation of type `fail` did not happen. One of type `info`, or without a completion, may have happened.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from history.foreign.edn import text_of
from history.foreign.events import ForeignOperation, TimeOrder, operations_of
from history.foreign.history import ForeignError, ForeignHistory
from history.foreign.jepsen_edn import contradiction, is_error, is_pair
from history.foreign.jepsen_events import KeyedValue, events_of
from history.foreign.kinds import EDN
from history.foreign.operation_files import OPERATIONS_FILE, PART_ROWS
from history.record.schemas import OK

MODEL_OPERATIONS: Final = pa.schema(
    [
        *(("id", pa.int64()), ("line", pa.int64()), ("process", pa.int64()), ("f", pa.string())),
        *(("type", pa.int8()), ("inv", pa.int64()), ("ret", pa.int64())),
        *(("key", pa.string()), ("argument", pa.string()), ("answer", pa.string()), ("error", pa.string())),
    ]
)
"""One operation. `id`: its number in the history, from 0; `key`: empty if there is one object; `answer`: of operations
of type `ok`."""

Values = Callable[..., tuple[Hashable, Hashable]]
"""`Model.values`: raises ValueError for an argument or an answer that the model does not have."""


class ModelRows:
    """The rows of the operations of one file. `is_keyed`: whether each value is `[KEY VALUE]`; None: as the first
    operation has it."""

    def __init__(self, path: Path, functions: Mapping[str, bool], values: Values, *, is_keyed: bool | None) -> None:
        self._path = path
        self._functions = functions
        self._values = values
        self._is_keyed = is_keyed
        self._is_guessed = is_keyed is None
        self._answer_without_outcome = 0
        """The line of the first completion that is not ok and has an answer; 0 without one."""

    @property
    def not_judged(self) -> tuple[str, ...]:
        """What the values do not say, as a phrase."""
        is_open = self._is_guessed and self._is_keyed
        return ("whether pairs are [KEY VALUE] (--independent), as assumed",) if is_open else ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why no pass can be concluded, as a sentence."""
        if not self._answer_without_outcome:
            return ()
        line = self._answer_without_outcome
        return (f"line {line} has an answer, but its type is not ok: what such an operation showed is not judged",)

    def rows(self, operations: Iterator[ForeignOperation]) -> Iterator[tuple[Any, ...]]:
        """The rows of `MODEL_OPERATIONS`. Raises ForeignError for an operation that contradicts itself, or that the
        model does not have."""
        for number, operation in enumerate(operations):
            key, argument = self._key_and_value(operation, operation.line, operation.asked)
            answer = operation.answer
            if operation.outcome == OK or not is_error(answer):
                answered_key, answer = self._key_and_value(operation, operation.completed_in, answer)
                if answered_key != key:
                    raise contradiction(self._path, operation, operation.answer, operation.asked)
            is_answered = operation.outcome == OK
            is_silent = answer is None or (not is_answered and is_error(answer))
            if not is_silent and text_of(answer) != text_of(argument):
                if not self._functions[operation.f]:
                    raise contradiction(self._path, operation, answer, argument)
                if not is_answered:
                    self._answer_without_outcome = self._answer_without_outcome or operation.completed_in
            try:
                self._values(operation.f, argument, answer, is_answered=is_answered)
            except ValueError as error:
                raise ForeignError(self._path, operation.completed_in or operation.line, str(error)) from error
            of_operation = number, operation.line, operation.process, operation.f, operation.outcome
            texts = key, text_of(argument), text_of(answer) if is_answered else None, operation.error
            yield (*of_operation, operation.inv, operation.ret, *texts)

    def _key_and_value(self, operation: ForeignOperation, line: int, form: Any) -> tuple[str, Any]:
        if isinstance(form, KeyedValue):
            return text_of(form.key), form.value
        if self._is_keyed is None:
            self._is_keyed = is_pair(form) and not isinstance(form[0], list)
        if not self._is_keyed:
            return "", form
        if not is_pair(form):
            problem = f"the value of {operation.f} is {text_of(form)}, but values are taken as [KEY VALUE]"
            raise ForeignError(self._path, line, f"{problem}; if pairs are values, say --no-independent")
        return text_of(form[0]), form[1]


def read_model(
    path: Path,
    directory: Path,
    model: str,
    functions: Mapping[str, bool],
    values: Values,
    *,
    independent: bool | None = None,
    initial: Hashable = None,
    notation: str = EDN,
) -> ForeignHistory:
    """The history in a file, written below a directory. `functions`: of the model, and whether the completion of each
    has an answer of its own. Raises ForeignError."""
    order = TimeOrder()
    rows = ModelRows(path, functions, values, is_keyed=independent)
    waiting: list[tuple[Any, ...]] = []
    count, start, is_answered = 0, None, False
    with pq.ParquetWriter(directory / OPERATIONS_FILE, MODEL_OPERATIONS, compression="zstd") as writer:
        for row in rows.rows(operations_of(path, events_of(path, functions, model, notation=notation), order)):
            waiting.append(row)
            count += 1
            start = row[5] if start is None else min(start, row[5])
            is_answered |= row[4] == OK
            if len(waiting) == PART_ROWS:
                writer.write_table(_table(waiting))
                waiting = []
        writer.write_table(_table(waiting))
    if not count:
        raise ForeignError(path, 0, "has no operation of a client; name the history.edn of a test that ran")
    described = rows.not_judged, (*order.doubts(), *rows.doubts), initial
    return ForeignHistory(model, directory, count, start or 0, is_answered, {}, *described)


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(MODEL_OPERATIONS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, MODEL_OPERATIONS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=MODEL_OPERATIONS)
