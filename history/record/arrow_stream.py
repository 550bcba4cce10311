"""A table that is readable while it is being written: an Arrow IPC stream that yields every whole batch before a cut.

Theory of operation. Each batch of rows is followed by an empty batch whose metadata (`crc32`) is the CRC-32 of all
bytes before it, so the reader accepts only rows that were written. The last one also has the number of rows (`rows`);
without it the stream was not closed.

A recording is a row of such streams, its segments, of at most 2^20 rows. A segment is closed before the next one is
created, so only the last one can be torn. The checksum of segment N > 0 starts with N, so a segment cannot stand for
another one. Segments can be read in any order, each in bounded memory.
"""

import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from history.regular_files import read_bytes
from installation.counted import counted

FLUSH_INTERVAL_NS: Final = 250_000_000
FLUSH_ROWS: Final = 8192
SEGMENT_ROWS: Final = 1 << 20

_CRC: Final = "crc32"
_ROWS: Final = "rows"
_IN_THIS_THREAD: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""Batches are small: distributing their columns over a pool of threads takes as long as reading them."""


def segment_path(first_path: Path, number: int) -> Path:
    """The file of a recording's segment. `first_path`: that of segment 0."""
    return first_path.with_name(f"{first_path.stem}.{number}{first_path.suffix}") if number else first_path


class BatchWriter:
    """Rows of one schema. They reach the file when 8,192 of them wait or 250 ms after the last flush, whichever a call
    notices first. Not safe to use from several threads: its owner locks.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        *,
        clock: Callable[[], int],
        flush_every_ns: int = FLUSH_INTERVAL_NS,
        segment_rows: int = SEGMENT_ROWS,
    ) -> None:
        """Creates the file of segment 0. Raises FileExistsError rather than mix two recordings. `clock` counts ns."""
        self.closed = False
        self._path = path
        self._schema = schema
        self._clock = clock
        self._flush_every_ns = flush_every_ns
        self._segment_rows = segment_rows
        self._rows: list[Sequence[Any]] = []
        self._last_flush = clock()
        self._nothing = pa.RecordBatch.from_pylist([], schema=schema)
        self._segment = 0
        self._start_segment()

    def add(self, row: Sequence[Any]) -> None:
        """One row, its values in the schema's order."""
        self._rows.append(row)
        if len(self._rows) >= min(FLUSH_ROWS, self._segment_rows - self._written):
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
        self.write(pa.record_batch(arrays, schema=self._schema))
        self._rows.clear()

    def write(self, batch: pa.RecordBatch) -> None:
        """Hands a batch of rows to the operating system."""
        if self._stream.closed:
            self._segment += 1
            self._start_segment()
        self._batches.write_batch(batch)
        self._batches.write_batch(self._nothing, custom_metadata={_CRC: str(self._stream.crc)})
        self._stream.flush()
        self._written += batch.num_rows
        if self._written >= self._segment_rows:
            self._end_segment()

    def close(self) -> None:
        """Flushes and ends the stream."""
        self.flush()
        self.closed = True
        if not self._stream.closed:
            self._end_segment()

    def _start_segment(self) -> None:
        self._stream = _Summed(segment_path(self._path, self._segment), _first_crc(self._segment))
        self._batches = pa.ipc.new_stream(
            self._stream,
            self._schema,
            options=pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=False),
        )
        self._written = 0

    def _end_segment(self) -> None:
        end = {_CRC: str(self._stream.crc), _ROWS: str(self._written)}
        self._batches.write_batch(self._nothing, custom_metadata=end)
        self._batches.close()
        self._stream.close()
        self._written = 0


def _first_crc(segment: int) -> int:
    return zlib.crc32(str(segment).encode()) if segment else 0


