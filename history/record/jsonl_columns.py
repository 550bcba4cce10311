"""Reads JSON lines of operations on logs by columns, if every line is a valid operation without an id.

Theory of operation. `history/record/jsonl_reader.py` defines what is valid and reads line by line. This module is only
a faster way to the same rows. It decides nothing: whatever differs from plain valid lines gives None, and the strict
reader then reads these lines and reports what is wrong. pyarrow's parser accepts more than strict JSON in some places,
so these are excluded before: text that is not UTF-8, a byte order mark, null (which it takes for an absent field),
escapes by number, carriage returns, and empty lines or several values in a line, which would move line numbers. It
refuses a repeated key, a field that is not in the schema and a number that is not an integer of 64 bits.
"""

import codecs
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from history.record.operation_schema import Clock
from history.record.schemas import (
    ACKS_ALL,
    APPEND,
    END,
    FAIL,
    INF,
    INFO,
    MISMATCH,
    OK,
    OPERATIONS,
    OUTCOMES,
    PHASE_MAIN,
    READ,
)
from history.topic_folders import is_topic

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NUMBERS: Final = {  # each with its lowest and highest value
    "partition": (0, (1 << 31) - 1),
    "acks": (-1, 127),
    "session": (0, (1 << 31) - 1),
    "inv": (0, (1 << 62) - 1),
    "ret": (0, (1 << 62) - 1),
    "offset": (0, INF - 1),
    "from": (0, INF - 1),
    "end": (0, INF - 1),
    "lo": (0, INF - 1),
    "hi": (0, INF - 1),
    "value": (0, (1 << 63) - 1),
}
_TEXTS: Final = ("f", "type", "topic", "phase", "error")
_LINES: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in _TEXTS),
        *(pa.field(name, pa.int64()) for name in _NUMBERS),
        pa.field("records", pa.list_(pa.list_(pa.int64()))),
    ]
)
_BIT: Final = {name: 1 << number for number, name in enumerate(_LINES.names)}
_FS: Final = {"append": APPEND, "read": READ, "end": END}
_ALWAYS: Final = {"f", "type", "topic", "partition", "inv"}
_ASKED: Final = {APPEND: {"value"}, READ: {"from"}, END: set[str]()}
_ANSWERED: Final = {APPEND: set[str](), READ: {"records"}, END: {"end"}}
_MAY_ASK: Final = {APPEND: {"session", "acks", "phase"}, READ: {"session", "phase"}, END: {"session", "phase"}}
_MAY_ANSWER: Final = {APPEND: {"offset"}, READ: {"lo", "hi"}, END: set[str]()}
_EXCLUDED: Final = (b"null", b"\\u", b"\r", b"\n\n")
_MOST_SHIFT: Final = 1 << 61
_BLOCK: Final = 1 << 24


@dataclass(frozen=True)
class LineColumns:
    """Valid operations, one per line, with the schema `OPERATIONS`; `written`: the values of the appends."""

    rows: pa.Table
    written: I64


def columns_of(lines: bytes, *, clock: Clock, client: str, process: int) -> LineColumns | None:
    """The operations of whole lines in their order, or None if the strict reader has to read them."""
    table = _parsed(lines)
    if table is None or not (-_MOST_SHIFT < clock.behind < _MOST_SHIFT):
        return None
    f, outcome = _codes(table["f"], _FS), _codes(table["type"], OUTCOMES)
    numbers = {name: table[name].fill_null(-2 if name == "acks" else -1).to_numpy() for name in _NUMBERS}
    records = table["records"].combine_chunks()
    if not (_has_its_fields(table, f, outcome) and _is_within(table, numbers) and _texts_are_valid(table)):
        return None
    pairs = _pairs(records)
    interval = _interval(numbers, clock)
    if pairs is None or interval is None or bool(((numbers["hi"] >= 0) & (numbers["lo"] > numbers["hi"])).any()):
        return None
    rows = _rows(table, f, outcome, numbers, pairs, interval, client, process)
    return LineColumns(rows, numbers["value"][f == APPEND])


def _parsed(lines: bytes) -> pa.Table | None:
    """One row per line, or None."""
    if not lines or lines.startswith((b"\n", codecs.BOM_UTF8)) or any(substring in lines for substring in _EXCLUDED):
        return None
    try:
        lines.decode("utf-8")
        table = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=_BLOCK),
            parse_options=pj.ParseOptions(explicit_schema=_LINES, unexpected_field_behavior="error"),
        )
    except (pa.ArrowException, ValueError):
        return None
    # A blank line is not a row. If it were read, another line could contain two rows.
    is_one_each = table.num_rows == lines.count(b"\n") and not any(line.isspace() for line in lines.split(b"\n"))
    return table if is_one_each else None


