"""Validates recorded rows: every code and number must be within its bounds. Invalid rows are left out."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from history.distinct import has_repeated
from history.record.schemas import APPEND, CALL, CAS, END, FAIL, INF, INFO, MISMATCH, OK, QUERY, READ, WRITE
from history.topic_folders import is_topic

PROCESSES: Final = 1 << 30

Mask = npt.NDArray[np.bool_]
Checks = Callable[[pa.Table], Iterator[tuple[Mask, str]]]
RowErrors = dict[str, tuple[int, int]]
"""Errors of rows: the first row that has it, -1 if all have it, and how many do."""


def error_sentences(errors: RowErrors) -> list[str]:
    """The errors as sentences."""
    return [
        problem if first_row < 0 else f"row {first_row}{f' and {count - 1} more' if count > 1 else ''}: {problem}"
        for problem, (first_row, count) in errors.items()
    ]


def valid_part(table: pa.Table, checks: Checks, errors: RowErrors, rows_before: int) -> pa.Table:
    """The valid rows of a part of a table; adds the errors of the others to `errors`. `rows_before`: the number of rows
    before the part."""
    if not table.num_rows:
        return table
    missing = [field.name for field in table.schema if not field.nullable and table[field.name].null_count]
    if missing:
        errors[f"its rows lack {', '.join(missing)}"] = (-1, 0)
        return table.slice(0, 0)
    bad = np.zeros(table.num_rows, np.bool_)
    for mask, problem in checks(table):
        if mask.any():
            first_row, count = errors.get(problem, (rows_before + int(np.argmax(mask)), 0))
            errors[problem] = (first_row, count + int(mask.sum()))
            bad |= mask
    return table.filter(pa.array(~bad)) if bad.any() else table


def _wrong_anywhere(columns: dict[str, npt.NDArray[Any]]) -> Iterator[tuple[Mask, str]]:
    inv, ret, open_ = columns["inv"], columns["ret"], columns["type"] == INFO
    yield (columns["process"] < 0) | (columns["process"] >= PROCESSES), "its process is not a client's number"
    yield (columns["type"] < OK) | (columns["type"] > INFO), "its type is not ok, fail or info"
    yield (inv < 0) | (inv >= INF), "its invocation is not a time of a run"
    yield ~open_ & (ret < inv), "it returned before its invocation"
    yield ~open_ & (ret >= INF), "its return is not a time of a run"
    yield open_ & (ret != INF), "its outcome is unknown, but it has a return"


def wrong_operations(table: pa.Table) -> Iterator[tuple[Mask, str]]:
    """The rows of the schema `OPERATIONS` that are invalid, each with the error."""
    names = ("process", "f", "type", "inv", "ret", "partition", "offset", "hi", "lo", "value", "acks")
    columns = {name: table[name].to_numpy() for name in names}
    f, lo, hi, offset = columns["f"], columns["lo"], columns["hi"], columns["offset"]
    yield (f < APPEND) | (f > END), "it is not append, read or end"
    yield from _wrong_anywhere(columns)
    yield (f != APPEND) & (columns["type"] == INFO), "a query has an answer or none, and is never open"
    yield columns["partition"] < 0, "its partition is negative"
    yield _misnamed(table["topic"]), "its topic has a name that no topic can have"
    for name, column in (("offset", offset), ("lower bound", lo), ("upper bound", hi)):
        yield (column < -1) | (column >= INF), f"its {name} is not an offset"
    yield (hi >= 0) & (lo > hi), "its lower bound is above its upper bound"
    yield (f == APPEND) & (columns["value"] < 0), "its value is not the value of an append"
    yield columns["acks"] < -1, "its acks is less than -1"
    yield from _wrong_records(table)


def _misnamed(topics: pa.ChunkedArray) -> Mask:
    """Which rows name a topic that cannot be one."""
    column = topics.unify_dictionaries().combine_chunks()
    names = column.dictionary.to_pylist()
    is_wrong = np.array([name is None or not is_topic(name) for name in names], np.bool_)
    return is_wrong[column.indices.to_numpy()] if is_wrong.any() else np.zeros(len(column), np.bool_)


def _wrong_records(table: pa.Table) -> Iterator[tuple[Mask, str]]:
    sizes = [pc.list_value_length(table[name]).to_numpy() for name in ("offsets", "values")]
    yield sizes[0] != sizes[1], "it shows not as many offsets as values"
    shown = pc.list_flatten(table["offsets"]).to_numpy()
    outside = (shown < 0) | (shown >= INF)
    mask = np.zeros(table.num_rows, np.bool_)
    if outside.any():
        mask[pc.list_parent_indices(table["offsets"]).to_numpy()[outside]] = True
    yield mask, "it shows a record at an invalid offset"


def wrong_registers(table: pa.Table) -> Iterator[tuple[Mask, str]]:
    """The same of the schema `REGISTERS`."""
    columns = {name: table[name].to_numpy() for name in ("process", "id", "f", "type", "inv", "ret")}
    f, kind = columns["f"], columns["type"]
    yield ~np.isin(f, (READ, WRITE, CAS)), "it is not read, write or cas"
    yield from _wrong_anywhere(columns)
    mismatched = _holds(pc.equal(table["error"].cast(pa.string()), MISMATCH))
    yield mismatched & ((f != CAS) | (kind != FAIL)), "only a failed cas can mismatch"
    yield (f == WRITE) & _holds(pc.is_null(table["value"])), "a write without a value"
    yield (f == CAS) & _holds(pc.is_null(table["new"])), "a cas without a new value"
    yield _repeated(columns["id"]), "its id is another row's"


def wrong_calls(table: pa.Table) -> Iterator[tuple[Mask, str]]:
    """The same of the schema `CALLS`."""
    columns = {name: table[name].to_numpy() for name in ("process", "id", "f", "type", "inv", "ret")}
    f, kind, has_result = columns["f"], columns["type"], _holds(pc.is_valid(table["result"]))
    yield ~np.isin(f, (CALL, QUERY)), "it is not call or query"
    yield from _wrong_anywhere(columns)
    yield (f == QUERY) & (kind == INFO), "a query has an answer or none, and is never open"
    yield (kind == OK) & ~has_result, "it was answered without a result"
    yield (kind != OK) & has_result, "it was not answered, but has a result"
    yield _repeated(columns["id"]), "its id is another row's"


def _repeated(ids: npt.NDArray[np.int64]) -> Mask:
    """The rows whose id an earlier row has."""
    is_repeated = np.zeros(len(ids), np.bool_)
    if has_repeated(ids):
        is_repeated[:] = True
        is_repeated[np.unique(ids, return_index=True)[1]] = False
    return is_repeated


def _holds(condition: Any) -> Mask:
    mask: Mask = condition.to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


def written_values(table: pa.Table, columns: Sequence[tuple[int, str]]) -> npt.NDArray[np.int64]:
    """The values that the rows write. `columns`: for each writing kind of operation, the column with its value."""
    parts = [table[name].filter(pc.equal(table["f"], f)).drop_null().to_numpy() for f, name in columns]
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
