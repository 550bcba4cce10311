"""The shapes of operations: what the operations of one kind of workload have as columns, and how tables store them.

A kind of workload names its shape. Most new kinds need no new one: `free` has functions of any name. The readers of
clients' records (`history/record/client_reader.py`) and the tables with their index
(`history/record/operation_tables.py`) are the same for all shapes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from history.record.schemas import (
    APPEND,
    CALLS,
    CAS,
    OPERATIONS,
    REGISTERS,
    REGISTERS_WITHOUT_ENDPOINTS,
    WRITE,
    CallColumns,
    OperationColumns,
    RegisterColumns,
)
from history.record.validation import Checks, wrong_calls, wrong_operations, wrong_registers

BLOCKS: Final = "blocks"
EACH: Final = "each"


@dataclass(frozen=True, eq=False)
class Shape:
    """What the operations of one kind of workload look like. The places of a shape are what its checks are divided by:
    offsets of a log, or keys."""

    name: str
    row: type[msgspec.Struct]
    """An operation."""
    columns: pa.Schema
    """Of `row`."""
    stream: str
    """The suffix of the files in which a client records completed operations."""
    announced: str
    """The suffix of the file in which a client announces what it may send."""
    announces: str
    """How: `BLOCKS` of values, or `EACH` operation that changes something (`history/record/announcements.py`)."""
    invalid: Checks
    """The errors of rows (`history/record/validation.py`)."""
    written: tuple[tuple[int, str], ...]
    """The codes of the functions that write, each with the column of the value that it writes."""
    stored: pa.Schema
    """The same as the files of the tables have them."""
    folder: str
    """The folder of the files, below `tables/`."""
    index: str
    """The file with the index, below `tables/`."""
    key: pa.Schema
    """The columns with one value in each file. They divide the operations among folders. In the index they have these
    types."""
    place: pa.DataType
    """The type of a place in the index."""
    reach: Callable[[pa.Table], tuple[Any, Any]]
    """The lowest and the highest place that some rows of a file speak of."""
    nowhere: tuple[Any, Any] | None = None
    """What `reach` returns for rows that speak of no place; None: all rows speak of one."""
    sorted_by: tuple[str, ...] = ()
    """The columns that the rows of a file are sorted by. A row group ends where a value of the first one ends. Without
    columns, the rows stay in the client's order."""
    rising: tuple[str, ...] = ()
    """The columns of nearly rising numbers, stored as differences: faster to write and to read than as entries of a
    dictionary, in three quarters of the bytes."""
    least_rows: int = 1
    """The rows after which a row group of a sorted file may end."""
    most_rows: int = 1 << 17
    """The most rows of a row group."""
    piece_rows: int = 1 << 20
    """The operations that the reader of a stream has in memory at once."""
    piece_bytes: int = 1 << 27
    """The size of these operations: reads may have many records. A million appends are 0.8 of it."""
    earlier: pa.Schema | None = None
    """The columns of an earlier version, which lacked the last ones."""
    is_optional: bool = False
    """Whether tables without such operations have no index of them."""

    def table(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Operations in the order of the columns, as a table."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.columns)
        arrays = [
            pa.array(list(column), field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
            for field, column in zip(self.columns, columns, strict=True)
        ]
        return pa.Table.from_arrays(
            [pc.cast(array, field.type) for array, field in zip(arrays, self.columns, strict=True)], schema=self.columns
        )

    def current(self, rows: pa.Table) -> pa.Table:
        """Rows of a stream with the columns of the shape; those that an earlier version did not have are empty."""
        for field in self.columns:
            if field.name not in rows.column_names:
                rows = rows.append_column(field.name, pa.array([""] * rows.num_rows, pa.string()))
        return rows.cast(self.columns)

    def __reduce__(self) -> tuple[Callable[[str], "Shape"], tuple[str]]:
        """A shape is one object in each process."""
        return _shape_named, (self.name,)


def _reach_of_log(rows: pa.Table) -> tuple[int, int]:
    """The offsets that rows speak of: an append's place, the records of a read, bounds of the log's length. A bound "at
    least n" speaks of n - 1, "at most n" of n."""
    f, offset, lo, hi = (rows[name].to_numpy() for name in ("f", "offset", "lo", "hi"))
    is_append = f == APPEND
    spoken = (
        offset[is_append & (offset >= 0)],
        pc.list_flatten(rows["offsets"]).to_numpy(),
        lo[~is_append & (lo > 0)] - 1,
        hi[~is_append & (hi >= 0)],
    )
    arrays = [array for array in spoken if len(array)]
    if not arrays:
        return NO_OFFSET
    return min(int(array.min()) for array in arrays), max(int(array.max()) for array in arrays)


def _reach_of_registers(rows: pa.Table) -> tuple[str, str]:
    """The first and the last key of sorted rows. Keys are compared by their UTF-8 bytes, as Arrow and Python compare
    texts."""
    return rows["key"][0].as_py(), rows["key"][-1].as_py()


def _reach_of_calls(rows: pa.Table) -> tuple[int, int]:
    """The first and the last invocation."""
    inv = rows["inv"].to_numpy()
    return int(inv.min()), int(inv.max())


NO_OFFSET: Final = (0, -1)
_KEY_TEXT: Final = pa.field("key", pa.string(), nullable=False)

LOG: Final = Shape(
    name="log",
    row=OperationColumns,
    columns=OPERATIONS,
    stream=".arrows",
    announced=".reserved",
    announces=BLOCKS,
    invalid=wrong_operations,
    written=((APPEND, "value"),),
    stored=OPERATIONS,
    folder="operations",
    index="index.parquet",
    key=pa.schema(
        [pa.field("topic", pa.string(), nullable=False), pa.field("partition", pa.int64(), nullable=False)],
    ),
    place=pa.int64(),
    reach=_reach_of_log,
    nowhere=NO_OFFSET,
    rising=("inv", "ret", "offset", "hi", "lo", "value", "offsets.list.element", "values.list.element"),
)
"""Appends, reads and end queries of the partitions of topics. A client's operations on a partition have nearly
ascending offsets, so a row group speaks of a narrow range of them."""

REGISTER: Final = Shape(
    name="register",
    row=RegisterColumns,
    columns=REGISTERS,
    stream=".registers",
    announced=".invoked",
    announces=EACH,
    invalid=wrong_registers,
    written=((WRITE, "value"), (CAS, "new")),
    stored=REGISTERS.set(REGISTERS.get_field_index("key"), _KEY_TEXT),
    folder="registers",
    index="registers.parquet",
    key=pa.schema([]),
    place=pa.string(),
    reach=_reach_of_registers,
    sorted_by=("key", "inv", "id"),
    least_rows=1 << 10,
    most_rows=1 << 16,
    piece_rows=1 << 17,
    earlier=REGISTERS_WITHOUT_ENDPOINTS,
)
"""Reads, writes and compare-and-sets of keys. A check of a key needs all operations on the key, and no operation on
another one, so a file is ordered by key."""

FREE: Final = Shape(
    name="free",
    row=CallColumns,
    columns=CALLS,
    stream=".calls",
    announced=".called",
    announces=EACH,
    invalid=wrong_calls,
    written=(),
    stored=CALLS,
    folder="calls",
    index="calls.parquet",
    key=pa.schema([]),
    place=pa.int64(),
    reach=_reach_of_calls,
    rising=("id", "inv", "ret"),
    piece_rows=1 << 16,
    is_optional=True,
)
"""Functions of any name, with JSON values. No check divides them: a checker of a user's own reads all of them."""

SHAPES: Final[Mapping[str, Shape]] = {shape.name: shape for shape in (LOG, REGISTER, FREE)}


def _shape_named(name: str) -> Shape:
    return SHAPES[name]
