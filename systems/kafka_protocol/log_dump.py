"""Reads the batches in a partition's segment files and prints them as `kafka-dump-log` does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.protocol.records import (
    BatchHeader,
    CorruptBatch,
    Record,
    UnsupportedCompression,
    iter_batches,
    read_records,
    validate_batch,
)
from history.regular_files import read_bytes
from systems.errors import InputError

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TRANSACTIONAL = 0x10
_APPEND_TIME = 0x08


@dataclass(frozen=True)
class DumpedBatch:
    """One batch with its position in the file; `problem`: what is wrong with its bytes."""

    position: int
    header: BatchHeader
    problem: str


@dataclass(frozen=True)
class DumpedSegment:
    """One `.log` file. `torn`: describes the bytes after its last whole batch; empty if nothing follows it."""

    path: Path
    data: bytes
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
        for position, header in iter_batches(data):
            batches.append(DumpedBatch(position, header, _problem(data, position)))
            end = position + header.size
    except CorruptBatch as error:
        torn = str(error)
    if not torn and end < len(data):
        torn = f"position {end}: {len(data) - end} bytes of an incomplete batch"
    return DumpedSegment(path, data, tuple(batches), torn)


def _problem(data: bytes, position: int) -> str:
    try:
        validate_batch(data, position, compacted=True)
    except CorruptBatch as error:
        return str(error)
    return ""


def lines(segment: DumpedSegment, *, records: bool) -> Iterator[str]:
    """The lines that `kafka-dump-log` prints for the segment, and the segment's problems."""
    yield f"Dumping {segment.path}"
    yield f"Log starting offset: {int(segment.path.stem) if segment.path.stem.isdigit() else '?'}"
    for batch in segment.batches:
        yield " ".join(f"{name}: {_text(value)}" for name, value in _fields(batch).items())
        if batch.problem:
            yield f"  {batch.problem}"
        elif records:
            yield from (f"| {line}" for line in _record_lines(segment.data, batch))
    if segment.torn:
        yield f"Found bytes that are not a batch: {segment.torn}"


def to_json(segment: DumpedSegment, *, records: bool) -> dict[str, Any]:
    """The same content as JSON data."""
    return {
        "segment": str(segment.path),
        "torn": segment.torn,
        "batches": [
            _fields(batch) | ({"records": list(_record_lines(segment.data, batch))} if records else {})
            for batch in segment.batches
        ],
    }


def _fields(batch: DumpedBatch) -> dict[str, Any]:
    header = batch.header
    codec = header.compression
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": bool(header.attributes & _TRANSACTIONAL),
        "isControl": header.is_control,
        "position": batch.position,
        "LogAppendTime" if header.attributes & _APPEND_TIME else "CreateTime": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": _CODECS[codec] if codec < len(_CODECS) else str(codec),
        "crc": header.crc,
        "isvalid": not batch.problem,
    }


def _record_lines(data: bytes, batch: DumpedBatch) -> Iterator[str]:
    try:
        records = read_records(data, batch.position)
    except (UnsupportedCompression, CorruptBatch) as error:
        yield str(error)
        return
    yield from (_record_line(record) for record in records)


def _record_line(record: Record) -> str:
    key = -1 if record.key is None else len(record.key)
    value = b"" if record.value is None else record.value
    size = -1 if record.value is None else len(value)
    shown = value[:16].hex() + ("..." if len(value) > 16 else "")
    return f"offset: {record.offset} CreateTime: {record.timestamp} keySize: {key} valueSize: {size} payload: {shown}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
