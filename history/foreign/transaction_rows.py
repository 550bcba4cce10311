"""Reads a history of transactions from Jepsen's events: `list-append` and `rw-register`, as Elle writes them.

The value of an operation is a list of steps: `[:append KEY ELEMENT]` or `[:w KEY VALUE]`, and `[:r KEY ANSWER]`. The
transactions are written below a directory:

    operations.parquet   `TRANSACTIONS`, in the order of their completions
    values.parquet       the text of each key and element that is not an integer of 62 bits

A transaction of type `fail` did not happen. One of type `info`, or without a completion, may have happened; what it
read is unknown.

Theory of operation. Almost every line of a large history is one event whose keys and elements are integers
(`jepsen_events`). A decoder with types takes its steps or refuses them; then the line goes to the reader of EDN. Both
give the same steps.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, starmap
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from history.foreign.edn import Keyword, text_of
from history.foreign.events import ForeignOperation, TimeOrder, operations_of
from history.foreign.history import ForeignError, ForeignHistory, alike_keys
from history.foreign.jepsen_edn import contradiction, is_error
from history.foreign.jepsen_events import events_of
from history.foreign.kinds import EDN
from history.foreign.operation_files import OPERATIONS_FILE, PART_ROWS
from history.record.schemas import INFO, OK
from history.regular_files import require_regular

LIST_APPEND: Final = "list-append"
RW_REGISTER: Final = "rw-register"
WRITES: Final = {LIST_APPEND: "append", RW_REGISTER: "w"}
"""The workloads of transactions, as `--model` takes them, and the name of the step that writes."""
VALUES_FILE: Final = "values.parquet"
LARGEST: Final = 1 << 62
"""Keys and elements of a smaller absolute value are their own number; others get the numbers from -2 * LARGEST on."""

OBJECT_ROWS: Final = 1 << 12
"""The most transactions that are objects of Python at once."""

TRANSACTIONS: Final = pa.schema(
    [
        *(("id", pa.int64()), ("line", pa.int64()), ("process", pa.int64()), ("type", pa.int8())),
        *(("inv", pa.int64()), ("ret", pa.int64()), ("error", pa.string())),
        *(("is_write", pa.list_(pa.bool_())), ("key", pa.list_(pa.int64()))),
        ("elements", pa.list_(pa.list_(pa.int64()))),
    ]
)
"""One transaction; the last three columns have an element for each step. `elements`: what it wrote, or the answer of a
read: a list, or a register's value as a list of one, which is empty for the initial value; null if unknown."""

Step = tuple[str, int | str, Any]
"""`r` or the name of the write; the key; the element, a list of elements or None. Texts are EDN."""

_Integer = Annotated[int, msgspec.Meta(gt=-LARGEST, lt=LARGEST)]
_DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    LIST_APPEND: msgspec.json.Decoder(list[tuple[Literal["a", "r"], _Integer, _Integer | list[_Integer] | None]]),
    RW_REGISTER: msgspec.json.Decoder(list[tuple[Literal["w", "r"], _Integer, _Integer | None]]),
}
TRANSACTIONS_OF: Final = {
    LIST_APPEND: {"txn": True},
    RW_REGISTER: {"txn": True, "read": True, "write": True},
}
"""The operations that are transactions, each with an answer. Jepsen's long-fork calls them reads and writes."""
_UNNAMED: Final = {"f": Keyword("txn"), "process": 0}
"""The fields that Elle's own histories omit: all is one process."""


def _plain_steps(workload: str) -> Callable[[str], list[Step]]:
    """Decodes the steps of a plain line (`jepsen_events`), in which `a` is an append."""
    decode_steps = _DECODERS[workload].decode
    answers = (list, type(None)) if workload == LIST_APPEND else (int, type(None))
    types: dict[str, tuple[type, ...]] = {"r": answers, "a": (int,), "w": (int,)}

    def decode(text: str) -> list[Step]:
        steps: list[Step] = decode_steps(text)
        for f, _, value in steps:
            if type(value) not in types[f]:
                raise ValueError("a write of no integer, or another answer")
        return steps

    return decode


