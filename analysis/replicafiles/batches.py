"""Record batches, message format 2: a header with the leader epoch and a CRC-32C, then records of varints."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from analysis.replicafiles.digest import PADDING, Bytes, digest_of, mix, words_of
from analysis.replicafiles.log import I64, NO_VALUE, Columns, joined

MAGIC: Final = 2
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
MAGIC_AT: Final = 16
CRC_FROM: Final = 21  # the CRC covers everything from the attributes on
LENGTH_FROM: Final = 12  # the length counts everything behind itself
COMPRESSION: Final = 0x07
CONTROL: Final = 0x20
# Handled together, so that their columns stay in the processor's cache.
BATCHES_AT_ONCE: Final = 4096
RECORDS_AT_ONCE: Final = 16384

# Columns of a table of batches, one row each.
BASE, NEXT, EPOCH, ATTRIBUTES, TIMESTAMP, COUNT, CRC, RECORDS_AT, END_AT = range(9)


class Batches(NamedTuple):
    """Intact batches in a row: their table of shape (batches, 9), the place and offset behind them, and why they end
    there, if not because the segment does or goes on in another format."""

    table: I64
    position: int
    expected: int
    damage: str


def scan(data: bytes, position: int, expected: int) -> Batches:
    """The intact batches from a place on; `expected`: the offset at which the first of them is due."""
    batches: list[tuple[int, ...]] = []
    view = memoryview(data)
    size, damage = len(data), ""
    while position < size and not damage:
        if size - position < HEADER.size:
            if size - position > MAGIC_AT and data[position + MAGIC_AT] != MAGIC:
                break
            damage = f"{size - position} bytes of a torn batch at {position}"
            break
        base, length, epoch, magic, crc, attributes, delta, timestamp, _, _, _, _, count = HEADER.unpack_from(
            data, position
        )
        if magic != MAGIC:
            break
        end = position + LENGTH_FROM + length
        if length < HEADER.size - LENGTH_FROM or delta < 0:
            damage = f"{size - position} bytes of no batch at {position}"
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
    return Batches(np.array(batches, np.int64).reshape(-1, 9), position, expected, damage)


def opaque_ranges(batches: I64) -> list[tuple[int, int]]:
    """The offsets (first, behind the last) of the compressed batches, which are not opened."""
    compressed = batches[(batches[:, ATTRIBUTES] & COMPRESSION) != 0]
    return [(int(batch[BASE]), int(batch[NEXT])) for batch in compressed]


def records_of(data: bytes, batches: I64) -> Columns:
    """Offset, epoch, value and digest of every record of a segment."""
    buffer = np.frombuffer(data + bytes(PADDING), np.uint8)
    is_opaque = (batches[:, ATTRIBUTES] & COMPRESSION) != 0
    plain, opaque = batches[~is_opaque], batches[is_opaque]
    pieces = [_plain_records(buffer, plain[at : at + BATCHES_AT_ONCE]) for at in range(0, len(plain), BATCHES_AT_ONCE)]
    pieces += [_opaque_records(batch) for batch in opaque]
    found = joined(pieces)
    if not len(opaque):
        return found
    order = np.argsort(found.offset, kind="stable")
    return Columns(found.offset[order], found.epoch[order], found.value[order], found.digest[order])


def _opaque_records(batch: I64) -> Columns:
    """Of a compressed batch: one element per offset, so that equal batches give equal digests."""
    offset = np.arange(batch[BASE], batch[NEXT])
    digest = mix(offset.astype(np.uint64) ^ np.uint64(int(batch[CRC]) << 32))
    return Columns(offset, np.full(len(offset), batch[EPOCH]), np.full(len(offset), NO_VALUE), digest)


def _plain_records(buffer: Bytes, batches: I64) -> Columns:
    batch_of, offset, timestamp, key_at, end_at, value_at, value_size = _parse(buffer, batches)
    order = np.argsort(offset, kind="stable")
    value = np.full(len(offset), NO_VALUE, np.int64)
    carries = np.flatnonzero((value_size >= 8) & ((batches[batch_of, ATTRIBUTES] & CONTROL) == 0))
    value[carries] = words_of(buffer, ">i8")[value_at[carries]]
    digest = np.empty(len(offset), np.uint64)
    for first in range(0, len(offset), RECORDS_AT_ONCE):
        some = slice(first, first + RECORDS_AT_ONCE)
        digest[some] = digest_of(buffer, key_at[some], end_at[some], timestamp[some])
    return Columns(offset[order], batches[batch_of, EPOCH][order], value[order], digest[order])


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
