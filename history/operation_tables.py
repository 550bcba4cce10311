"""The operations on logs as Parquet: a file for each partition and piece of a record, and an index of the row groups.

    <run>/tables/operations/topic=<topic>/partition=<partition>/<client>-<session>-<segment>.parquet
    <run>/tables/index.parquet

Theory of operation. A piece of a record is a segment of a client's stream, or a part of it. Its rows stay in the
client's order: nothing is sorted or moved between pieces, so each piece is a task of its own in bounded memory. A
client's operations on a partition have nearly ascending offsets, so a row group of at most 131,072 rows speaks of a
narrow range of offsets. The index has that range and the counts of each row group, so a reader of some offsets reads
only the row groups that speak of them. Every file has the schema `history.OPERATIONS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.regular_files import remove, require_regular
from history.schemas import ACKS_ALL, APPEND, END, FAIL, INF, INFO, NAMES, OK, OPERATIONS, PHASE_FINAL, READ
from history.topic_folders import folder_of

GROUP_ROWS: Final = 1 << 17
OPERATIONS_FOLDER: Final = "operations"
INDEX_FILE: Final = "index.parquet"

_REPETITIVE: Final = ["process", "session", "client", "f", "topic", "partition", "type", "acks", "phase", "error"]
_RISING: Final = ("inv", "ret", "offset", "hi", "lo", "value", "offsets.list.element", "values.list.element")
_ENCODINGS: Final = dict.fromkeys(_RISING, "DELTA_BINARY_PACKED")
"""Columns of nearly rising numbers: faster to write and to read than without, in three quarters of the bytes."""
_COUNTED: Final = {
    "append_ok": (APPEND, OK),
    "append_fail": (APPEND, FAIL),
    "append_info": (APPEND, INFO),
    "read_ok": (READ, OK),
    "read_fail": (READ, FAIL),
    "end_ok": (END, OK),
    "end_fail": (END, FAIL),
}


class TablesError(ValueError):
    """The tables of a run are not what its analysis wrote; the message names the file and what is wrong."""


@dataclass(frozen=True)
class IndexedGroup:
    """A row group of a partition's file. `path`: below `tables/`.

    `lowest`, `highest`: the offsets that its rows speak of, as an append's place, as records of a read or as bounds of
    the log's length; 0 and -1 if none. `unlocated`: appends that nothing binds to an offset, because they were not
    acknowledged by all replicas with their offset. `records`: those that reads returned. `final`: operations of the
    final phase. `first_inv`: the earliest invocation; `last_ret`: the latest return, -1 if none returned.
    """

    topic: str
    partition: int
    path: str
    row_group: int
    rows: int
    lowest: int
    highest: int
    append_ok: int
    append_fail: int
    append_info: int
    read_ok: int
    read_fail: int
    end_ok: int
    end_fail: int
    unlocated: int
    records: int
    final: int
    first_inv: int
    last_ret: int

    @property
    def kinds(self) -> Counter[str]:
        """The number of operations of each kind that occurs."""
        counts: Counter[str] = Counter()
        for name, (f, _) in _COUNTED.items():
            counts[NAMES[f]] += getattr(self, name)
        return +counts


INDEX: Final = pa.schema(
    [
        pa.field(column.name, {"str": pa.string(), "int": pa.int64()}[str(column.type)], nullable=False)
        for column in fields(IndexedGroup)
    ]
)
"""One row per row group, with the fields of `IndexedGroup`."""


def record_name(record: str, part: str = "") -> str:
    """How file names start that belong to a client's record, or to a `part` of it that is not a stream.

    Characters that file names or URLs treat specially are replaced, among them "+", so no two records share a name."""
    return quote(record, safe="") + (f"+{part}" if part else "")


def remove_tables(tables: Path) -> None:
    """Remove the operations and their index, whatever has their names."""
    remove(tables / OPERATIONS_FOLDER)
    remove(tables / INDEX_FILE)


def write_operations(rows: pa.Table, tables: Path, piece: str, *, group_rows: int = GROUP_ROWS) -> list[IndexedGroup]:
    """Write a piece of a record, of the schema `history.OPERATIONS`, to the files `<piece>.parquet` of its
    partitions."""
    groups: list[IndexedGroup] = []
    for (topic, partition), mine in by_partition(rows):
        folder = folder_of(tables / OPERATIONS_FOLDER, topic, partition)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{piece}.parquet"
        pq.write_table(
            mine,
            path,
            compression="zstd",
            compression_level=1,
            row_group_size=group_rows,
            use_dictionary=_REPETITIVE,
            column_encoding=_ENCODINGS,
        )
        name = path.relative_to(tables).as_posix()
        for number, start in enumerate(range(0, mine.num_rows, group_rows)):
            groups.append(_row_group(mine.slice(start, group_rows), topic, partition, name, number))
    return groups


def write_index(groups: Iterable[IndexedGroup], tables: Path) -> None:
    """Write `tables/index.parquet`, ordered by partition, file and row group."""
    ordered = sorted(groups, key=lambda group: (group.topic, group.partition, group.path, group.row_group))
    tables.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([asdict(group) for group in ordered], INDEX), tables / INDEX_FILE)


def read_index(tables: Path) -> list[IndexedGroup]:
    """The row groups of `tables/index.parquet` in its order. Raises TablesError when it is missing, torn or not an
    index, and when it disagrees with the files: each must exist and have the index's row groups and rows, and no
    other file may exist."""
    groups = [IndexedGroup(*row) for row in read_rows(open_table(tables, INDEX_FILE, INDEX), INDEX_FILE)]
    of_file: dict[str, list[IndexedGroup]] = {}
    for group in groups:
        of_file.setdefault(group.path, []).append(group)
    file_names = {
        path.relative_to(tables).as_posix()
        for path in (tables / OPERATIONS_FOLDER).glob("topic=*/partition=*/*.parquet")
    }
    for name in sorted(file_names | of_file.keys()):
        if name not in of_file:
            raise TablesError(f"tables/{name} is not in tables/{INDEX_FILE}")
        _require_groups(tables, name, of_file[name])
    return groups


def read_operations(tables: Path) -> pa.Table:
    """All operations of the tables in the index's order. Raises TablesError as `read_index`."""
    paths = dict.fromkeys(group.path for group in read_index(tables))
    parts = [open_table(tables, path, OPERATIONS).read() for path in paths]
    return pa.concat_tables([OPERATIONS.empty_table(), *parts]).unify_dictionaries().combine_chunks()


