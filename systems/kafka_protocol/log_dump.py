"""Prints the batches in a partition's segment files as `kafka-dump-log` does."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from history.kafka.compression import CODECS
from history.kafka.record_batches import (
    APPEND_TIME,
    COMPRESSION,
    TRANSACTIONAL,
    DamagedBatchError,
    Header,
    ReadRecord,
    batches_in,
    flaw_of,
    records_in,
)
from history.regular_files import read_bytes
from systems.errors import InputError


@dataclass(frozen=True)
class DumpedBatch:
    """One batch with its position in the file; `problem`: what is wrong with its bytes."""

    position: int
    header: Header
    content: bytes
    problem: str


@dataclass(frozen=True)
class DumpedSegment:
    """One `.log` file. `torn`: describes the bytes after its last whole batch; empty if nothing follows it."""

    path: Path
    batches: tuple[DumpedBatch, ...]
    torn: str


def segments(path: Path) -> Iterator[DumpedSegment]:
    """The segments of a partition's directory in the order of their offsets, or the one given file.

    Raises `InputError` without any segment.
    """
    files = sorted(path.glob("[!.]*.log")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: no segment files (*.log) here; give a partition's directory, such as .../log-0")
    for file in files:
        yield _read(file)


def _read(path: Path) -> DumpedSegment:
    try:
        data = read_bytes(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    batches: list[DumpedBatch] = []
    end, torn = 0, ""
    try:
        for header, content in batches_in(data):
            batches.append(DumpedBatch(end, header, content, flaw_of(header, content, compacted=True) or ""))
            end += header.size
    except DamagedBatchError as error:
        torn = f"position {end}: {error}"
    return DumpedSegment(path, tuple(batches), torn)


def lines(segment: DumpedSegment, *, records: bool) -> Iterator[str]:
    """The lines that `kafka-dump-log` prints for the segment, and the segment's problems."""
    yield f"Dumping {segment.path}"
    yield f"Log starting offset: {int(segment.path.stem) if segment.path.stem.isdigit() else '?'}"
    for batch in segment.batches:
        yield " ".join(f"{name}: {_text(value)}" for name, value in _fields(batch).items())
        if batch.problem:
            yield f"  position {batch.position}: {batch.problem}"
        elif records:
            yield from (f"| {line}" for line in _record_lines(batch))
    if segment.torn:
        yield f"Found bytes that are not a batch: {segment.torn}"


def to_json(segment: DumpedSegment, *, records: bool) -> dict[str, Any]:
    """The same content as JSON data."""
    return {
        "segment": str(segment.path),
        "torn": segment.torn,
        "batches": [
            _fields(batch) | ({"records": list(_record_lines(batch))} if records else {}) for batch in segment.batches
        ],
    }


def _fields(batch: DumpedBatch) -> dict[str, Any]:
    header = batch.header
    codec = header.attributes & COMPRESSION
    return {
        "baseOffset": header.base,
        "lastOffset": header.next - 1,
        "count": header.records,
        "baseSequence": header.sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.epoch,
        "isTransactional": bool(header.attributes & TRANSACTIONAL),
        "isControl": header.is_control,
        "position": batch.position,
        "LogAppendTime" if header.attributes & APPEND_TIME else "CreateTime": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": CODECS.get(codec, str(codec)) if codec else "none",
        "crc": header.crc,
        "isvalid": not batch.problem,
    }


def _record_lines(batch: DumpedBatch) -> Iterator[str]:
    try:
        for record in records_in(batch.header, batch.content):
            yield _record_line(record)
    except DamagedBatchError as error:
        yield str(error)


def _record_line(record: ReadRecord) -> str:
    key = -1 if record.key is None else len(record.key)
    value = b"" if record.value is None else record.value
    size = -1 if record.value is None else len(value)
    shown = value[:16].hex() + ("..." if len(value) > 16 else "")
    return f"offset: {record.offset} CreateTime: {record.timestamp} keySize: {key} valueSize: {size} payload: {shown}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
