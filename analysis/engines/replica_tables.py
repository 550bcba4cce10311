"""The records of replicas as tables: one row per record, in files that hold a range of a log's offsets each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.core.explain import Key
from analysis.replicafiles.log import LogColumns, ReplicaLog, joined
from history.record.schemas import INF
from history.regular_files import require_regular
from history.topic_folders import folder_of

REPLICAS: Final = "replicas"
EPOCHS: Final = "epochs"
SCRATCH: Final = ("earlier_replicas", "remote_records")
"""The tables below a run's `tables/`: the records of the replicas and the entries of their epoch files; and, while they
are checked, the records of earlier dumps and of remote segments."""

RECORDS: Final = pa.schema(
    [
        pa.field("node", pa.dictionary(pa.int32(), pa.string())),
        pa.field("offset", pa.int64()),
        pa.field("epoch", pa.int64()),
        pa.field("value", pa.int64()),
        pa.field("digest", pa.uint64()),
        pa.field("size", pa.int64()),
        pa.field("exact", pa.bool_()),
        pa.field("key", pa.uint64()),
    ]
)
ENTRIES: Final = pa.schema([("node", pa.string()), ("epoch", pa.int64()), ("start_offset", pa.int64())])
GROUP_ROWS: Final = 1 << 17
"""Rows per row group, so that little beside a range is read."""

ALL: Final = LogColumns._fields


@dataclass(frozen=True)
class RecordFile:
    """A file of records of one log; only those with the offsets `first` .. `behind` - 1 count. `rows` is the
    number of records in the file, `low` and `high` are their lowest and highest offset (0 and -1 without any)."""

    path: str
    rows: int
    low: int
    high: int
    first: int = 0
    behind: int = INF

    @property
    def reach(self) -> tuple[int, int]:
        """The lowest and the highest offset that it may have."""
        return max(self.low, self.first), min(self.high, self.behind - 1)


def write_piece(path: Path, node: str, records: LogColumns) -> RecordFile:
    """Write the records of a part of a log, in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nodes = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(records.offset), np.int32)), pa.array([node]))
    table = pa.Table.from_arrays([nodes, *map(pa.array, records)], schema=RECORDS)
    pq.write_table(table, path, compression="zstd", row_group_size=GROUP_ROWS)
    rows = len(records.offset)
    return (
        RecordFile(str(path), rows, int(records.offset[0]), int(records.offset[-1]))
        if rows
        else RecordFile(str(path), 0, 0, -1)
    )


def read_piece(piece: RecordFile, start: int, stop: int, names: Sequence[str] = ALL) -> LogColumns:
    """The records of a piece in a range of offsets; columns that are not named are empty."""
    first, end = max(start, piece.first), min(stop, piece.behind)
    with pq.ParquetFile(require_regular(piece.path)) as file:
        numbers = [number for number in range(file.num_row_groups) if _overlaps(file, number, first, end)]
        columns = list(dict.fromkeys(("offset", *names)))
        table = file.read_row_groups(numbers, columns=columns, use_threads=False)
    arrays = {name: table[name].to_numpy() for name in columns}
    inside = slice(*np.searchsorted(arrays["offset"], (first, end)).tolist())
    return LogColumns(*(arrays[name][inside] if name in arrays else _EMPTY[name] for name in ALL))


_EMPTY: Final = {field.name: np.empty(0, field.type.to_pandas_dtype()) for field in RECORDS if field.name in ALL}


def _overlaps(file: pq.ParquetFile, number: int, first: int, end: int) -> bool:
    group = file.metadata.row_group(number)
    stated = group.column(RECORDS.get_field_index("offset")).statistics
    return bool(stated.min < end and stated.max >= first)


def read_range(pieces: Sequence[RecordFile], start: int, stop: int, names: Sequence[str] = ALL) -> LogColumns:
    """The records of a log in a range of offsets."""
    return joined([read_piece(piece, start, stop, names) for piece in overlapping(pieces, start, stop)])


def overlapping(pieces: Iterable[RecordFile], start: int, stop: int) -> tuple[RecordFile, ...]:
    """The pieces that have records in a range of offsets."""
    return tuple(piece for piece in pieces if start <= piece.reach[1] and piece.reach[0] < stop)


def cuts(pieces: Sequence[RecordFile], span: int) -> Iterator[int]:
    """Where ranges of about `span` records may start. Pieces with few records for their offsets are not cut."""
    for piece in pieces:
        low, high = piece.reach
        if low <= high:
            yield low // span * span
            if high - low < 4 * piece.rows + span:
                yield from range((low // span + 1) * span, high + 1, span)


def write_epochs(tables: Path, key: Key, logs: Sequence[ReplicaLog]) -> None:
    """Write the entries of the epoch files of a partition's replicas."""
    folder = folder_of(tables / EPOCHS, *key)
    folder.mkdir(parents=True, exist_ok=True)
    entries = [{"node": log.node, "epoch": e, "start_offset": s} for log in logs for e, s in log.epochs or ()]
    pq.write_table(pa.Table.from_pylist(entries, ENTRIES), folder / "epochs.parquet", compression="zstd")
