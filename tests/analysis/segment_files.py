"""Writes replica files byte by byte, from the description of Kafka's record batch format 2."""

import struct
from collections.abc import Sequence
from pathlib import Path

import crc32c

from tests.analysis.compressed_sets import compressed


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


def batch(
    base: int,
    epoch: int,
    records: Sequence[bytes],
    *,
    attributes: int = 0,
    time: int = 1_000,
    latest: int | None = None,
    last: int | None = None,
    count: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: int = 0,
) -> bytes:
    """A batch; `latest` (timestamp), `last` (offset delta) and `count` are what they should be unless they are given.
    `producer`: its id and epoch, and the sequence of the first record. `codec`: one of `compressed_sets.ALL`, in which
    the records are compressed. `attributes` alone say so of records that are not."""
    count = len(records) if count is None else count
    last = len(records) - 1 if last is None else last
    if latest is None:
        latest = time if attributes & 7 else time + max(map(_time_delta, records), default=0)
    content = b"".join(records)
    if codec:
        attributes, content = attributes | codec & 7, compressed(codec, content)
    checked = struct.pack(">hiqqqhii", attributes, last, time, latest, *producer, count) + content
    return struct.pack(">qiibI", base, len(checked) + 9, epoch, 2, crc32c.crc32c(checked)) + checked


def _time_delta(record: bytes) -> int:
    _, at = _varint(record, 0)
    return _varint(record, at + 1)[0]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return (number >> 1) ^ -(number & 1), at


def value(number: int, size: int = 8) -> bytes:
    words = [(number + i * 0x9E3779B97F4A7C15) % 2**64 for i in range(-(-size // 8))]
    return b"".join(word.to_bytes(8, "big") for word in words)[:size]


def log_bytes(epochs: Sequence[int], values: Sequence[int], *, start: int = 0, codec: int = 0) -> bytes:
    """One batch per record."""
    pairs = enumerate(zip(epochs, values, strict=True))
    return b"".join(
        batch(start + i, epoch, [record(0, value(number, 20))], codec=codec) for i, (epoch, number) in pairs
    )


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


def write_identity(data: Path, number: int, *, cluster: str = "story", topics: Sequence[str] = ("log",)) -> None:
    """Whose a data directory is, and which topic its replicas are of."""
    data.mkdir(parents=True, exist_ok=True)
    (data / "meta.properties").write_text(f"version=1\nnode.id={number}\ncluster.id={cluster}\n")
    for topic in topics:
        for directory in data.glob(f"{topic}-[0-9]*"):
            (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: id-of-{topic}\n")


def write_high_watermarks(data: Path, marks: dict[tuple[str, int], int]) -> None:
    write_checkpoint(data / "replication-offset-checkpoint", marks)


def write_checkpoint(path: Path, offsets: dict[tuple[str, int], int]) -> None:
    """A file with an offset for each partition."""
    lines = ["0", str(len(offsets)), *(f"{topic} {number} {offset}" for (topic, number), offset in offsets.items())]
    path.write_text("\n".join(lines) + "\n")
