"""Rows in a temporary file: they are read again when all of them are known."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from history.regular_files import open_regular


class PartsOnDisk:
    """A file with the rows of one schema, in the order in which they were added."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._writer = pa.ipc.new_stream(str(path), schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def add(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def tables(self) -> Iterator[pa.Table]:
        """The rows, in parts. None can be added afterwards."""
        self._writer.close()
        with open_regular(self._path) as file, pa.ipc.open_stream(file) as stream:
            for batch in stream:
                yield pa.Table.from_batches([batch])

    def remove(self) -> None:
        self._writer.close()
        self._path.unlink(missing_ok=True)
