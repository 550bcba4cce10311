"""Reads the files of Kafka replicas: log segments (record batch format 2), leader epochs, high watermarks.

Written from the format's specification and independent of the broker under test, whose files it judges. A log ends
where its bytes stop being intact batches: a torn tail, a run of zeros (what a file system may leave after a power cut)
or a CRC-32C that does not match. What lies behind is counted, never interpreted.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CRC_FROM: Final = 21  # the CRC covers everything from the attributes on
LENGTH_FROM: Final = 12  # the length counts everything behind itself
COMPRESSION: Final = 0x07
CONTROL: Final = 0x20
# Handled together, so that their columns stay in the processor's cache.
BATCHES_AT_ONCE: Final = 4096
RECORDS_AT_ONCE: Final = 16384
LARGE: Final = 4096  # bytes of a record from which on it is digested on its own
NO_VALUE: Final = -2
"""The value of a record that carries none: shorter than 8 bytes, a control record, or inside a compressed batch."""


class ReplicaFileError(Exception):
    """A replica's file is not what its name says; the message names it."""


@dataclass(frozen=True)
class ReplicaLog:
    """One replica of one partition, as its files have it.

    `offset`, `epoch`, `value`, `digest` are parallel, one element per record, offsets ascending; `value` is the int64
    that the record carries, `digest` covers timestamp, key, value and headers. `epochs`: entries (epoch, start offset)
    of its epoch file. `high_watermark`: as last written to disk, -1 if never. `damage`: why the log ends where it does,
    if bytes lie behind its end.
    """

    node: str
    topic: str
    partition: int
    start: int
    end: int
    offset: I64
    epoch: I64
    value: I64
    digest: U64
    epochs: tuple[tuple[int, int], ...]
    high_watermark: int
    damage: str = ""

    def at(self, offset: int) -> dict[str, Any] | None:
        """The record at an offset as a witness shows it, or None when the replica has none there."""
        index = int(np.searchsorted(self.offset, offset))
        if index == len(self.offset) or self.offset[index] != offset:
            return None
        digest = f"{int(self.digest[index]):016x}"
        fields = {"offset": offset, "epoch": int(self.epoch[index]), "value": int(self.value[index]), "digest": digest}
        return {"op": "record", "node": self.node, "topic": self.topic, "partition": self.partition, **fields}


def read_node(node: str, data: Path | str) -> list[ReplicaLog]:
    """All replicas in a node's collected data directory, by topic and partition; internal topics are left out.

    Raises ReplicaFileError when a checkpoint in it is not one.
    """
    root = Path(data)
    marks = read_high_watermarks(root / "replication-offset-checkpoint")
    found = []
    for directory in root.iterdir() if root.is_dir() else ():
        name = re.fullmatch(r"(.+)-(\d+)", directory.name)
        if name is None or name[1].startswith("__") or not directory.is_dir():
            continue
        key = (name[1], int(name[2]))
        found.append(read_replica(node, *key, directory, high_watermark=marks.get(key, -1)))
    return sorted(found, key=lambda log: (log.topic, log.partition))


def read_replica(
    node: str, topic: str, partition: int, directory: Path | str, *, high_watermark: int = -1
) -> ReplicaLog:
    """One replica from its directory. Raises ReplicaFileError when its epoch file is damaged."""
    path = Path(directory)
    segments = sorted(path.glob("[0-9]*.log"))
    start = int(segments[0].stem) if segments else 0
    expected, damage = start, ""
    columns: list[tuple[I64, I64, I64, U64]] = [_nothing()]
    for number, segment in enumerate(segments):
        data = segment.read_bytes()
        if int(segment.stem) != expected:
            damage = f"{segment.name} begins at its name's offset, but the log before it ends at {expected}"
            break
        batches, damage = _batches(data, expected)
        columns.append(_records(data, batches))
        expected = int(batches[-1, NEXT]) if len(batches) else expected
        if damage:
            behind = sum(each.stat().st_size for each in segments[number + 1 :])
            damage = f"{segment.name}: {damage}" + (f"; {behind} bytes of later segments" if behind else "")
            break
    offset, epoch, value = (np.concatenate([each[i] for each in columns]) for i in range(3))
    digest = np.concatenate([each[3] for each in columns])
    epochs = read_epochs(path / "leader-epoch-checkpoint")
    return ReplicaLog(
        node, topic, partition, start, expected, offset, epoch, value, digest, epochs, high_watermark, damage
    )


