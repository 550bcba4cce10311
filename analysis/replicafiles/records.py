"""The records inside uncompressed batches of message format 2, read strictly and many at once.

    record:  length varint, attributes int8 (0), timestamp delta varint, offset delta varint, key, value,
             number of headers varint, headers (key, value)

Keys and values are a length varint (-1: null) and that many bytes. Every number must have its shortest form, offsets
must rise by one, and a record must end where its length says.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from analysis.replicafiles.digest import Bytes
from analysis.replicafiles.log import I64, Bools

_LONGEST: Final = 10  # bytes of a varint

_PROBLEMS: Final = (
    "",
    "has a record that ends beyond it",
    "has a number that is not in its shortest form",
    "has a record with unknown attributes",
    "has an offset delta out of order",
    "has a record whose parts do not fill it",
    "has fewer records than it counts",
    "has bytes behind its last record",
)
_BEYOND, _NUMBER, _ATTRIBUTES, _ORDER, _PARTS, _FEWER, _MORE = range(1, 8)


class Records(NamedTuple):
    """Records as parallel columns: the number of the `batch`, the `rank` in it (its offset relative to the batch's
    first, also after compaction), `time_delta`, the positions of the key's start and end, the value's start and the
    record's end, the value's size (-1: null), and whether it has neither key nor headers (`is_bare`)."""

    batch: I64
    rank: I64
    time_delta: I64
    key_at: I64
    key_end: I64
    value_at: I64
    value_size: I64
    end: I64
    is_bare: Bools

    def take(self, which: Any) -> "Records":
        """Some of the records."""
        return Records(*(column[which] for column in self))


def parse(buffer: Bytes, start: I64, limit: I64, count: I64, last: I64 | None = None) -> tuple[Records, int, str]:
    """The records of batches, up to the first malformed one; the number of that one (the number of batches without
    one), and its error as the end of a sentence. A batch's records are between `start` and `limit`, and `count` is
    their number.

    The first records of all batches are read together, then the second ones, and so on. The buffer is padded
    (`digest.PADDING`). `last`: for batches that may have lost records, the last permitted rank; None: for all complete.
    """
    least_rank = None if last is None else np.zeros(len(start), np.int64)
    at, problem = start.copy(), np.zeros(len(start), np.int64)
    columns_read: list[tuple[Any, ...]] = [(*np.empty((8, 0), np.int64), np.empty(0, np.bool_))]
    rank = 0
    while len(active := np.flatnonzero((count > rank) & (problem == 0))):
        ranks = np.full(len(active), rank) if last is None or least_rank is None else (least_rank[active], last[active])
        columns, found_rank, error = _next(buffer, at[active], limit[active], ranks)
        error[at[active] >= limit[active]] = _FEWER
        problem[active] = error
        fine = error == 0
        columns = tuple(column[fine] for column in columns)
        columns_read.append((active[fine], found_rank[fine], *columns))
        at[active[fine]] = columns[5]
        if least_rank is not None:
            least_rank[active[fine]] = found_rank[fine] + 1
        rank += 1
    problem[(problem == 0) & (at != limit)] = _MORE
    wrong_batches = np.flatnonzero(problem)
    bad = int(wrong_batches[0]) if len(wrong_batches) else len(start)
    defect = _PROBLEMS[problem[bad]] if bad < len(start) else ""
    records = Records(*(np.concatenate([columns[i] for columns in columns_read]) for i in range(len(Records._fields))))
    records = records.take(records.batch < bad)
    return records.take(np.argsort(records.batch, kind="stable")), bad, defect


def _next(buffer: Bytes, at: I64, limit: I64, ranks: I64 | tuple[I64, I64]) -> tuple[tuple[Any, ...], I64, I64]:
    """The record at each position: (time delta, key's position and end, value's position, value's size, end, is bare),
    its rank, and the number of its error. With an error the columns are undefined. `ranks`: the required rank, or the
    least and the greatest permitted one."""
    error = np.zeros(len(at), np.int64)

    def check(is_wrong: Bools, error_code: int) -> None:
        error[(error == 0) & is_wrong] = error_code

    def number(place: I64) -> tuple[I64, I64]:
        stop, value, is_short = _varint(buffer, np.minimum(place, limit))
        check(~is_short, _NUMBER)
        return stop, value

    body, length = number(at)
    end = body + np.clip(length, -1, 1 << 40)
    check((length <= 0) | (end > limit), _BEYOND)
    end = np.clip(end, 0, limit)
    check(buffer[np.minimum(body, limit)] != 0, _ATTRIBUTES)
    place, time_delta = number(body + 1)
    key_at, offset_delta = number(place)
    least, last = ranks if isinstance(ranks, tuple) else (ranks, ranks)
    check((offset_delta < least) | (offset_delta > last), _ORDER)
    key_from, key_size = number(key_at)
    check((key_size < -1) | (key_size > end - key_from), _PARTS)
    key_end = np.minimum(key_from + np.clip(key_size, 0, 1 << 40), limit)
    value_at, value_size = number(key_end)
    check((value_size < -1) | (value_size > end - value_at), _PARTS)
    stop, headers = number(np.minimum(value_at + np.clip(value_size, 0, 1 << 40), limit))
    check((headers < 0) | ((headers == 0) & (stop != end)), _PARTS)
    for index in np.flatnonzero((error == 0) & (headers > 0)):
        error[index] = _headers(buffer, int(stop[index]), int(end[index]), int(headers[index]))
    return (
        (time_delta, key_at, key_end, value_at, value_size, end, (key_size == -1) & (headers == 0)),
        offset_delta,
        error,
    )


def _headers(buffer: Bytes, at: int, end: int, count: int) -> int:
    """The number of the error in a record's headers, 0 without one: each is a non-null key and a value."""
    for part in range(2 * count):
        if at >= end:
            return _PARTS
        stop, size, is_short = (int(array[0]) for array in _varint(buffer, np.array([at])))
        if not is_short:
            return _NUMBER
        if size < (-1 if part % 2 else 0) or size > end - stop:
            return _PARTS
        at = stop + max(size, 0)
    return 0 if at == end else _PARTS


def _varint(buffer: Bytes, at: I64) -> tuple[I64, I64, Bools]:
    """Zigzag varints at many positions: the positions after them, their values, and which have their shortest form."""
    at = at.copy()
    raw = np.zeros(len(at), np.uint64)
    is_short = np.ones(len(at), np.bool_)
    unfinished = np.arange(len(at))
    for number in range(_LONGEST):
        byte = buffer[np.minimum(at[unfinished], len(buffer) - 1)].astype(np.uint64)
        raw[unfinished] |= (byte & np.uint64(0x7F)) << np.uint64(7 * number)
        at[unfinished] += 1
        if number:
            is_short[unfinished] &= (byte != 0) & ((byte == 1) | (number < _LONGEST - 1))
        unfinished = unfinished[byte >= 0x80]
        if not len(unfinished):
            break
    is_short[unfinished] = False
    return at, (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), is_short
