"""The tables of operations have every row in the client's order, and their index agrees with the files."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from history.record.operation_tables import (
    IndexedGroup,
    TablesError,
    index_schema,
    read_index,
    record_name,
    write_index,
    write_operations,
)
from history.record.schemas import APPEND, OPERATIONS
from history.record.shapes import LOG
from tests.analysis.log_histories import random_history, table


def operations(seed: int, partitions: int = 3) -> pa.Table:
    """Random histories of some partitions, their rows mixed."""
    rng = random.Random(seed)
    rows = table(*(random_history(rng) for _ in range(partitions)))
    order = list(range(rows.num_rows))
    rng.shuffle(order)
    return rows.take(order)


def written(tables: Path, rows: pa.Table, group_rows: int = 4) -> list[IndexedGroup]:
    groups = write_operations(replace(LOG, most_rows=group_rows), rows, tables, "c-1-0")
    write_index(LOG, groups, tables)
    return groups


def of(group: IndexedGroup, tables: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.ParquetFile(tables / group.path).read_row_group(group.row_group).to_pylist()
    return rows


def spoken(row: dict[str, object]) -> set[object]:
    """The offsets that a row speaks of, as the format defines them."""
    if row["f"] == APPEND:
        return {row["offset"]} - {-1}
    lo, hi, offsets = row["lo"], row["hi"], row["offsets"]
    assert isinstance(lo, int)
    assert isinstance(offsets, list)
    return {*offsets} | ({lo - 1} if lo > 0 else set()) | ({hi} - {-1})


@pytest.mark.parametrize("seed", range(8))
def test_every_row_is_in_its_partitions_file_in_its_order(tmp_path: Path, seed: int) -> None:
    rows = operations(seed)
    groups = written(tmp_path, rows)
    for key in {group.key for group in groups}:
        found = [row for group in groups if group.key == key for row in of(group, tmp_path)]
        assert found == [row for row in rows.to_pylist() if (row["topic"], row["partition"]) == key]
    assert sum(group.rows for group in groups) == rows.num_rows
    assert all(pq.read_schema(path).equals(OPERATIONS) for path in tmp_path.glob("operations/*/*/*.parquet"))


@pytest.mark.parametrize("seed", range(8))
def test_the_index_has_the_rows_and_the_reach_of_each_row_group(tmp_path: Path, seed: int) -> None:
    written(tmp_path, operations(seed))
    for group in read_index(LOG, tmp_path):
        rows = of(group, tmp_path)
        reach = set[object]().union(*(spoken(row) for row in rows))
        assert (group.lowest, group.highest) == ((min(reach), max(reach)) if reach else (0, -1))  # type: ignore[type-var]
        assert group.rows == len(rows)


def test_the_index_of_an_earlier_version_which_has_more_columns_is_read(tmp_path: Path) -> None:
    written(tmp_path, operations(1))
    groups = read_index(LOG, tmp_path)
    index = pq.ParquetFile(tmp_path / LOG.index).read()
    counts = pa.array([7] * index.num_rows, pa.int64())
    rewritten(tmp_path / LOG.index, index.add_column(5, "append_ok", counts).append_column("final", counts))
    assert read_index(LOG, tmp_path) == groups


def test_no_two_records_share_a_name() -> None:
    names = [
        record_name("a b"),
        record_name("a/b"),
        record_name("a"),
        record_name("a", "lines"),
        record_name("a+lines"),
    ]
    assert len(set(names)) == len(names)
    assert not any(set(name) & set(" /'\"?#&=") for name in names)


def a_file(tables: Path) -> Path:
    return min(tables.glob("operations/*/*/*.parquet"))


def rewritten(path: Path, rows: pa.Table) -> None:
    pq.write_table(rows, path)


def a_torn_file(tables: Path) -> None:
    a_file(tables).write_bytes(a_file(tables).read_bytes()[:-9])


def a_foreign_file(tables: Path) -> None:
    rewritten(a_file(tables), pa.table({"x": [1]}))


def a_row_less(tables: Path) -> None:
    rewritten(a_file(tables), pq.ParquetFile(a_file(tables)).read().slice(1))


def another_partitions_rows(tables: Path) -> None:
    index = pq.ParquetFile(tables / LOG.index).read().to_pylist()
    changed = pa.Table.from_pylist([row | {"partition": 7} for row in index], index_schema(LOG))
    pq.write_table(changed, tables / LOG.index)


def a_pipe(tables: Path) -> None:
    name = a_file(tables)
    name.unlink()
    os.mkfifo(name)


def a_file_more(tables: Path) -> None:
    (a_file(tables).with_name("z-1-0.parquet")).write_bytes(a_file(tables).read_bytes())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda tables: (tables / LOG.index).unlink(), "tables/index.parquet is missing"),
        (lambda tables: (tables / LOG.index).write_bytes(b"PAR1"), "tables/index.parquet cannot be read as Parquet"),
        (lambda tables: rewritten(tables / LOG.index, pa.table({"x": [1]})), "has other columns than this version"),
        (lambda tables: a_file(tables).unlink(), r"topic=.*/c-1-0.parquet is missing"),
        (a_torn_file, "c-1-0.parquet cannot be read as Parquet"),
        (a_foreign_file, "has other columns than this version"),
        (a_row_less, r"has row groups of \[.*\] rows, but tables/index.parquet says"),
        (another_partitions_rows, "as a file of"),
        (a_pipe, "it is a named pipe"),
        (a_file_more, "z-1-0.parquet is not in tables/index.parquet"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_tables_that_disagree_are_refused(tmp_path: Path, change: Callable[[Path], object], why: str) -> None:
    written(tmp_path, operations(1))
    assert read_index(LOG, tmp_path)
    change(tmp_path)
    with pytest.raises(TablesError, match=why):
        read_index(LOG, tmp_path)
