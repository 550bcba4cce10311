"""Turns a run's live record of registers into Parquet. `history/operation_tables.py` does so for operations on logs.

    <run>/tables/registers/part-00000.parquet

Registers are ordered by key and invocation; a file holds whole keys, so each can be checked separately.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.reader import History

REGISTERS_FOLDER: Final = "registers"
ROWS_PER_FILE: Final = 1 << 20
ROWS_PER_GROUP: Final = 1 << 18


def compact_registers(history: History, run: Path | str, *, rows_per_file: int = ROWS_PER_FILE) -> list[Path]:
    """Writes the registers' tables of `run`, replacing older ones; returns the files. A file ends with a key's last
    row."""
    root = Path(run) / "tables" / REGISTERS_FOLDER
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