class _Rows:
    """The columns of the transactions of one file."""

    def __init__(self, path: Path, workload: str, initial: int | str | None) -> None:
        self.numbers: dict[str, int] = {}
        self.keys: dict[int | str, None] = {}
        self.answer_without_outcome = 0
        """The line of the first completion of unknown outcome that has an answer; 0 without one."""
        self._path = path
        self._workload = workload
        self._initial = initial

    def table(self, operations: list[tuple[int, ForeignOperation]]) -> pa.Table:
        """The rows of `TRANSACTIONS`. Raises ForeignError for an operation that contradicts itself."""
        steps, elements, ends, element_ends, unknown = [], [], [0], [0], []
        for _, operation in operations:
            for f, key, answer in self._steps_of(operation):
                is_write = f != "r"
                steps.append((is_write, key))
                unknown.append(not is_write and operation.outcome != OK)
                if is_write or (self._workload == RW_REGISTER and answer is not None):
                    elements.append(answer)
                elif not unknown[-1]:
                    elements += answer or ()
                element_ends.append(len(elements))
            ends.append(len(steps))
        of_operation = (
            (number, each.line, each.process, each.outcome, each.inv, each.ret, each.error)
            for number, each in operations
        )
        columns = list(zip(*of_operation, strict=True)) or [()] * 7
        self.keys.update(dict.fromkeys(key for _, key in steps))
        lists = pa.ListArray.from_arrays(
            pa.array(element_ends, pa.int32()), self._numbered(elements), mask=pa.array(unknown, pa.bool_())
        )
        offsets = pa.array(ends, pa.int32())
        of_steps = [
            pa.array([is_write for is_write, _ in steps], pa.bool_()),
            self._numbered([key for _, key in steps]),
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, TRANSACTIONS, strict=False)]
        arrays += [pa.ListArray.from_arrays(offsets, column) for column in (*of_steps, lists)]
        return pa.Table.from_arrays(arrays, schema=TRANSACTIONS)

    def _numbered(self, values: list[int | str]) -> pa.Array:
        if str in set(map(type, values)):
            first = -2 * LARGEST
            values = [
                value if type(value) is int else self.numbers.setdefault(str(value), first + len(self.numbers))
                for value in values
            ]
        return pa.array(np.array(values, np.int64))

    def _steps_of(self, operation: ForeignOperation) -> list[Step]:
        """What the transaction did, or what it was to do if its outcome is not ok."""
        invoked = self._steps(operation, operation.line, operation.asked)
        if operation.outcome != OK:
            if not operation.completed_in or is_error(operation.answer):
                return invoked
            completed = self._steps(operation, operation.completed_in, operation.answer)
            is_silent = all(step[0] != "r" or step[2] is None for step in completed)
            if not is_silent and operation.outcome == INFO:
                self.answer_without_outcome = self.answer_without_outcome or operation.completed_in
        else:
            completed = self._steps(operation, operation.completed_in, operation.answer)
        if len(invoked) != len(completed) or not all(starmap(_is_like, zip(invoked, completed, strict=True))):
            raise contradiction(self._path, operation, _shown(operation.answer), _shown(operation.asked))
        return self._with_initial(completed) if operation.outcome == OK else invoked

    def _steps(self, operation: ForeignOperation, line: int, form: Any) -> list[Step]:
        if isinstance(form, list) and form and type(form[0]) is tuple:
            return self._without_initial_write(line, form)
        if not isinstance(form, list):
            problem = f"the value of {operation.f} is {text_of(form)}: a list of steps [:r KEY VALUE] is needed"
            raise ForeignError(self._path, line, problem)
        return self._without_initial_write(line, [self._step(line, step) for step in form])

    def _without_initial_write(self, line: int, steps: list[Step]) -> list[Step]:
        """The steps. Raises ForeignError if one writes the initial value: a read does not say which of the two it
        shows."""
        if self._initial is not None and any(f != "r" and value == self._initial for f, _, value in steps):
            problem = f"writes {self._initial}, which is the initial value of each register (--initial)"
            raise ForeignError(self._path, line, f"{problem}; an answer does not say which of the two it shows")
        return steps

    def _with_initial(self, steps: list[Step]) -> list[Step]:
        """The steps of a completion, with a read of the initial value as an empty one, and of nil as one of a value
        that nothing wrote."""
        if self._initial is None:
            return steps
        shown = {self._initial: None, None: "nil"}
        return [(f, key, shown.get(value, value) if f == "r" else value) for f, key, value in steps]

    def _step(self, line: int, step: Any) -> Step:
        write = WRITES[self._workload]
        name = step[0].name if isinstance(step, list) and len(step) == 3 and isinstance(step[0], Keyword) else None
        if name not in ("r", write):
            problem = f"{text_of(step)} is not a step of {self._workload}: [:r KEY VALUE] or [:{write} KEY VALUE] is"
            raise ForeignError(self._path, line, f"{problem} needed")
        key, value = step[1], step[2]
        if name == "r" and self._workload == LIST_APPEND:
            if value is not None and not isinstance(value, list):
                raise ForeignError(self._path, line, f"{text_of(step)} read no list: a vector of elements is needed")
            return "r", _plain(key), None if value is None else [_plain(element) for element in value]
        if name != "r" and value is None:
            raise ForeignError(self._path, line, f"{text_of(step)} writes nil, which is the initial state of a key")
        return name, _plain(key), None if value is None else _plain(value)


