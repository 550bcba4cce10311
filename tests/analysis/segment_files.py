"""Writes replica files byte by byte, from the description of Kafka's record batch format 2."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import crc32c


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def nullable(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def record(delta: int, value: bytes | None, *, key: bytes | None = None, time: int = 0, header: bytes = b"") -> bytes:
    headers = zigzag(1) + nullable(b"h") + nullable(header) if header else zigzag(0)
    body = b"\0" + zigzag(time) + zigzag(delta) + nullable(key) + nullable(value) + headers
    return zigzag(len(body)) + body


def batch(base: int, epoch: int, records: Sequence[bytes], *, attributes: int = 0, time: int = 1_000) -> bytes:
    last = len(records) - 1
    checked = struct.pack(">hiqqqhii", attributes, last, time, time, -1, -1, -1, len(records)) + b"".join(records)
    return struct.pack(">qiibI", base, len(checked) + 9, epoch, 2, crc32c.crc32c(checked)) + checked


def value(number: int, size: int = 8) -> bytes:
    return number.to_bytes(8, "big", signed=True) + bytes(size - 8)


def log_bytes(epochs: Sequence[int], values: Sequence[int], *, start: int = 0) -> bytes:
    """One batch per record."""
    pairs = enumerate(zip(epochs, values, strict=True))
    return b"".join(batch(start + i, epoch, [record(0, value(number, 20))]) for i, (epoch, number) in pairs)


def write_replica(
    data: Path,
    topic: str,
    partition: int,
    segments: dict[int, bytes],
    *,
    epochs: Sequence[tuple[int, int]] | None = None,
) -> Path:
    directory = data / f"{topic}-{partition}"
    directory.mkdir(parents=True)
    for base, content in segments.items():
        (directory / f"{base:020d}.log").write_bytes(content)
    if epochs is not None:
        lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
        (directory / "leader-epoch-checkpoint").write_text("\n".join(lines) + "\n")
    return directory


def write_high_watermarks(data: Path, marks: dict[tuple[str, int], int]) -> None:
    lines = ["0", str(len(marks)), *(f"{topic} {partition} {hw}" for (topic, partition), hw in marks.items())]
    (data / "replication-offset-checkpoint").write_text("\n".join(lines) + "\n")
