"""Verifies a certificate of registers: its order explains the recorded history. Shares no code with the checker.

An order explains a history under these conditions. For each key, each entry is an operation of that key, at most once,
at a moment within its interval. Moments never decrease. Each entry is legal in its place, starting from an absent key.
Every operation that happened, and every reported mismatch, is in the order. A refused operation is not.

Theory of operation. Keys are independent, so each part of the certificate is confirmed alone, with all operations of
the history on the keys from its start up to the start of the next part. Together the parts must have as many operations
as the tables. A part is compared by columns: the value that a key holds before an entry is the one that the last entry
before it wrote.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.verifiers import log
from history.record.operation_tables import IndexedGroup
from history.record.schemas import CAS, FAIL, MISMATCH, OK, READ, WRITE
from history.record.shapes import REGISTER
from history.regular_files import require_regular
from installation.counted import counted

FORMAT: Final = 3
FILE: Final = "registers.json"
ENTRIES: Final = pa.schema([("key", pa.string()), ("id", pa.int64()), ("at", pa.int64())])
NUMBERS: Final = ("id", "f", "type", "inv", "ret")
VALUES: Final = ("value", "expected", "new")


class KeysPart(log.AnyPart, frozen=True, kw_only=True):
    """A file with the orders of the keys from `start` on, up to the start of the next part."""

    start: str


class RegisterClaim(log.AnyClaim, frozen=True, kw_only=True):
    """What a certificate of registers states."""

    parts: tuple[KeysPart, ...]


@dataclass(frozen=True)
class OrdersTask:
    """A part to confirm, the key where its keys end (None: no end), and the row groups that may have its keys."""

    part: KeysPart
    stop: str | None
    directory: str
    tables: str
    groups: tuple[IndexedGroup, ...]


@dataclass(frozen=True)
class ConfirmedKeys:
    """The operations and the keys of a part."""

    operations: int
    keys: int


def verify_registers(directory: Path | str, run: Path | str, *, spread: log.Spread = log.one_by_one) -> str:
    """Returns what `directory` proves of the registers of `run` in a sentence, or raises CertificateError."""
    root, tables = Path(directory), Path(run) / "tables"
    claim = log.read_claim(root / FILE, RegisterClaim, FORMAT)
    log.demand(all(one.start < other.start for one, other in pairwise(claim.parts)), "its parts are not in order")
    groups = log.claimed_groups(claim, REGISTER, Path(run))
    results = log.confirm_all(_confirmed, list(_tasks_of(claim, groups, root, tables)), spread)
    operations = claim.operations
    log.demand(sum(result.operations for result in results) == operations, "no part has some of the operations")
    subject = f"{counted(operations, 'operation')} on {counted(sum(result.keys for result in results), 'register')}"
    return f"{subject} {'is' if operations == 1 else 'are'} linearizable"


def _tasks_of(
    claim: RegisterClaim, groups: Sequence[IndexedGroup], directory: Path, tables: Path
) -> Iterator[OrdersTask]:
    stops = [*(part.start for part in claim.parts[1:]), None]
    for part, stop in zip(claim.parts, stops[: len(claim.parts)], strict=True):
        mine = (group for group in groups if group.highest >= part.start and (stop is None or group.lowest < stop))
        yield OrdersTask(part, stop, str(directory), str(tables), tuple(mine))


def _confirmed(task: OrdersTask) -> ConfirmedKeys:
    entries, rows = log.read_part(task.directory, task.part, ENTRIES, "an order"), _rows(task)
    keys = pa.chunked_array([*rows["key"].chunks, *entries["key"].chunks], pa.string())
    codes = keys.combine_chunks().dictionary_encode()
    names, code = codes.dictionary.to_pylist(), codes.indices.to_numpy()
    history, size = _columns(rows), rows.num_rows
    history["key"], of_entry = code[:size], code[size:]
    by_id = np.argsort(history["id"], kind="stable")
    log.demand(np.diff(history["id"][by_id]) > 0, "two operations of the history have one id")
    order = np.argsort(of_entry, kind="stable")
    key, number, at = of_entry[order], entries["id"].to_numpy()[order], entries["at"].to_numpy()[order]
    row = by_id[np.minimum(np.searchsorted(history["id"][by_id], number), size - 1)] if size else number
    log.demand(size or not len(number), f"{task.part.file}: an operation is missing for each of its entries")
    _demand_order(names, (key, number, at, order), row, {name: column[row] for name, column in history.items()})
    left_out = _must_be_there(history)
    left_out[row] = False
    for missing in np.flatnonzero(left_out)[:1].tolist():
        place = f"{names[history['key'][missing]]}: operation {history['id'][missing]}"
        raise log.CertificateError(f"{place} happened and is left out")
    return ConfirmedKeys(size, len(np.unique(history["key"])))


def _rows(task: OrdersTask) -> pa.Table:
    """The operations of the history on the keys of a part."""
    names = ["key", *NUMBERS, *VALUES, "error"]
    parts = [pa.schema([REGISTER.stored.field(name) for name in names]).empty_table()]
    for group in task.groups:
        try:
            with pq.ParquetFile(require_regular(Path(task.tables) / group.path)) as file:
                rows = file.read_row_group(group.row_group, columns=names, use_threads=False).select(names)
        except (OSError, ValueError) as error:
            raise log.CertificateError(f"{group.path} cannot be read: {error}") from error
        rows = rows.filter(pc.greater_equal(rows["key"], task.part.start))
        if task.stop is not None:
            rows = rows.filter(pc.less(rows["key"], task.stop))
        parts.append(rows)
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks()


def _columns(rows: pa.Table) -> log.Columns:
    """Columns of numbers; of each value, the number and whether it is nil."""
    columns: log.Columns = {name: rows[name].to_numpy() for name in NUMBERS}
    columns["mismatched"] = np.asarray(pc.equal(rows["error"].cast(pa.string()), MISMATCH), np.bool_)
    for name in VALUES:
        columns[name] = rows[name].fill_null(0).to_numpy()
        columns[f"no {name}"] = np.asarray(rows[name].is_null(), np.bool_)
    return columns


def _must_be_there(rows: log.Columns) -> Any:
    mismatched = (rows["type"] == FAIL) & (rows["f"] == CAS) & rows["mismatched"]
    return (rows["type"] == OK) | mismatched


def _demand_order(names: Sequence[str], entries: tuple[Any, Any, Any, Any], row: Any, columns: log.Columns) -> None:
    """Confirms entries that are ordered by key: key, number, moment, and place in the file. `row`: the place in the
    history of the operation that has the entry's number, if there is one; `columns`: its columns."""
    key, number, at, place = entries
    is_repeat = np.ones(len(row), np.bool_)
    is_repeat[np.unique(row, return_index=True)[1]] = False
    holds_value, holds_nothing = _held(key, columns)
    refused = columns["type"] == FAIL
    is_read, is_cas = columns["f"] == READ, columns["f"] == CAS
    reads = _equal(columns["value"], columns["no value"], holds_value, holds_nothing)
    expects = _equal(columns["expected"], columns["no expected"], holds_value, holds_nothing)
    errors = {
        "is missing, or there twice": is_repeat | (columns["id"] != number) | (columns["key"] != key),
        "takes effect earlier than the entry before it": _goes_back(key, at),
        "takes effect outside its interval": (at < columns["inv"]) | (at > columns["ret"]),
        "was refused, yet takes effect": refused & ~_must_be_there(columns),
        "read another value than the key held": is_read & (columns["type"] == OK) & ~reads,
        "found another value than it says": is_cas & (expects == refused),
    }
    contradictions = np.stack(list(errors.values()))
    if (wrong_entries := np.flatnonzero(contradictions.any(axis=0))).size:
        first = wrong_entries[np.argmin(place[wrong_entries])]
        error = list(errors)[int(np.argmax(contradictions[:, first]))]
        raise log.CertificateError(f"{names[key[first]]}: operation {number[first]} {error}")


def _held(key: Any, columns: log.Columns) -> tuple[Any, Any]:
    """The value that the key of each entry holds before the entry takes effect, and whether it is nil."""
    is_write = columns["f"] == WRITE
    changes = is_write | ((columns["f"] == CAS) & (columns["type"] != FAIL))
    written = np.where(is_write, columns["value"], columns["new"])
    nothing = np.where(is_write, columns["no value"], columns["no new"])
    place = np.arange(len(key))
    last = np.maximum.accumulate(np.where(changes, place, -1))[:-1]
    last = np.concatenate(([-1], last)) if len(key) else last
    is_first = np.concatenate(([True], key[1:] != key[:-1])) if len(key) else np.empty(0, np.bool_)
    absent = last < np.maximum.accumulate(np.where(is_first, place, -1))
    return written[last], np.where(absent, True, nothing[last])


def _equal(value: Any, is_nil: Any, other: Any, other_is_nil: Any) -> Any:
    return (is_nil & other_is_nil) | (~is_nil & ~other_is_nil & (value == other))


def _goes_back(key: Any, at: Any) -> Any:
    goes_back = np.zeros(len(at), np.bool_)
    goes_back[1:] = (key[1:] == key[:-1]) & (at[1:] < at[:-1])
    return goes_back
