"""The records of uncompressed batches with their offsets, keys and values: for the system's own topics, whose content
is read and not only compared."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from analysis.replicafiles import batches
from analysis.replicafiles.digest import PADDING
from analysis.replicafiles.log import ReplicaFileError
from history.kafka.record_batches import COMPRESSION, CONTROL, TRANSACTIONAL


class KeyedRecord(NamedTuple):
    """A record. A null key or value is `None`."""

    offset: int
    key: bytes | None
    value: bytes | None


def keyed_records(data: bytes, table: Any, *, transactional: bool = True) -> Iterator[KeyedRecord]:
    """The records of a table of batches (`batches.scan`), without control records. `transactional`: also those of
    transactions. Raises ReplicaFileError."""
    left_out = CONTROL | (0 if transactional else TRANSACTIONAL)
    plain = table[(table[:, batches.ATTRIBUTES] & left_out) == 0]
    if (plain[:, batches.ATTRIBUTES] & COMPRESSION).any():
        raise ReplicaFileError("a batch is compressed")
    buffer = np.frombuffer(data + bytes(PADDING), np.uint8)
    last = plain[:, batches.NEXT] - plain[:, batches.BASE] - 1
    limits = plain[:, batches.RECORDS_AT], plain[:, batches.END_AT], plain[:, batches.COUNT]
    parsed, _, defect = batches.parse(buffer, *limits, last)
    if defect:
        raise ReplicaFileError(f"a batch {defect}")
    offsets = plain[parsed.batch, batches.BASE] + parsed.rank
    columns = (offsets, parsed.key_at, parsed.key_end, parsed.value_at, parsed.value_size)
    for offset, key_at, key_end, at, size in zip(*(column.tolist() for column in columns), strict=True):
        yield KeyedRecord(offset, _key(data, key_at, key_end), data[at : at + size] if size >= 0 else None)


def _key(data: bytes, at: int, end: int) -> bytes | None:
    """The key between its length's position and its end. Its length is a zigzag varint; 1 means null."""
    if data[at] == 1:
        return None
    while data[at] & 0x80:
        at += 1
    return data[at + 1 : end]
