"""Record batches, message format 2: a header with the leader epoch and a CRC-32C, then records of varints.

What the CRC does not cover (base offset, length, leader epoch, magic) may be damaged by a disk. What it covers is as the
system wrote it: a batch that matches its CRC and contradicts itself is malformed, not damaged.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from analysis.replicafiles.digest import PADDING, Bytes, are_derived, digest_of, mix, words_of
from analysis.replicafiles.log import CONTROL, I64, NO_VALUE, U64, Bools, Columns, Stop, joined
from analysis.replicafiles.records import Records, parse
from history.values import VALUE_BYTES

MAGIC: Final = 2
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
MAGIC_AT: Final = 16
CRC_FROM: Final = 21  # the CRC covers everything from the attributes on
LENGTH_FROM: Final = 12  # the length counts everything behind itself
COMPRESSION: Final = 0x07
CODECS: Final = 5
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
IS_CONTROL: Final = 0x20
KNOWN_ATTRIBUTES: Final = COMPRESSION | APPEND_TIME | TRANSACTIONAL | IS_CONTROL
MOST_PER_BYTE: Final = 200  # records that one byte of a compressed batch may stand for; more are not believed
# Handled together, so that their columns stay in the processor's cache.
BATCHES_AT_ONCE: Final = 4096
RECORDS_AT_ONCE: Final = 16384

# Columns of a table of batches, one row each.
BASE, NEXT, EPOCH, ATTRIBUTES, TIMESTAMP, LATEST, PRODUCER, PRODUCER_EPOCH, SEQUENCE, COUNT, CRC, AT, END_AT = range(13)


class Batches(NamedTuple):
    """Intact batches in a row: their table of shape (batches, 13), the place and offset behind them, why they end
    there, if not because the segment does or goes on in another format, and the offsets (first, behind the last) that
    they skip."""

    table: I64
    position: int
    expected: int
    stop: Stop | None
    gaps: tuple[tuple[int, int], ...]


def scan(data: bytes, position: int, expected: int) -> Batches:
    """The intact batches from a place on; `expected`: the offset at which the first of them is due."""
    batches: list[tuple[int, ...]] = []
    gaps: list[tuple[int, int]] = []
    view = memoryview(data)
    size, stop = len(data), None
    while position < size:
        if size - position < HEADER.size:
            if size - position > MAGIC_AT and data[position + MAGIC_AT] != MAGIC:
                break
            stop = Stop("damage", f"{size - position} bytes of a torn batch at {position}")
            break
        header = HEADER.unpack_from(data, position)
        base, length, epoch, magic, crc, attributes, delta, first, latest, producer, term, sequence, count = header
        if magic != MAGIC:
            break
        end = position + LENGTH_FROM + length
        if length < HEADER.size - LENGTH_FROM:
            stop = Stop("damage", f"{size - position} bytes of no batch at {position}")
        elif end > size:
            stop = Stop("damage", f"{size - position} bytes of a torn batch at {position}")
        elif crc32c(view[position + CRC_FROM : end]) != crc:
            stop = Stop("damage", f"the batch at {position} does not match its CRC-32C")
        elif epoch < 0:
            stop = Stop("damage", f"the batch at {position} has no leader epoch")
        elif base < expected or (base > expected and not _goes_on(data, end, base + delta + 1)):
            stop = Stop("damage", f"the batch at {position} has base offset {base} where {expected} is due")
        elif attributes & ~KNOWN_ATTRIBUTES or attributes & COMPRESSION >= CODECS:
            stop = Stop("unread", f"the batch at {position} has attributes {attributes:#06x}, which are not known")
        elif why := _miscounted(delta, count, end - position, attributes):
            stop = Stop("malformed", f"the batch at {position} {why}")
        if stop is not None:
            break
        if base > expected:
            gaps.append((expected, base))
        expected = base + delta + 1
        row = (base, expected, epoch, attributes, first, latest, producer, term, sequence, count, crc, position, end)
        batches.append(row)
        position = end
    return Batches(np.array(batches, np.int64).reshape(-1, 13), position, expected, stop, tuple(gaps))


def _goes_on(data: bytes, position: int, expected: int) -> bool:
    """Whether the next batch has this offset. Two batches that agree about their offsets are not two accidents."""
    if len(data) - position < HEADER.size or data[position + MAGIC_AT] != MAGIC:
        return False
    return bool(struct.unpack_from(">q", data, position)[0] == expected)


def _miscounted(delta: int, count: int, size: int, attributes: int) -> str:
    """What is wrong with a batch's count of records."""
    if count <= 0 or delta != count - 1:
        return f"has {count} records and the last offset delta {delta}"
    if attributes & COMPRESSION and count > size * MOST_PER_BYTE:
        return f"of {size} bytes has {count} records"
    return ""


def opaque_ranges(batches: I64) -> list[tuple[int, int]]:
    """The offsets (first, behind the last) of the compressed batches, which are not opened."""
    compressed = batches[(batches[:, ATTRIBUTES] & COMPRESSION) != 0]
    return [(int(batch[BASE]), int(batch[NEXT])) for batch in compressed]