def read_parts(tables: Path, groups: Iterable[IndexedGroup], columns: Sequence[str]) -> Iterator[pa.Table]:
    """These columns of the row groups, one after another. Raises TablesError for a file that cannot be read."""
    for path, of_file in groupby(groups, key=lambda group: group.path):
        with open_table(tables, path, OPERATIONS) as file:
            for group in of_file:
                try:
                    part = file.read_row_group(group.row_group, columns=columns, use_threads=False)
                except (OSError, pa.ArrowException) as error:
                    raise TablesError(f"tables/{path} is damaged: {str(error).splitlines()[0]}") from error
                yield part.select(columns).combine_chunks()


def by_partition(rows: pa.Table) -> Iterator[tuple[tuple[str, int], pa.Table]]:
    """The rows of each partition in their order, of a table with the columns `topic` and `partition`."""
    if not rows.num_rows:
        return
    rows = rows.unify_dictionaries().combine_chunks()
    topic = rows["topic"].chunk(0)
    names = topic.dictionary.to_pylist()
    code = rows["partition"].to_numpy().astype(np.int64) * len(names) + topic.indices.to_numpy()
    first_code = int(code[0])
    if (code == first_code).all():
        yield (names[first_code % len(names)], first_code // len(names)), rows
        return
    order = np.argsort(code, kind="stable")
    ordered, code = rows.take(pa.array(order)).combine_chunks(), code[order]
    bounds = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1], [True])))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        key = int(code[start])
        yield (names[key % len(names)], key // len(names)), ordered.slice(start, stop - start)


def _require_groups(tables: Path, name: str, groups: Sequence[IndexedGroup]) -> None:
    require_row_groups(tables, name, OPERATIONS, INDEX_FILE, [(group.row_group, group.rows) for group in groups])
    folder = folder_of(Path(OPERATIONS_FOLDER), groups[0].topic, groups[0].partition).as_posix()
    if name.rpartition("/")[0] != folder:
        raise TablesError(f"tables/{INDEX_FILE} has tables/{name} as a file of {groups[0].topic}-{groups[0].partition}")


def require_row_groups(
    tables: Path, name: str, schema: pa.Schema, index: str, stated: Sequence[tuple[int, int]]
) -> None:
    """Checks that a file of `tables` has the row groups whose numbers and rows its index states. Raises TablesError."""
    metadata = open_table(tables, name, schema).metadata
    row_counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if list(stated) != list(enumerate(row_counts)):
        raise TablesError(
            f"tables/{name} has row groups of {row_counts} rows, but tables/{index} says "
            f"{[rows for _, rows in stated]}: "
            "one of them is not of this analysis"
        )


def open_table(tables: Path, name: str, schema: pa.Schema) -> Any:
    """An open Parquet file of `tables` that has this schema. Raises TablesError."""
    try:
        file = pq.ParquetFile(require_regular(tables / name))
    except FileNotFoundError as error:
        raise TablesError(f"tables/{name} is missing") from error
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a path with a character of code 0
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise TablesError(f"tables/{name} cannot be read as Parquet: {reason}") from error
    if not file.schema_arrow.equals(schema):
        raise TablesError(
            f"tables/{name} has other columns than this version writes: it is of another program or version"
        )
    return file


def read_rows(file: Any, name: str) -> Iterator[tuple[Any, ...]]:
    """The rows of an open file of `tables`. Raises TablesError when it is damaged."""
    try:
        columns = [column.to_pylist() for column in file.read().columns]
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a text that is not UTF-8
        raise TablesError(f"tables/{name} is damaged: {str(error).splitlines()[0]}") from error
    yield from zip(*columns, strict=True)


def _row_group(rows: pa.Table, topic: str, partition: int, path: str, number: int) -> IndexedGroup:
    names = ("f", "type", "acks", "inv", "ret", "offset", "lo", "hi")
    f, kind, acks, inv, ret, offset, lo, hi = (rows[name].to_numpy() for name in names)
    offsets = pc.list_flatten(rows["offsets"]).to_numpy()
    is_append = f == APPEND
    outcomes = np.bincount(f.astype(np.int64) * (INFO + 1) + kind, minlength=(END + 1) * (INFO + 1))
    lowest, highest = _reach(is_append, offset, lo, hi, offsets)
    located = is_append & (kind == OK) & (acks == ACKS_ALL) & (offset >= 0)
    returned = ret[ret < INF]
    return IndexedGroup(
        topic=topic,
        partition=partition,
        path=path,
        row_group=number,
        rows=rows.num_rows,
        lowest=lowest,
        highest=highest,
        **{name: int(outcomes[operation * (INFO + 1) + outcome]) for name, (operation, outcome) in _COUNTED.items()},
        unlocated=int(is_append.sum() - located.sum()),
        records=len(offsets),
        final=int(pc.sum(pc.equal(rows["phase"], PHASE_FINAL)).as_py() or 0),
        first_inv=int(inv.min()),
        last_ret=int(returned.max(initial=-1)),
    )


def _reach(
    is_append: npt.NDArray[np.bool_],
    offset: npt.NDArray[np.int64],
    lo: npt.NDArray[np.int64],
    hi: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """The lowest and the highest offset that rows speak of. A bound "at least n" speaks of n - 1, "at most n" of n."""
    spoken = (
        offset[is_append & (offset >= 0)],
        offsets,
        lo[~is_append & (lo > 0)] - 1,
        hi[~is_append & (hi >= 0)],
    )
    arrays = [array for array in spoken if len(array)]
    if not arrays:
        return 0, -1
    return min(int(array.min()) for array in arrays), max(int(array.max()) for array in arrays)