def read_epochs(path: Path) -> tuple[tuple[int, int], ...]:
    """Entries (epoch, start offset) of a `leader-epoch-checkpoint`; none when there is no such file."""
    return tuple((int(epoch), int(start)) for epoch, start in _checkpoint(path, 2))


def read_high_watermarks(path: Path) -> dict[tuple[str, int], int]:
    """The high watermarks of a `replication-offset-checkpoint` by partition; empty when there is no such file."""
    return {(topic, int(partition)): int(offset) for topic, partition, offset in _checkpoint(path, 3)}


def _checkpoint(path: Path, columns: int) -> Iterator[list[str]]:
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    try:
        if int(lines[0]) != 0 or int(lines[1]) != len(lines) - 2:
            raise ValueError(f"version {lines[0]}, {lines[1]} entries announced, {len(lines) - 2} found")
        for line in lines[2:]:
            words = line.split(" ")
            if len(words) != columns:
                raise ValueError(f"entry {line!r} has not {columns} columns")
            [int(word) for word in words[-2:]]
            yield words
    except (ValueError, IndexError) as error:
        raise ReplicaFileError(f"{path}: not a checkpoint file: {error}") from error


# Columns of a table of batches, one row each.
BASE, NEXT, EPOCH, ATTRIBUTES, TIMESTAMP, COUNT, CRC, RECORDS_AT, END_AT = range(9)


def _batches(data: bytes, expected: int) -> tuple[I64, str]:
    """The intact batches at the start of a segment, shape (batches, 9), and why they end if they do not fill it."""
    batches: list[tuple[int, ...]] = []
    view = memoryview(data)
    position, size, damage = 0, len(data), ""
    while position < size and not damage:
        if size - position < HEADER.size:
            damage = f"{size - position} bytes of a torn batch at {position}"
            break
        base, length, epoch, magic, crc, attributes, delta, timestamp, _, _, _, _, count = HEADER.unpack_from(
            data, position
        )
        end = position + LENGTH_FROM + length
        if magic != 2 or length < HEADER.size - LENGTH_FROM or delta < 0:
            zeros = not any(view[position : position + HEADER.size])
            damage = f"{size - position} bytes of {'zeros' if zeros else 'no batch'} at {position}"
        elif end > size:
            damage = f"{size - position} bytes of a torn batch at {position}"
        elif crc32c(view[position + CRC_FROM : end]) != crc:
            damage = f"the batch at {position} does not match its CRC-32C"
        elif base != expected:
            damage = f"the batch at {position} has base offset {base} where {expected} is due"
        else:
            expected = base + delta + 1
            batches.append((base, expected, epoch, attributes, timestamp, count, crc, position + HEADER.size, end))
            position = end
    return np.array(batches, np.int64).reshape(-1, 9), damage


def _nothing() -> tuple[I64, I64, I64, U64]:
    empty = np.empty(0, np.int64)
    return empty, empty, empty, empty.astype(np.uint64)


def _records(data: bytes, batches: I64) -> tuple[I64, I64, I64, U64]:
    """Offset, epoch, value and digest of every record of a segment."""
    buffer = np.frombuffer(data + bytes(16), np.uint8)
    is_opaque = (batches[:, ATTRIBUTES] & COMPRESSION) != 0
    plain, opaque = batches[~is_opaque], batches[is_opaque]
    pieces = [_plain_records(buffer, plain[at : at + BATCHES_AT_ONCE]) for at in range(0, len(plain), BATCHES_AT_ONCE)]
    pieces += [_opaque_records(batch) for batch in opaque]
    pieces.append(_nothing())
    offset, epoch, value = (np.concatenate([piece[i] for piece in pieces]) for i in range(3))
    digest = np.concatenate([piece[3] for piece in pieces])
    if not len(opaque):
        return offset, epoch, value, digest
    order = np.argsort(offset, kind="stable")
    return offset[order], epoch[order], value[order], digest[order]


def _opaque_records(batch: I64) -> tuple[I64, I64, I64, U64]:
    """Of a compressed batch: one element per offset, so that equal batches give equal digests."""
    offset = np.arange(batch[BASE], batch[NEXT])
    digest = _mix(offset.astype(np.uint64) ^ np.uint64(int(batch[CRC]) << 32))
    return offset, np.full(len(offset), batch[EPOCH]), np.full(len(offset), NO_VALUE), digest