def records_of(data: bytes, batches: I64) -> tuple[Columns, int, str]:
    """Every record of a segment's batches up to the first malformed one: the number of that one, and what is wrong
    with it; the number of batches and an empty text if there is none."""
    buffer = np.frombuffer(data + bytes(PADDING), np.uint8)
    is_opaque = (batches[:, ATTRIBUTES] & COMPRESSION) != 0
    plain = np.flatnonzero(~is_opaque)
    pieces, whole, why = [], len(batches), ""
    for at in range(0, len(plain), BATCHES_AT_ONCE):
        some = plain[at : at + BATCHES_AT_ONCE]
        records, bad, why = _plain_records(buffer, batches[some])
        pieces.append(records)
        if why:
            whole = int(some[bad])
            break
    pieces += [_opaque_records(batch) for batch in batches[:whole][is_opaque[:whole]]]
    found = joined(pieces)
    if is_opaque.any():
        found = found.take(np.argsort(found.offset, kind="stable"))
    return found, whole, why


def _opaque_records(batch: I64) -> Columns:
    """Of a compressed batch: one element per offset, so that equal batches give equal digests."""
    offset = np.arange(batch[BASE], batch[NEXT])
    digest = mix(offset.astype(np.uint64) ^ np.uint64(int(batch[CRC]) << 32))
    nothing = np.full(len(offset), NO_VALUE)
    return Columns(offset, np.full(len(offset), batch[EPOCH]), nothing, digest, nothing, np.ones(len(offset), np.bool_))


def _plain_records(buffer: Bytes, batches: I64) -> tuple[Columns, int, str]:
    """The records of uncompressed batches up to the first malformed one, its number, and what is wrong with it."""
    records = parse(buffer, batches[:, AT] + HEADER.size, batches[:, END_AT], batches[:, COUNT])
    bad, why = records.bad, records.why
    if bad < len(batches):
        why = f"the batch at {int(batches[bad, AT])} {why}"
        batches, records = batches[:bad], records.take(records.batch < bad)
    records = records.take(np.argsort(records.batch, kind="stable"))
    of = batches[records.batch]
    stamped = (of[:, ATTRIBUTES] & APPEND_TIME) != 0
    time = np.where(stamped, of[:, LATEST], of[:, TIMESTAMP] + records.time_delta)
    if (late := _misdated(batches, records, time)) is not None:
        bad, why = late
        return (*_plain_records(buffer, batches[:bad])[:1], bad, f"the batch at {int(batches[bad, AT])} {why}")
    value = np.full(len(of), NO_VALUE, np.int64)
    carries = np.flatnonzero(records.value_size >= VALUE_BYTES)
    value[carries] = words_of(buffer, ">i8")[records.value_at[carries]]
    exact = records.is_bare & (records.value_size >= VALUE_BYTES)
    exact[carries] &= are_derived(buffer, records.value_at[carries], records.value_size[carries])
    value[(of[:, ATTRIBUTES] & IS_CONTROL) != 0] = CONTROL
    digest = np.empty(len(of), np.uint64)
    for first in range(0, len(of), RECORDS_AT_ONCE):
        some = slice(first, first + RECORDS_AT_ONCE)
        digest[some] = digest_of(buffer, records.key_at[some], records.end[some], time[some])
    digest ^= _origin(of, records.index)
    return Columns(of[:, BASE] + records.index, of[:, EPOCH], value, digest, records.value_size, exact), bad, why


def _misdated(batches: I64, records: Records, time: I64) -> tuple[int, str] | None:
    """The first batch whose latest timestamp is not that of its latest record. A broker that stamps batches itself
    leaves the records' own times as they are."""
    latest = np.full(len(batches), np.iinfo(np.int64).min)
    np.maximum.at(latest, records.batch, time)
    wrong = np.flatnonzero((latest != batches[:, LATEST]) & ((batches[:, ATTRIBUTES] & APPEND_TIME) == 0))
    if not len(wrong):
        return None
    bad = int(wrong[0])
    return bad, f"has the latest timestamp {int(batches[bad, LATEST])}, its records have {int(latest[bad])}"


def _origin(of: I64, index: I64) -> U64:
    """What a record's digest has of its producer and of transactions; 0 for those of clients that use neither, which is
    how older formats have all their records."""
    flags = of[:, ATTRIBUTES] & (TRANSACTIONAL | IS_CONTROL)
    has_origin: Bools = (of[:, [PRODUCER, PRODUCER_EPOCH, SEQUENCE]] != -1).any(axis=1) | (flags != 0)
    digest = np.zeros(len(of), np.uint64)
    some, at = of[has_origin], index[has_origin]
    sequence = np.where(some[:, SEQUENCE] < 0, some[:, SEQUENCE], some[:, SEQUENCE] + at)
    numbers = (some[:, PRODUCER], some[:, PRODUCER_EPOCH], sequence, flags[has_origin])
    for number in numbers:
        digest[has_origin] = mix(digest[has_origin] ^ number.astype(np.uint64) ^ np.uint64(0x5851F42D4C957F2D))
    return digest
