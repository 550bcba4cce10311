"""Record batches, message format 2: a header with the leader epoch and a CRC-32C, then records of varints.

A batch that does not match its CRC is damaged. So is one that matches it but contradicts itself, because no part of it
can be trusted. The records of a compressed batch are one compressed set after the header; once decompressed, they are
checked like all others.

    record:  length varint, attributes int8 (0), timestamp delta varint, offset delta varint, key, value,
             number of headers varint, headers (key, value)

Keys and values are a length varint (-1: null) and that many bytes. Every number must have its shortest form, offsets
must rise by one, and a record must end where its length says.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from crc32c import crc32c

from analysis.replicafiles.digest import PADDING, Bytes, are_derived, digest_of, mix, words_of
from analysis.replicafiles.log import CONTROL_RECORD, I64, NO_VALUE, U64, Bools, EndOfLog, LogColumns, joined
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

# ---- The records inside uncompressed batches of message format 2, read strictly and many at once.

_LONGEST: Final = 10  # bytes of a varint

_PROBLEMS: Final = (
    "",
    "has a record that ends beyond it",
    "has a number that is not in its shortest form",
    "has a record with unknown attributes",
    "has an offset delta out of order",
    "has a record whose parts do not fill it",
    "has fewer records than it counts",
    "has bytes behind its last record",
)
_BEYOND, _NUMBER, _ATTRIBUTES, _ORDER, _PARTS, _FEWER, _MORE = range(1, 8)


class Records(NamedTuple):
    """Records as parallel columns: the number of the `batch`, the `rank` in it (its offset relative to the batch's
    first, also after compaction), `time_delta`, the positions of the key's start and end, the value's start and the
    record's end, the value's size (-1: null), and whether it has neither key nor headers (`is_bare`)."""

    batch: I64
    rank: I64
    time_delta: I64
    key_at: I64
    key_end: I64
    value_at: I64
    value_size: I64
    end: I64
    is_bare: Bools

    def take(self, which: Any) -> "Records":
        """Some of the records."""
        return Records(*(column[which] for column in self))


def parse(buffer: Bytes, start: I64, limit: I64, count: I64, last: I64 | None = None) -> tuple[Records, int, str]:
    """The records of batches, up to the first malformed one; the number of that one (the number of batches without
    one), and its error as the end of a sentence. A batch's records are between `start` and `limit`, and `count` is
    their number.

    The first records of all batches are read together, then the second ones, and so on. The buffer is padded
    (`digest.PADDING`). `last`: for batches that may have lost records, the last permitted rank; None: for all complete.
    """
    least_rank = None if last is None else np.zeros(len(start), np.int64)
    at, problem = start.copy(), np.zeros(len(start), np.int64)
    columns_read: list[tuple[Any, ...]] = [(*np.empty((8, 0), np.int64), np.empty(0, np.bool_))]
    rank = 0
    while len(active := np.flatnonzero((count > rank) & (problem == 0))):
        ranks = np.full(len(active), rank) if last is None or least_rank is None else (least_rank[active], last[active])
        columns, found_rank, error = _next(buffer, at[active], limit[active], ranks)
        error[at[active] >= limit[active]] = _FEWER
        problem[active] = error
        fine = error == 0
        columns = tuple(column[fine] for column in columns)
        columns_read.append((active[fine], found_rank[fine], *columns))
        at[active[fine]] = columns[5]
        if least_rank is not None:
            least_rank[active[fine]] = found_rank[fine] + 1
        rank += 1
    problem[(problem == 0) & (at != limit)] = _MORE
    wrong_batches = np.flatnonzero(problem)
    bad = int(wrong_batches[0]) if len(wrong_batches) else len(start)
    defect = _PROBLEMS[problem[bad]] if bad < len(start) else ""
    records = Records(*(np.concatenate([columns[i] for columns in columns_read]) for i in range(len(Records._fields))))
    records = records.take(records.batch < bad)
    return records.take(np.argsort(records.batch, kind="stable")), bad, defect


def _next(buffer: Bytes, at: I64, limit: I64, ranks: I64 | tuple[I64, I64]) -> tuple[tuple[Any, ...], I64, I64]:
    """The record at each position: (time delta, key's position and end, value's position, value's size, end, is bare),
    its rank, and the number of its error. With an error the columns are undefined. `ranks`: the required rank, or the
    least and the greatest permitted one."""
    error = np.zeros(len(at), np.int64)

    def check(is_wrong: Bools, error_code: int) -> None:
        error[(error == 0) & is_wrong] = error_code

    def number(place: I64) -> tuple[I64, I64]:
        stop, value, is_short = _varint(buffer, np.minimum(place, limit))
        check(~is_short, _NUMBER)
        return stop, value

    body, length = number(at)
    end = body + np.clip(length, -1, 1 << 40)
    check((length <= 0) | (end > limit), _BEYOND)
    end = np.clip(end, 0, limit)
    check(buffer[np.minimum(body, limit)] != 0, _ATTRIBUTES)
    place, time_delta = number(body + 1)
    key_at, offset_delta = number(place)
    least, last = ranks if isinstance(ranks, tuple) else (ranks, ranks)
    check((offset_delta < least) | (offset_delta > last), _ORDER)
    key_from, key_size = number(key_at)
    check((key_size < -1) | (key_size > end - key_from), _PARTS)
    key_end = np.minimum(key_from + np.clip(key_size, 0, 1 << 40), limit)
    value_at, value_size = number(key_end)
    check((value_size < -1) | (value_size > end - value_at), _PARTS)
    stop, headers = number(np.minimum(value_at + np.clip(value_size, 0, 1 << 40), limit))
    check((headers < 0) | ((headers == 0) & (stop != end)), _PARTS)
    for index in np.flatnonzero((error == 0) & (headers > 0)):
        error[index] = _headers(buffer, int(stop[index]), int(end[index]), int(headers[index]))
    return (
        (time_delta, key_at, key_end, value_at, value_size, end, (key_size == -1) & (headers == 0)),
        offset_delta,
        error,
    )


def _headers(buffer: Bytes, at: int, end: int, count: int) -> int:
    """The number of the error in a record's headers, 0 without one: each is a non-null key and a value."""
    for part in range(2 * count):
        if at >= end:
            return _PARTS
        stop, size, is_short = (int(array[0]) for array in _varint(buffer, np.array([at])))
        if not is_short:
            return _NUMBER
        if size < (-1 if part % 2 else 0) or size > end - stop:
            return _PARTS
        at = stop + max(size, 0)
    return 0 if at == end else _PARTS


def _varint(buffer: Bytes, at: I64) -> tuple[I64, I64, Bools]:
    """Zigzag varints at many positions: the positions after them, their values, and which have their shortest form."""
    at = at.copy()
    raw = np.zeros(len(at), np.uint64)
    is_short = np.ones(len(at), np.bool_)
    unfinished = np.arange(len(at))
    for number in range(_LONGEST):
        byte = buffer[np.minimum(at[unfinished], len(buffer) - 1)].astype(np.uint64)
        raw[unfinished] |= (byte & np.uint64(0x7F)) << np.uint64(7 * number)
        at[unfinished] += 1
        if number:
            is_short[unfinished] &= (byte != 0) & ((byte == 1) | (number < _LONGEST - 1))
        unfinished = unfinished[byte >= 0x80]
        if not len(unfinished):
            break
    is_short[unfinished] = False
    return at, (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), is_short


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
