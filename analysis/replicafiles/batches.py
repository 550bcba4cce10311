"""Record batches, message format 2: a header with the leader epoch and a CRC-32C, then records of varints.

A batch that does not match its CRC is damaged. So is one that matches it but contradicts itself, because no part of it
can be trusted. The records of a compressed batch are one compressed set after the header; once decompressed, they are
checked like all others.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from analysis.replicafiles.digest import PADDING, Bytes, are_derived, digest_of, mix, words_of
from analysis.replicafiles.log import CONTROL_RECORD, I64, NO_VALUE, U64, Bools, EndOfLog, LogColumns, joined
from analysis.replicafiles.records import Records, parse
from history.kafka.compression import CODECS, DamagedSetError, LargeSetError, decompressed
from history.kafka.record_batches import (
    APPEND_TIME,
    COMPRESSION,
    CONTROL,
    CRC_FROM,
    HEADER,
    LENGTH_FROM,
    MAGIC,
    TRANSACTIONAL,
)
from history.record.values import VALUE_BYTES
from history.regular_files import read_bytes
from installation.counted import counted

MAGIC_AT: Final = 16
DELETE_HORIZON: Final = 0x40  # the base timestamp field holds the time when compaction may remove the tombstones
KNOWN_ATTRIBUTES: Final = COMPRESSION | APPEND_TIME | TRANSACTIONAL | CONTROL
LAST_OFFSET: Final = 1 << 62  # sums with larger ones could overflow
MOST_PER_BYTE: Final = 200  # the most records per byte of a compressed batch; more are treated as damage
# Handled together, so that their columns stay in the processor's cache.
BATCHES_AT_ONCE: Final = 4096
BYTES_AT_ONCE: Final = 16 << 20  # of decompressed sets
RECORDS_AT_ONCE: Final = 16384
_NULL: Final = 1  # the length -1 as a varint

# Columns of a table of batches, one row each.
BASE, NEXT, EPOCH, ATTRIBUTES, TIMESTAMP, LATEST, PRODUCER, PRODUCER_EPOCH, SEQUENCE, COUNT, CRC, RECORDS_AT, END_AT = (
    range(13)
)


class Batches(NamedTuple):
    """Consecutive intact batches: their table of shape (batches, 13), the position and offset after them, and why they
    end there, unless the segment ends or continues in another format. They may skip offsets."""

    table: I64
    position: int
    expected: int
    stop: EndOfLog | None


def scan(data: bytes, position: int, expected: int, *, compacted: bool = False) -> Batches:
    """The intact batches from `position` on; `expected`: the offset of the first one. `compacted`: they may have lost
    records, and batches between them may be missing."""
    permitted = KNOWN_ATTRIBUTES | (DELETE_HORIZON if compacted else 0)
    batches: list[tuple[int, ...]] = []
    view = memoryview(data)
    size, stop = len(data), None
    while position < size:
        if size - position < HEADER.size:
            if size - position > MAGIC_AT and data[position + MAGIC_AT] != MAGIC:
                break
            stop = EndOfLog("damage", f"{size - position} bytes of a torn batch at {position}")
            break
        header = HEADER.unpack_from(data, position)
        base, length, epoch, magic, crc, attributes, delta, first, latest, producer, term, sequence, count = header
        if magic != MAGIC:
            break
        end = position + LENGTH_FROM + length
        if length < HEADER.size - LENGTH_FROM:
            stop = EndOfLog("damage", f"{size - position} bytes of no batch at {position}")
        elif end > size:
            stop = EndOfLog("damage", f"{size - position} bytes of a torn batch at {position}")
        elif crc32c(view[position + CRC_FROM : end]) != crc:
            stop = EndOfLog("damage", f"the batch at {position} does not match its CRC-32C")
        elif epoch < 0:
            stop = EndOfLog("damage", f"the batch at {position} has no leader epoch")
        elif base < expected or (base > expected and not (compacted or _goes_on(data, end, base + delta + 1))):
            stop = EndOfLog("damage", f"the batch at {position} has base offset {base} where {expected} is due")
        elif attributes & ~permitted or attributes & COMPRESSION not in (0, *CODECS):
            stop = EndOfLog("unread", f"the batch at {position} has attributes {attributes:#06x}, which are not known")
        elif defect := _miscounted(delta, count, end - position, attributes, compacted):
            stop = EndOfLog("damage", f"the batch at {position} {defect}")
        if stop is not None:
            break
        expected = base + delta + 1
        place = position + HEADER.size
        row = (base, expected, epoch, attributes, first, latest, producer, term, sequence, count, crc, place, end)
        batches.append(row)
        position = end
    return Batches(np.array(batches, np.int64).reshape(-1, 13), position, expected, stop)


def _goes_on(data: bytes, position: int, expected: int) -> bool:
    """Whether the next batch starts at this offset. Two batches with consistent offsets are not a coincidence."""
    if expected > LAST_OFFSET or len(data) - position < HEADER.size or data[position + MAGIC_AT] != MAGIC:
        return False
    return bool(struct.unpack_from(">q", data, position)[0] == expected)


def _miscounted(delta: int, count: int, size: int, attributes: int, compacted: bool) -> str:
    """The error in a batch's count of records, as the end of a sentence."""
    if delta < 0 or not (0 if compacted else delta + 1) <= count <= delta + 1:
        return f"has {counted(count, 'record')} and the last offset delta {delta}"
    if attributes & COMPRESSION and count > size * MOST_PER_BYTE:
        return f"of {size} bytes has {counted(count, 'record')}"
    return ""