def _is_like(invoked: Step, completed: Step) -> bool:
    """Whether a step of a completion repeats that of the invocation."""
    is_same = invoked[1] == completed[1] and (invoked[2] == completed[2] or invoked[2] is None)
    return is_same and (invoked[0] == "r") == (completed[0] == "r")


def _plain(form: Any) -> int | str:
    """An integer of 62 bits, or the text of any other form; equal forms are equal."""
    return form if type(form) is int and -LARGEST < form < LARGEST else text_of(form)


def _shown(form: Any) -> Any:
    """Steps as forms of EDN, for a message."""
    return [list(step) if isinstance(step, tuple) else step for step in form] if isinstance(form, list) else form


def read_transactions(
    path: Path, directory: Path, workload: str, *, initial: Any = None, notation: str = EDN
) -> ForeignHistory:
    """The history in a file, written below a directory. `initial`: the form that each register holds at the start.
    Raises ForeignError."""
    order, plain, functions = TimeOrder(), _plain_steps(workload), TRANSACTIONS_OF[workload]
    events = events_of(path, functions, workload, notation=notation, plain=plain, absent=_UNNAMED)
    operations = operations_of(path, events, order)
    history = written_transactions(path, directory, workload, operations, None if initial is None else _plain(initial))
    return replace(history, time_doubts=order.doubts())


def written_transactions(
    path: Path,
    directory: Path,
    workload: str,
    operations: Iterator[ForeignOperation],
    initial: int | str | None = None,
) -> ForeignHistory:
    """The history of these operations, written below a directory. `path`: names them in errors. Raises
    ForeignError."""
    rows = _Rows(path, workload, initial)
    head = next(operations, None)
    if head is None:
        raise ForeignError(path, 0, "has no operation of a client; name the history.edn of a test that ran")
    count, is_answered, start, part = 0, False, head.inv, []
    with pq.ParquetWriter(directory / OPERATIONS_FILE, TRANSACTIONS, compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for operation in chain([head], operations):
            part.append((count, operation))
            count += 1
            start = min(start, operation.inv)
            is_answered |= operation.outcome == OK
            if len(part) == OBJECT_ROWS:
                waiting.append(rows.table(part))
                part = []
            if len(waiting) * OBJECT_ROWS >= PART_ROWS:
                writer.write_table(pa.concat_tables(waiting).combine_chunks())
                waiting = []
        writer.write_table(pa.concat_tables([*waiting, rows.table(part)]).combine_chunks())
    names = {number: text for text, number in rows.numbers.items()}
    columns = {"number": pa.array(list(names), pa.int64()), "text": pa.array(list(names.values()), pa.string())}
    pq.write_table(pa.table(columns), directory / VALUES_FILE)
    line = rows.answer_without_outcome
    doubt = f"line {line} has an answer, but its type is not ok: what such an operation showed is not judged"
    doubts = (doubt,) if line else ()
    return ForeignHistory(
        workload, directory, count, start, is_answered, names, alike_keys(map(str, rows.keys)), doubts
    )


def transaction_parts(directory: Path, *columns: str) -> Iterator[pa.Table]:
    """The row groups of the transactions below a directory, with these columns."""
    with pq.ParquetFile(require_regular(directory / OPERATIONS_FILE)) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, columns=list(columns))
