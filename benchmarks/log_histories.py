"""Large histories that a linearizable log could have produced, for the benchmarks."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from history.record.schemas import APPEND, END, INF, INFO, OK, OPERATIONS, READ
from history.record.values import encode_value

I64 = npt.NDArray[np.int64]
PRODUCERS = 8


def history(
    operations: int, *, partitions: int = 32, seed: int = 0, latency_ns: float = 6_400.0, info: float = 0.005
) -> pa.Table:
    """Half appends, 45 % reads that follow the log, 5 % end queries, one event each 100 ns on `partitions` logs.

    Each operation takes effect at a moment of its own, in an interval with exponential tails of `latency_ns`; `info`
    of the appends time out, and half of these are stored. Reads carry the high watermark.
    """
    rng = np.random.default_rng(seed)
    n = operations
    moment = np.arange(n, dtype=np.int64) * 100 + 1_000_000_000
    inv = moment - rng.exponential(latency_ns, n).astype(np.int64) - 1
    ret = moment + rng.exponential(latency_ns, n).astype(np.int64) + 1
    part = rng.integers(0, partitions, n)
    kind = rng.random(n)
    f = np.where(kind < 0.5, APPEND, np.where(kind < 0.95, READ, END)).astype(np.int8)
    appends = np.flatnonzero(f == APPEND)
    timed_out = rng.random(len(appends)) < info
    stored = ~timed_out | (rng.random(len(appends)) < 0.5)
    # The log: a partition's stored appends in order of time, and their number before any time.
    order = np.lexsort((np.arange(n), part))
    is_stored = np.zeros(n, np.bool_)
    is_stored[appends[stored]] = True
    before: npt.NDArray[np.int64] = np.cumsum(is_stored[order]) - is_stored[order]
    first = np.searchsorted(part[order], np.arange(partitions))
    before -= np.repeat(before[first], np.diff(np.append(first, n)))
    length = np.empty(n, np.int64)
    length[order] = before
    value = np.full(n, -1, np.int64)
    value[appends] = _values(part[appends])
    offset = np.where(f == APPEND, length, -1)
    offset[appends[timed_out]] = -1
    log = value[order][is_stored[order]]
    base = np.searchsorted(part[order][is_stored[order]], np.arange(partitions))
    start, count = _following_reads(f, part, length)
    offset[f == READ] = start
    bounds = np.concatenate(([0], np.cumsum(np.where(f == READ, _spread(f, count), 0))))
    items = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(count.sum())
    values = log[np.repeat(base[part[f == READ]], count) + items]
    shown = np.where(f == APPEND, -1, length)
    kind8 = np.full(n, OK, np.int8)
    kind8[appends[timed_out]] = INFO
    ret[appends[timed_out]] = INF
    return _table(n, f, part, kind8, inv, ret, offset, shown, value, bounds, items, values, rng)


def _values(part: I64) -> I64:
    """Producers are assigned to partitions in turn; each numbers its appends in order of time."""
    producer = part % PRODUCERS
    sequence = np.empty(len(part), np.int64)
    for each in range(PRODUCERS):
        mine = producer == each
        sequence[mine] = np.arange(mine.sum())
    return encode_value(1, 0, 0) + (producer << 32) + sequence


def _following_reads(f: npt.NDArray[np.int8], part: I64, length: I64) -> tuple[I64, I64]:
    """Start and number of records of each read: it continues at the end of its partition's last read."""
    reads = np.flatnonzero(f == READ)
    order = reads[np.argsort(part[reads], kind="stable")]
    reached = length[order]
    came_from = np.concatenate(([0], reached[:-1]))
    came_from[np.concatenate(([True], part[order][1:] != part[order][:-1]))] = 0
    start, count = np.empty(len(f), np.int64), np.empty(len(f), np.int64)
    start[order], count[order] = came_from, reached - came_from
    return start[reads], count[reads]


def _spread(f: npt.NDArray[np.int8], count: I64) -> I64:
    spread = np.zeros(len(f), np.int64)
    spread[f == READ] = count
    return spread


def _table(n: int, f: Any, part: I64, kind: Any, inv: I64, ret: I64, offset: I64, shown: I64, value: I64,
           bounds: I64, items: I64, values: I64, rng: np.random.Generator) -> pa.Table:  # fmt: skip
    def constant(text: str) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([text]))

    edges = pa.array(bounds.astype(np.int32))
    item = OPERATIONS.field("values").type
    columns = {
        "process": pa.array(
            np.where(f == APPEND, part % PRODUCERS, PRODUCERS + rng.integers(0, 4, n)).astype(np.int32)
        ),
        "session": pa.array(np.ones(n, np.int32)),
        "client": constant("client"),
        "f": pa.array(f),
        "topic": constant("log"),
        "partition": pa.array(part.astype(np.int32)),
        "type": pa.array(kind),
        "inv": pa.array(inv),
        "ret": pa.array(ret),
        "offset": pa.array(offset),
        "hi": pa.array(shown),
        "lo": pa.array(shown),
        "value": pa.array(value),
        "offsets": pa.ListArray.from_arrays(edges, pa.array(items), type=item),
        "values": pa.ListArray.from_arrays(edges, pa.array(values), type=item),
        "acks": pa.array(np.full(n, -1, np.int8)),
        "phase": constant("main"),
        "error": constant(""),
    }
    return pa.Table.from_arrays([columns[each.name] for each in OPERATIONS], schema=OPERATIONS)