def place_of(batch: I64) -> int:
    """The position of a batch in its segment."""
    return int(batch[RECORDS_AT]) - HEADER.size


def skipped(batches: I64, expected: int) -> list[tuple[int, int]]:
    """The offsets (first, after the last) that consecutive batches skip; `expected`: the offset of the first batch."""
    due = np.concatenate(([expected], batches[:-1, NEXT]))[: len(batches)]
    gaps = np.flatnonzero(batches[:, BASE] > due)
    return [(int(due[gap]), int(batches[gap, BASE])) for gap in gaps]


def sequences(batches: I64) -> I64:
    """The rows of `ReplicaLog.sequences` for consecutive batches."""
    flags = batches[:, ATTRIBUTES] & (TRANSACTIONAL | CONTROL)
    numbered = batches[(batches[:, PRODUCER] >= 0) & (batches[:, SEQUENCE] >= 0) & (flags == 0)]
    last = (numbered[:, SEQUENCE] + numbered[:, NEXT] - numbered[:, BASE] - 1) % (1 << 31)
    return np.column_stack((numbered[:, [BASE, PRODUCER, PRODUCER_EPOCH, SEQUENCE]], last, numbered[:, BASE]))


def missing(offset: I64, first: int, end: int) -> list[tuple[int, int]]:
    """The ranges of offsets (first, after the last), between two bounds, without a record."""
    edges = np.concatenate(([first - 1], offset, [end]))
    gaps = np.flatnonzero(np.diff(edges) > 1)
    return [(int(edges[gap]) + 1, int(edges[gap + 1])) for gap in gaps]


class Content(NamedTuple):
    """The records of batches up to the first malformed one: its number (the number of batches without one), its error,
    the oddities of the others as the end of a sentence, and the offsets (first, after the last) of the compressed
    batches that were too large to decompress."""

    records: LogColumns
    whole: int
    why: str
    odd: str
    opaque: list[tuple[int, int]]


class _Group(NamedTuple):
    """Batches whose records are read together: their numbers, and the padded buffer that holds the records of each
    between `start` and `limit`."""

    numbers: I64
    buffer: Bytes
    start: I64
    limit: I64


@dataclass
class _Opener:
    """Decompresses batches in sequence, up to the first damaged one: its number, and the error."""

    data: bytes
    batches: I64
    large: list[int] = field(default_factory=list)
    damaged: int | None = None
    why: str = ""

    def groups(self, numbers: I64) -> Iterator[_Group]:
        """The decompressable batches among these numbers, some at a time."""
        opened: list[tuple[int, bytes]] = []
        for number in numbers.tolist():
            batch = self.batches[number]
            try:
                content = decompressed(
                    int(batch[ATTRIBUTES]) & COMPRESSION, self.data[batch[RECORDS_AT] : batch[END_AT]]
                )
            except LargeSetError:
                self.large.append(number)
                continue
            except DamagedSetError as error:
                self.damaged, self.why = number, f"the batch at {place_of(batch)} {error}"
                break
            opened.append((number, content))
            if len(opened) == BATCHES_AT_ONCE or sum(len(content) for _, content in opened) > BYTES_AT_ONCE:
                yield _joined(opened)
                opened = []
        if opened:
            yield _joined(opened)


def _joined(opened: list[tuple[int, bytes]]) -> _Group:
    limit = np.cumsum([len(content) for _, content in opened])
    start = np.concatenate(([0], limit[:-1]))
    buffer = np.frombuffer(b"".join(content for _, content in opened) + bytes(PADDING), np.uint8)
    return _Group(np.array([number for number, _ in opened], np.int64), buffer, start, limit)


