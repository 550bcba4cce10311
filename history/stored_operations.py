"""The operations of a run in the tables that its analysis wrote, read part by part.

No reader of these tables holds more than one row group, so the size of a run does not decide how much memory its page
takes. The index vouches for the operations on logs, the table of seconds for the number of those on registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from history.operation_tables import IndexedGroup, TablesError, read_index, read_parts
from history.register_tables import REGISTERS_FOLDER
from history.regular_files import require_regular
from history.seconds import REGISTER, SECONDS_FILE
from installation.counted import counted


@dataclass(frozen=True)
class StoredOperations:
    """The operations in a run's `tables/`. `groups`: its index; `registers`: the files of operations on registers."""

    tables: Path
    groups: Sequence[IndexedGroup]
    registers: Sequence[Path]

    @classmethod
    def of(cls, tables: Path) -> StoredOperations:
        """Raises TablesError if a table is missing or damaged, or if the tables disagree."""
        operations = cls(tables, read_index(tables), sorted((tables / REGISTERS_FOLDER).glob("*.parquet")))
        stated = _register_operations(tables / SECONDS_FILE)
        row_count = sum(_open(path).metadata.num_rows for path in operations.registers)
        if stated != row_count:
            raise TablesError(
                f"tables/{REGISTERS_FOLDER} has {counted(row_count, 'operation')}, "
                f"but tables/{SECONDS_FILE} says {stated}: "
                "one of them is not of this analysis"
            )
        return operations

    @property
    def places(self) -> set[tuple[str, int]]:
        """Topic and partition of the logs that have operations."""
        return {(group.topic, group.partition) for group in self.groups}

    def parts(self, *columns: str) -> Iterator[pa.Table]:
        """These columns of the operations on logs, a row group after another. Raises TablesError for a damaged file."""
        return read_parts(self.tables, self.groups, columns)

    def register_parts(self, *columns: str) -> Iterator[pa.Table]:
        """The same of the operations on registers."""
        for path in self.registers:
            file = _open(path)
            for number in range(file.metadata.num_row_groups):
                yield _read(path, lambda n=number, f=file: f.read_row_group(n, columns=columns, use_threads=False))


def _register_operations(path: Path) -> int:
    seconds = _read(path, lambda: _open(path).read(columns=["shape", "operations"]))
    return int(pc.sum(seconds.filter(pc.equal(seconds["shape"], REGISTER))["operations"]).as_py() or 0)


def _open(path: Path) -> Any:
    return _read(path, lambda: pq.ParquetFile(require_regular(path)))


def _read(path: Path, read: Any) -> Any:
    """What `read` returns. Raises TablesError where it raises."""
    try:
        return read()
    except (OSError, pa.ArrowException, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise TablesError(f"{path.name} of the tables cannot be read: {reason}") from error
