"""Turns a run's live record into Parquet: one folder per partition, with separate files for appends and queries.

    <run>/tables/operations/topic=<topic>/partition=<partition>/appends-00000.parquet, queries-00000.parquet

Appends are ordered by offset (those without one at the end, by invocation), queries by what they showed, so a file of a
giant partition covers few offset blocks. Every file has the whole operations schema and can be checked separately.

    <run>/tables/registers/part-00000.parquet

Registers are ordered by key and invocation; a file holds whole keys, so it too can be checked separately.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.reader import History
from history.schemas import APPEND
from history.topic_folders import folder_of

ROWS_PER_FILE: Final = 1 << 20
ROWS_PER_GROUP: Final = 1 << 18


def compact(history: History, run: Path | str, *, rows_per_file: int = ROWS_PER_FILE) -> list[Path]:
    """Writes the tables of `run`, replacing older ones, and returns the files, each partition's in order."""
    root = Path(run) / "tables" / "operations"
    if root.exists():
        shutil.rmtree(root)
    operations = history.operations
    keys = operations.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
    files: list[Path] = []
    for key in sorted(keys.to_pylist(), key=lambda each: (each["topic"], each["partition"])):
        topic, partition = key["topic"], key["partition"]
        mine = operations.filter((pc.field("topic") == topic) & (pc.field("partition") == partition))
        folder = folder_of(root, topic, partition)
        folder.mkdir(parents=True)
        is_append = pc.equal(mine["f"], APPEND)
        files += _write(_appends_in_order(mine.filter(is_append)), folder, "appends", rows_per_file)
        files += _write(_queries_in_order(mine.filter(pc.invert(is_append))), folder, "queries", rows_per_file)
    return files


def compact_registers(history: History, run: Path | str, *, rows_per_file: int = ROWS_PER_FILE) -> list[Path]:
    """Writes the registers' tables of `run`, replacing older ones; returns the files. A file ends with a key's last
    row."""
    root = Path(run) / "tables" / "registers"
    if root.exists():
        shutil.rmtree(root)
    if not history.registers.num_rows:
        return []
    root.mkdir(parents=True)
    ordered = history.registers.set_column(
        history.registers.schema.get_field_index("key"), "key", history.registers["key"].cast(pa.string())
    ).sort_by([("key", "ascending"), ("inv", "ascending"), ("id", "ascending")])
    ends = pc.run_end_encode(ordered["key"].combine_chunks()).run_ends.to_pylist()
    files: list[Path] = []
    start = 0
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        if following is not None and following - start <= rows_per_file:
            continue
        path = root / f"part-{len(files):05d}.parquet"
        pq.write_table(ordered.slice(start, end - start), path, compression="zstd", row_group_size=ROWS_PER_GROUP)
        files.append(path)
        start = end
    return files


def _appends_in_order(appends: pa.Table) -> pa.Table:
    located = pc.greater_equal(appends["offset"], 0)
    return pa.concat_tables(
        [
            appends.filter(located).sort_by([("offset", "ascending"), ("inv", "ascending")]),
            appends.filter(pc.invert(located)).sort_by([("inv", "ascending"), ("value", "ascending")]),
        ]
    )


def _queries_in_order(queries: pa.Table) -> pa.Table:
    return queries.sort_by([("lo", "ascending"), ("inv", "ascending"), ("process", "ascending")])


def _write(table: pa.Table, folder: Path, name: str, rows_per_file: int) -> list[Path]:
    files = []
    for number, start in enumerate(range(0, table.num_rows, rows_per_file)):
        path = folder / f"{name}-{number:05d}.parquet"
        pq.write_table(
            table.slice(start, rows_per_file),
            path,
            compression="zstd",
            compression_level=3,
            row_group_size=ROWS_PER_GROUP,
        )
        files.append(path)
    return files