def _codes(texts: pa.ChunkedArray, codes: dict[str, int]) -> I64:
    """The code of each text, -1 for another one."""
    encoded = texts.combine_chunks().dictionary_encode()
    dictionary_codes = np.array([*(codes.get(text, -1) for text in encoded.dictionary.to_pylist()), -1], np.int64)
    row_codes: I64 = dictionary_codes[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return row_codes


def _has_its_fields(table: pa.Table, f: I64, outcome: I64) -> bool:
    """Whether each line has all fields that an operation of its kind and outcome needs, and no others."""
    if (f < 0).any() or (outcome < 0).any():
        return False
    present = np.zeros(table.num_rows, np.int64)
    for name, bit in _BIT.items():
        present |= bit * pc.is_valid(table[name]).to_numpy().astype(np.int64)
    needed, allowed = np.zeros(9, np.int64), np.zeros(9, np.int64)
    for kind in (APPEND, READ, END):
        for completion in (OK, FAIL, INFO):
            must, may = _ALWAYS | _ASKED[kind], {*_MAY_ASK[kind]}
            if completion == OK:
                must, may = must | {"ret"} | _ANSWERED[kind], may | _MAY_ANSWER[kind]
            elif completion == FAIL:
                must = must | {"ret", "error"}
            else:
                may.add("error")
            needed[kind * 3 + completion] = sum(_BIT[name] for name in must)
            allowed[kind * 3 + completion] = sum(_BIT[name] for name in must | may)
    at = f * 3 + outcome
    return not ((needed[at] & ~present).any() or (present & ~allowed[at]).any())


def _is_within(table: pa.Table, numbers: dict[str, I64]) -> bool:
    for name, (low, high) in _NUMBERS.items():
        valid_numbers = numbers[name] if not table[name].null_count else table[name].drop_null().to_numpy()
        if len(valid_numbers) and not (low <= int(valid_numbers.min()) and int(valid_numbers.max()) <= high):
            return False
    return True


def _texts_are_valid(table: pa.Table) -> bool:
    topics = pc.unique(table["topic"]).to_pylist()
    labels = [*pc.unique(table["error"]).to_pylist(), *pc.unique(table["phase"]).to_pylist()]
    return all(map(is_topic, topics)) and not {"", MISMATCH} & set(labels)


def _pairs(records: pa.Array) -> tuple[npt.NDArray[np.int32], I64, I64] | None:
    """The records of each line: where they start, their offsets and values; None unless all are pairs of a rising
    offset and a value."""
    counts = pc.list_value_length(records).fill_null(0).to_numpy()
    lists = records.flatten()
    if lists.null_count or not pc.all(pc.equal(pc.list_value_length(lists), 2), min_count=0).as_py():
        return None
    flat = lists.flatten()
    if flat.null_count:
        return None
    offset, value = flat.to_numpy()[::2], flat.to_numpy()[1::2]
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    is_next = np.ones(len(offset), np.bool_)
    is_next[starts[:-1][starts[:-1] < len(offset)]] = False  # the first record of its line
    steps = np.diff(offset, prepend=0)
    is_valid = (offset >= 0).all() and (offset < INF).all() and (value > -(1 << 63)).all()
    return (starts, offset, value) if is_valid and not (is_next & (steps <= 0)).any() else None


def _interval(numbers: dict[str, I64], clock: Clock) -> tuple[I64, I64] | None:
    """As `Clock.interval` of each line; None if a time is not one of the run."""
    inv, ret = numbers["inv"], numbers["ret"]
    returned = ret >= 0
    start = inv - clock.behind - clock.error
    end = np.where(returned, ret - clock.behind + clock.error, INF)
    is_possible = (start >= -clock.error - 1) & (start < INF) & (~returned | (end < INF)) & (~returned | (ret >= inv))
    return (np.maximum(start, 0), end) if is_possible.all() else None


def _rows(
    table: pa.Table,
    f: I64,
    outcome: I64,
    numbers: dict[str, I64],
    pairs: tuple[npt.NDArray[np.int32], I64, I64],
    interval: tuple[I64, I64],
    client: str,
    process: int,
) -> pa.Table:
    count = table.num_rows
    starts, offsets, values = pairs
    end, acks = numbers["end"], numbers["acks"]
    lo = np.where(numbers["lo"] >= 0, numbers["lo"], end)
    nonempty_rows = np.flatnonzero(np.diff(starts))
    lo[nonempty_rows] = np.maximum(lo[nonempty_rows], offsets[starts[1:][nonempty_rows] - 1] + 1)
    columns: dict[str, Any] = {
        "process": np.full(count, process, np.int32),
        "session": np.where(numbers["session"] >= 0, numbers["session"], 1),
        "client": [client] * count,
        "f": f,
        "topic": table["topic"].combine_chunks(),
        "partition": numbers["partition"],
        "type": outcome,
        "inv": interval[0],
        "ret": interval[1],
        "offset": np.where(f == READ, numbers["from"], numbers["offset"]),
        "hi": np.where(numbers["hi"] >= 0, numbers["hi"], end),
        "lo": lo,
        "value": np.where(f == APPEND, numbers["value"], -1),
        "offsets": pa.ListArray.from_arrays(pa.array(starts), pa.array(offsets)),
        "values": pa.ListArray.from_arrays(pa.array(starts), pa.array(values)),
        "acks": np.where(acks >= -1, acks, ACKS_ALL),
        "phase": table["phase"].fill_null(PHASE_MAIN).combine_chunks(),
        "error": table["error"].fill_null("").combine_chunks(),
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in OPERATIONS]
    return pa.Table.from_arrays(arrays, schema=OPERATIONS)