def records_of(data: bytes, batches: I64, *, compacted: bool = False) -> Content:
    """Every record of a segment's batches; `compacted` as of `scan`."""
    is_packed = (batches[:, ATTRIBUTES] & COMPRESSION) != 0
    opener = _Opener(data, batches)
    pieces, malformed, odd = [], [(len(batches), "")], ""
    for groups in (_plain(data, batches, np.flatnonzero(~is_packed)), opener.groups(np.flatnonzero(is_packed))):
        for group in groups:
            group_records = _records_in(group, batches[group.numbers], compacted)
            pieces.append(group_records.records)
            odd = odd or group_records.odd
            if group_records.why:
                malformed.append((int(group.numbers[group_records.whole]), group_records.why))
                break
    if opener.damaged is not None:
        malformed.append((opener.damaged, opener.why))
    intact, defect = min(malformed)
    opaque = batches[[number for number in opener.large if number < intact]]
    records = joined([*pieces, *map(_opaque_records, opaque)])
    if is_packed.any():
        records = records.take(np.argsort(records.offset, kind="stable"))
    if defect:
        records = records.take(records.offset < batches[intact, BASE])
    return Content(records, intact, defect, odd, [(int(batch[BASE]), int(batch[NEXT])) for batch in opaque])


def _plain(data: bytes, batches: I64, numbers: I64) -> Iterator[_Group]:
    """The uncompressed batches, in place in the segment."""
    buffer = np.frombuffer(data + bytes(PADDING), np.uint8)
    for at in range(0, len(numbers), BATCHES_AT_ONCE):
        chunk = numbers[at : at + BATCHES_AT_ONCE]
        yield _Group(chunk, buffer, batches[chunk, RECORDS_AT], batches[chunk, END_AT])


def _opaque_records(batch: I64) -> LogColumns:
    """A batch that is not decompressed: one element per offset, so that equal batches give equal digests."""
    offset = np.arange(batch[BASE], batch[NEXT])
    digest = mix(offset.astype(np.uint64) ^ np.uint64(int(batch[CRC]) << 32))
    nothing = np.full(len(offset), NO_VALUE)
    epoch, exact = np.full(len(offset), batch[EPOCH]), np.ones(len(offset), np.bool_)
    return LogColumns(offset, epoch, nothing, digest, nothing, exact, np.zeros(len(offset), np.uint64))


class _Found(NamedTuple):
    """The records of a group: as `Content`, `whole` counted within the group."""

    records: LogColumns
    whole: int
    why: str
    odd: str


def _records_in(group: _Group, batches: I64, compacted: bool) -> _Found:
    """The records of a group's batches."""
    buffer = group.buffer
    last = batches[:, NEXT] - batches[:, BASE] - 1 if compacted else None
    records, intact, defect = parse(buffer, group.start, group.limit, batches[:, COUNT], last)
    if defect:
        defect = f"the batch at {place_of(batches[intact])} {defect}"
        batches = batches[:intact]
    batch = batches[records.batch]
    stamped = (batch[:, ATTRIBUTES] & APPEND_TIME) != 0
    time = np.where(stamped, batch[:, LATEST], batch[:, TIMESTAMP] + records.time_delta)
    value = np.full(len(batch), NO_VALUE, np.int64)
    carries = np.flatnonzero(records.value_size >= VALUE_BYTES)
    value[carries] = np.maximum(words_of(buffer, ">i8")[records.value_at[carries]], -1)
    value[value < 0] = NO_VALUE
    exact = records.is_bare & (records.value_size >= VALUE_BYTES)
    exact[carries] &= are_derived(buffer, records.value_at[carries], records.value_size[carries])
    value[(batch[:, ATTRIBUTES] & CONTROL) != 0] = CONTROL_RECORD
    digest, key = np.empty(len(batch), np.uint64), np.zeros(len(batch), np.uint64)
    for first in range(0, len(batch), RECORDS_AT_ONCE):
        part = slice(first, first + RECORDS_AT_ONCE)
        digest[part] = digest_of(buffer, records.key_at[part], records.end[part], time[part])
        if compacted:
            key[part] = digest_of(buffer, records.key_at[part], records.key_end[part], np.zeros_like(time[part]))
    key[records.is_bare | (buffer[records.key_at] == _NULL)] = 0
    digest ^= _origin(batch, records.rank)
    columns = LogColumns(batch[:, BASE] + records.rank, batch[:, EPOCH], value, digest, records.value_size, exact, key)
    return _Found(columns, intact, defect, _misdated(batches, records, time))


