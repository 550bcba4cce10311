"""A table that is readable while it is being written: an Arrow IPC stream that yields every whole batch before a cut.

Theory of operation. Each batch of rows is followed by an empty batch whose metadata (`crc32`) is the CRC-32 of all
bytes before it, so the reader accepts only rows that were written. The last one also has the number of rows (`rows`);
without it the stream was not closed.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from history.regular_files import read_bytes

FLUSH_INTERVAL_NS: Final = 250_000_000
FLUSH_ROWS: Final = 8192

_CRC: Final = "crc32"
_ROWS: Final = "rows"
_IN_THIS_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""Batches are small: distributing their columns over a pool of threads takes as long as reading them."""


class BatchWriter:
    """Rows of one schema. They reach the file when 8,192 of them wait or 250 ms after the last flush, whichever a call
    notices first. Not safe to use from several threads: its owner locks.
    """

    def __init__(
        self, path: Path, schema: pa.Schema, *, clock: Callable[[], int], flush_every_ns: int = FLUSH_INTERVAL_NS
    ) -> None:
        """Creates the file. Raises FileExistsError rather than mixing two recordings. `clock` counts ns."""
        self.closed = False
        self._schema = schema
        self._clock = clock
        self._flush_every_ns = flush_every_ns
        self._rows: list[tuple[Any, ...]] = []
        self._written = 0
        self._last_flush = clock()
        self._stream = _Summed(path)
        self._batches = pa.ipc.new_stream(
            self._stream, schema, options=pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=False)
        )
        self._nothing = pa.RecordBatch.from_pylist([], schema=schema)

    def add(self, row: tuple[Any, ...]) -> None:
        """One row, its values in the schema's order."""
        self._rows.append(row)
        if len(self._rows) >= FLUSH_ROWS:
            self.flush()
        else:
            self.flush_if_due()

    def flush_if_due(self) -> None:
        """Flushes when 250 ms have passed since the last flush."""
        if self._clock() - self._last_flush >= self._flush_every_ns:
            self.flush()

    def flush(self) -> None:
        """Hands every row to the operating system."""
        self._last_flush = self._clock()
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        arrays = [_column(field, values) for field, values in zip(self._schema, columns, strict=True)]
        self._batches.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._batches.write_batch(self._nothing, custom_metadata={_CRC: str(self._stream.crc)})
        self._stream.flush()
        self._written += len(self._rows)
        self._rows.clear()

    def close(self) -> None:
        """Flushes and ends the stream."""
        self.flush()
        self.closed = True
        end = {_CRC: str(self._stream.crc), _ROWS: str(self._written)}
        self._batches.write_batch(self._nothing, custom_metadata=end)
        self._batches.close()
        self._stream.close()


class _Summed(io.FileIO):
    """A file that keeps the CRC-32 of everything written to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "x")
        self.crc = 0

    def write(self, data: Any) -> int:
        """Write all of `data`; a raw file may write only a part."""
        left = memoryview(data).cast("B")
        self.crc = zlib.crc32(left, self.crc)
        size = len(left)
        while left:
            left = left[super().write(left) :]
        return size


def _column(field: Any, values: Sequence[Any]) -> Any:
    if pa.types.is_dictionary(field.type):
        return pa.array(values, type=pa.string()).dictionary_encode()
    return pa.array(values, type=field.type)


@dataclass(frozen=True)
class Stream:
    """The content of a stream: the rows that certainly equal the written ones. `is_torn`: its tail is lost; `defects`:
    why it is incomplete, as sentences without the file's name."""

    rows: pa.Table
    is_torn: bool = False
    defects: tuple[str, ...] = ()


def read_batches(path: Path, schema: pa.Schema) -> Stream:
    """Every batch of a stream up to the first one that is torn or damaged. Raises OSError."""
    data = read_bytes(path)
    reading = _Reading(data, schema)
    try:
        reading.read()
    except (pa.ArrowException, OSError, EOFError, ValueError, MemoryError) as error:
        reading.defects.append(_tail(reading, str(error).splitlines()[0] if str(error) else type(error).__name__))
    # In one chunk: later steps work chunk by chunk, and a batch may have few rows.
    table = pa.Table.from_batches(reading.batches, schema=schema).unify_dictionaries().combine_chunks()
    is_torn = not reading.ended and not reading.changed
    if is_torn and not reading.defects:
        reading.defects.append(_tail(reading, "it has no end mark"))
    return Stream(table, is_torn, tuple(reading.defects))


def _tail(reading: _Reading, why: str) -> str:
    return f"what follows its first {reading.rows} rows is lost: {why}"


class _Reading:
    """A stream during reading."""

    def __init__(self, data: bytes, schema: pa.Schema) -> None:
        self._data = data
        self._schema = schema
        self._crc = 0
        self._summed = 0
        self._waiting: list[pa.RecordBatch] = []
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.ended = False
        self.changed = False
        self.defects: list[str] = []

    def read(self) -> None:
        """Raises what pyarrow does for a stream that is cut or damaged."""
        source = pa.BufferReader(self._data)
        with pa.ipc.open_stream(source, options=_IN_THIS_THREAD) as stream:
            if not stream.schema.equals(self._schema):
                self.changed = True
                self.defects.append("it does not have the columns of operations; was it written by another version?")
                return
            before = 0
            while not self.changed and (found := _next(stream)) is not None:
                self._take(found.batch, found.custom_metadata, before)
                before = source.tell()
        if self.ended and source.tell() != len(self._data):
            self.defects.append("it goes on behind its end mark")

    def _take(self, batch: pa.RecordBatch, metadata: Any, before: int) -> None:
        """`before`: where the bytes before this batch end."""
        if self.ended:
            self.changed = True
            self.defects.append("it goes on behind its end mark")
            return
        if metadata is None or _CRC.encode() not in metadata:
            self._waiting.append(batch)
            return
        self._crc = zlib.crc32(memoryview(self._data)[self._summed : before], self._crc)
        self._summed = before
        if metadata[_CRC.encode()] != str(self._crc).encode():
            self.changed = True
            self.defects.append(_tail(self, "it is damaged there"))
            return
        self.batches += self._waiting
        self.rows += sum(each.num_rows for each in self._waiting)
        self._waiting.clear()
        if _ROWS.encode() in metadata:
            self.ended = True
            stated = metadata[_ROWS.encode()].decode(errors="replace")
            if stated != str(self.rows):
                self.defects.append(f"it ends with {self.rows} rows, but its end mark says {stated}")


def _next(stream: Any) -> Any:
    try:
        return stream.read_next_batch_with_custom_metadata()
    except StopIteration:
        return None