def _plain_records(buffer: Bytes, batches: I64) -> tuple[I64, I64, I64, U64]:
    batch_of, offset, timestamp, key_at, end_at, value_at, value_size = _parse(buffer, batches)
    order = np.argsort(offset, kind="stable")
    value = np.full(len(offset), NO_VALUE, np.int64)
    carries = np.flatnonzero((value_size >= 8) & ((batches[batch_of, ATTRIBUTES] & CONTROL) == 0))
    value[carries] = _words(buffer, ">i8")[value_at[carries]]
    digest = np.empty(len(offset), np.uint64)
    for first in range(0, len(offset), RECORDS_AT_ONCE):
        some = slice(first, first + RECORDS_AT_ONCE)
        digest[some] = _digest(buffer, key_at[some], end_at[some], timestamp[some])
    return offset[order], batches[batch_of, EPOCH][order], value[order], digest[order]


def _parse(buffer: Bytes, batches: I64) -> list[I64]:
    """Where each record lies: the first records of all batches are read together, then the second ones, and so on."""
    count, at, limit = batches[:, COUNT], batches[:, RECORDS_AT].copy(), batches[:, END_AT]
    found: list[tuple[I64, ...]] = [tuple(np.empty((7, 0), np.int64))]
    for index in range(int(count.max(initial=0))):
        active = np.flatnonzero((count > index) & (at < limit))
        body, length = _varint(buffer, at[active])
        end = np.clip(body + length, 0, limit[active])
        offset_delta_at, stamp_delta = _varint(buffer, body + 1)  # behind the record's attributes
        key_at, offset_delta = _varint(buffer, offset_delta_at)
        key_from, key_size = _varint(buffer, key_at)
        value_from, value_size = _varint(buffer, np.minimum(key_from + np.maximum(key_size, 0), limit[active]))
        value_size = np.where(value_from + value_size <= end, value_size, -1)
        offset, timestamp = batches[active, BASE] + offset_delta, batches[active, TIMESTAMP] + stamp_delta
        found.append((active, offset, timestamp, key_at, end, value_from, value_size))
        at[active] = end
    return [np.concatenate([each[i] for each in found]) for i in range(7)]


def _varint(buffer: Bytes, at: I64) -> tuple[I64, I64]:
    """Zigzag varints at many places: the places behind them, and their values."""
    at = at.copy()
    raw = np.zeros(len(at), np.uint64)
    more = np.arange(len(at))
    for shift in range(0, 70, 7):
        byte = buffer[np.minimum(at[more], len(buffer) - 1)].astype(np.uint64)
        raw[more] |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        at[more] += 1
        more = more[byte >= 0x80]
        if not len(more):
            break
    return at, (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64)


def _words(buffer: Bytes, kind: str) -> Any:
    """Every 8 consecutive bytes of the buffer as an integer, by the place of the first."""
    return np.ndarray((len(buffer) - 7,), np.dtype(kind), buffer, strides=(1,))


def _digest(buffer: Bytes, start: I64, end: I64, seed: I64) -> U64:
    """A 64-bit digest of each byte range, word by word over all ranges at once; `seed` is digested too."""
    words = _words(buffer, "<u8")
    digest = _mix(seed.astype(np.uint64) ^ ((end - start).astype(np.uint64) << np.uint64(40)))
    at, left, active = start.copy(), end - start, np.arange(len(start))
    large = np.flatnonzero(left >= LARGE)  # word by word, few large ranges would take a Python step for each word
    whole = [hashlib.blake2b(buffer[start[each] : end[each]].data, digest_size=8).digest() for each in large]
    digest[large] = _mix(digest[large] ^ np.frombuffer(b"".join(whole), "<u8"))
    left[large] = 0
    while len(active := active[left[active] > 0]):
        where, some, shortest = at[active], digest[active], int(left[active].min())
        if shortest < 8:  # what lies behind a range's end is not part of it
            unused = (np.maximum(8 - left[active], 0) * 8).astype(np.uint64)
            some = _mix(some ^ ((words[where] << unused) >> unused))
        for word in range(0, shortest - 7, 8):
            some = _mix(some ^ words[where + word])
        done = max(shortest // 8, 1) * 8
        digest[active] = some
        at[active] += done
        left[active] -= done
    return digest


def _mix(x: U64) -> U64:
    """A bijection of 64-bit integers that spreads every bit over all (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))