def _misdated(batches: I64, records: Records, time: I64) -> str:
    """The first batch whose latest timestamp is not that of its latest record: brokers leave the timestamps to clients.
    A broker that stamps batches itself does not change the records' own times."""
    latest = np.full(len(batches), np.iinfo(np.int64).min)
    np.maximum.at(latest, records.batch, time)
    judged = ((batches[:, ATTRIBUTES] & APPEND_TIME) == 0) & (batches[:, COUNT] > 0)
    misdated = np.flatnonzero((latest != batches[:, LATEST]) & judged)
    if not len(misdated):
        return ""
    at, stated, really = place_of(batches[misdated[0]]), int(batches[misdated[0], LATEST]), int(latest[misdated[0]])
    return f"has a batch at {at} with the latest timestamp {stated}, whose records have {really}"


def _origin(batch: I64, rank: I64) -> U64:
    """The part of a record's digest for its producer and transactions; 0 for clients that use neither, so that records
    of older formats compare equal."""
    flags = batch[:, ATTRIBUTES] & (TRANSACTIONAL | CONTROL)
    has_origin: Bools = (batch[:, [PRODUCER, PRODUCER_EPOCH, SEQUENCE]] != -1).any(axis=1) | (flags != 0)
    digest = np.zeros(len(batch), np.uint64)
    sequenced, at = batch[has_origin], rank[has_origin]
    sequence = np.where(sequenced[:, SEQUENCE] < 0, sequenced[:, SEQUENCE], sequenced[:, SEQUENCE] + at)
    numbers = (sequenced[:, PRODUCER], sequenced[:, PRODUCER_EPOCH], sequence, flags[has_origin])
    for number in numbers:
        digest[has_origin] = mix(digest[has_origin] ^ number.astype(np.uint64) ^ np.uint64(0x5851F42D4C957F2D))
    return digest


# ---- What clients' and topics' settings leave in a log: codecs, producer ids, timestamps, sizes. Headers only.

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their number in a batch's attributes."""
SAMPLE: Final = 20
"""Uncompressed batches of a segment that are compressed for comparison."""
CLEARLY: Final = 0.8
"""A batch that a compressor shrinks to less than this share would have been compressed by any client."""


@dataclass
class BatchTraits:
    """The traits of a replica's own files. `records`: by whether their batch has a producer id; of batches of format 2
    without control batches. `codecs`: batches by codec. `stamped`: batches by whether the broker stamped them.
    `largest`: the most records in a batch. `older`: bytes in older message formats. `segment_bytes`: the largest
    segment with more than one batch. `compressible`: uncompressed batches that a compressor shrinks."""

    records: Counter[bool] = field(default_factory=Counter)
    codecs: Counter[str] = field(default_factory=Counter)
    stamped: Counter[bool] = field(default_factory=Counter)
    largest: int = 0
    older: int = 0
    segment_bytes: int = 0
    compressible: int = 0


def read_traits(segments: Iterable[Path]) -> BatchTraits:
    """The traits of a replica's segments, each read up to the first damaged batch."""
    traits = BatchTraits()
    for path in segments:
        try:
            _read_traits(read_bytes(path), traits)
        except OSError:
            continue  # the reader of replicas reports it
    return traits


def _read_traits(data: bytes, traits: BatchTraits) -> None:
    at = batches = tried = 0
    while at + HEADER.size <= len(data):
        _, length, _, magic, _, attributes, _, _, _, producer, _, _, count = HEADER.unpack_from(data, at)
        end = at + LENGTH_FROM + length
        if magic != MAGIC:
            traits.older += len(data) - at if 0 <= data[at + MAGIC_AT] < MAGIC and length > 0 else 0
            break
        if length < HEADER.size - LENGTH_FROM or end > len(data):
            break
        codec = attributes & COMPRESSION
        if not attributes & CONTROL:
            traits.records[producer >= 0] += count
            traits.codecs[CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}"] += 1
            traits.stamped[bool(attributes & APPEND_TIME)] += 1
            traits.largest = max(traits.largest, count)
            if not codec and tried < SAMPLE:
                tried += 1
                content = data[at + HEADER.size : end]
                traits.compressible += len(zlib.compress(content)) < CLEARLY * len(content)
        batches += 1
        at = end
    if batches > 1:
        traits.segment_bytes = max(traits.segment_bytes, at)