class _Summed(io.FileIO):
    """A new file that keeps the CRC-32 of everything written to it."""

    def __init__(self, path: Path, crc: int) -> None:
        super().__init__(path, "x")
        self.crc = crc

    def write(self, data: Any) -> int:
        """Write all of `data`; a raw file may write only a part."""
        remaining = memoryview(data).cast("B")
        self.crc = zlib.crc32(remaining, self.crc)
        size = len(remaining)
        while remaining:
            remaining = remaining[super().write(remaining) :]
        return size


def _column(field: Any, values: Sequence[Any]) -> Any:
    if pa.types.is_dictionary(field.type):
        return pa.array(values, type=pa.string()).dictionary_encode()
    return pa.array(values, type=field.type)


class BatchReader:
    """Reads a segment batch by batch: the rows that certainly equal the written ones. `is_torn`: its tail is lost;
    `defects`: why it is incomplete, as sentences without the file's name. Both are complete when `batches` ends."""

    def __init__(self, path: Path, schema: pa.Schema, segment: int = 0, *, earlier: pa.Schema | None = None) -> None:
        """`earlier`: a schema that is accepted as well. Raises OSError."""
        self.defects: list[str] = []
        self._data = read_bytes(path)
        self._schemas = [schema] if earlier is None else [schema, earlier]
        self._crc = _first_crc(segment)
        self._summed = 0
        self._rows = 0
        self._ended = False
        self._changed = False

    @property
    def is_torn(self) -> bool:
        return not self._ended and not self._changed

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches whose checksum is correct, up to the first one that is torn or damaged."""
        try:
            yield from self._checked()
        except (pa.ArrowException, OSError, EOFError, ValueError, MemoryError) as error:
            self._lose_tail(str(error).splitlines()[0] if str(error) else type(error).__name__)
        if self.is_torn and not self.defects:
            self._lose_tail("it has no end mark")

    def _checked(self) -> Iterator[pa.RecordBatch]:
        """Raises what pyarrow does for a stream that is cut or damaged."""
        source = pa.BufferReader(self._data)
        with pa.ipc.open_stream(source, options=_IN_THIS_THREAD) as stream:
            if not any(map(stream.schema.equals, self._schemas)):
                self._refuse("it does not have the columns of operations; was it written by another version?")
                return
            waiting: list[pa.RecordBatch] = []
            batch_start = 0  # where the bytes before the next batch end
            while not self._changed and (message := _next(stream)) is not None:
                if self._ended:
                    self._refuse("it goes on behind its end mark")
                elif message.custom_metadata is None or _CRC.encode() not in message.custom_metadata:
                    waiting.append(message.batch)
                elif self._matches(message.custom_metadata, batch_start):
                    self._rows += sum(batch.num_rows for batch in waiting)
                    yield from waiting
                    waiting.clear()
                    self._look_for_end(message.custom_metadata)
                batch_start = source.tell()
        if self._ended and source.tell() != len(self._data):
            self.defects.append("it goes on behind its end mark")

    def _matches(self, metadata: Any, batch_start: int) -> bool:
        self._crc = zlib.crc32(memoryview(self._data)[self._summed : batch_start], self._crc)
        self._summed = batch_start
        is_same: bool = metadata[_CRC.encode()] == str(self._crc).encode()
        if not is_same:
            self._changed = True
            self._lose_tail("it is damaged there")
        return is_same

    def _look_for_end(self, metadata: Any) -> None:
        if _ROWS.encode() not in metadata:
            return
        self._ended = True
        stated = metadata[_ROWS.encode()].decode(errors="replace")
        if stated != str(self._rows):
            self.defects.append(f"it ends with {counted(self._rows, 'row')}, but its end mark says {stated}")

    def _refuse(self, reason: str) -> None:
        self._changed = True
        self.defects.append(reason)

    def _lose_tail(self, reason: str) -> None:
        self.defects.append(f"what follows its first {counted(self._rows, 'row')} is lost: {reason}")


def _next(stream: Any) -> Any:
    try:
        return stream.read_next_batch_with_custom_metadata()
    except StopIteration:
        return None
