"""A table that is written while it grows: an Arrow IPC stream that gives back every whole batch wherever it is cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from history.errors import HistoryError

FLUSH_INTERVAL_NS: Final = 250_000_000
FLUSH_ROWS: Final = 8192


class BatchWriter:
    """Rows of one schema. They reach the file when 8,192 of them wait or 250 ms after the last flush, whichever a call
    notices first. Not safe to use from several threads: its owner locks.
    """

    def __init__(self, path: Path, schema: pa.Schema, *, clock: Callable[[], int]) -> None:
        """Creates the file. Raises FileExistsError rather than mixing two recordings. `clock` counts ns."""
        self.closed = False
        self._schema = schema
        self._clock = clock
        self._rows: list[tuple[Any, ...]] = []
        self._last_flush = clock()
        self._stream = open(path, "xb")  # noqa: SIM115 - closed by close()
        self._batches = pa.ipc.new_stream(
            self._stream, schema, options=pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=False)
        )

    def add(self, row: tuple[Any, ...]) -> None:
        """One row, its values in the schema's order."""
        self._rows.append(row)
        if len(self._rows) >= FLUSH_ROWS:
            self.flush()
        else:
            self.flush_if_due()

    def flush_if_due(self) -> None:
        """Flushes when 250 ms have passed since the last flush."""
        if self._clock() - self._last_flush >= FLUSH_INTERVAL_NS:
            self.flush()

    def flush(self) -> None:
        """Hands every row to the operating system."""
        self._last_flush = self._clock()
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        arrays = [_column(field, values) for field, values in zip(self._schema, columns, strict=True)]
        self._batches.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._stream.flush()
        self._rows.clear()

    def close(self) -> None:
        """Flushes and ends the stream."""
        self.flush()
        self.closed = True
        self._batches.close()
        self._stream.close()


def _column(field: Any, values: Sequence[Any]) -> Any:
    if pa.types.is_dictionary(field.type):
        return pa.array(values, type=pa.string()).dictionary_encode()
    return pa.array(values, type=field.type)


def read_batches(path: Path, schema: pa.Schema, torn: list[str]) -> pa.Table:
    """Every whole batch of a stream; a file whose tail is lost is added to `torn`.

    Raises HistoryError when the file holds another table.
    """
    batches: list[pa.RecordBatch] = []
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            if not stream.schema.equals(schema):
                raise HistoryError(f"{path}: not the schema of operations; was it written by another version?")
            batches.extend(stream)
    except (pa.ArrowInvalid, OSError):
        torn.append(str(path))
    return pa.Table.from_batches(batches, schema=schema)
