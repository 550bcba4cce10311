"""Writes replicas of the offsets topic byte by byte, from the description of Kafka's formats."""

import struct
from collections.abc import Sequence
from pathlib import Path

from tests.analysis.segment_files import batch, record, write_high_watermarks, write_replica

TOPIC = "__consumer_offsets"


def key(partition: int, *, group: str = "log-group", topic: str = "log", version: int = 1) -> bytes:
    texts = b"".join(struct.pack(">h", len(text)) + text.encode() for text in (group, topic))
    return struct.pack(">h", version) + texts + struct.pack(">i", partition)


def value(offset: int, *, version: int = 3) -> bytes:
    return struct.pack(">hqihq", version, offset, -1, 0, 1_000)


def commit_batch(at: int, partition: int, offset: int | None, *, epoch: int = 0) -> bytes:
    """A batch with one commit at an offset of the offsets log; without `offset` it removes the earlier one."""
    content = None if offset is None else value(offset)
    return batch(at, epoch, [record(0, content, key=key(partition))])


def group_batch(at: int) -> bytes:
    """A batch with the record of a group."""
    name = struct.pack(">h", 2) + struct.pack(">h", 9) + b"log-group"
    return batch(at, 0, [record(0, b"\0\3a group", key=name)])


def write_offsets(data: Path, batches: Sequence[bytes], *, number: int = 0, high_watermark: int = 1 << 40) -> Path:
    """A node's replica of one partition of the offsets topic, and its high watermark."""
    data.mkdir(parents=True, exist_ok=True)
    write_high_watermarks(data, {(TOPIC, number): high_watermark})
    return write_replica(data, TOPIC, number, {0: b"".join(batches)})
