"""Checks and stamps the batches of a leader's append in place: the inner loop of every produce request.

The limits of producers' timestamps are relative to the broker's wall clock. They and the error are those of Apache
Kafka (`message.timestamp.before.max.ms`, `message.timestamp.after.max.ms`; KIP-937, KIP-1030). They apply to every
record of a batch. A record without a timestamp (-1) has no limit.
"""

import asyncio
from collections.abc import Callable, Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.errors import ErrorCode, ProtocolError
from broker.log.identical_batches import CheckedBatches, LetIn, alike_of_leader, alike_of_producer, is_alike
from broker.log.record_walk import LEAST_TIMESTAMP
from broker.log.validation import BatchClaims, count_examined, decompressed
from broker.ports import Buffer
from broker.producers.producer_state import ProducerState, Sequenced
from broker.protocol.records import (
    BATCH_HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    parse_header,
    read_varint,
    validate_batch,
)

# base offset, length, magic, CRC, attributes, last offset delta, two timestamps, producer id and epoch, sequence,
# records
_CHECKED = Struct(">qi4xbIhiqqqhii")
_STAMP = Struct(">qii")  # base offset, length, leader epoch
_LARGEST_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")
_LENGTH_BEHIND = 12
_CRC_AT, _CRC_FROM = 17, 21
_LARGEST_TIMESTAMP_AT = 35
_SMALLEST = BATCH_HEADER_SIZE - _LENGTH_BEHIND

TRIES = 4
"""The most batches of one buffer that are remembered, and the most failed searches for identical batches in it."""

Admit = Callable[[BatchClaims, memoryview], int]
"""Decides from header and records whether a producer's batch may be appended; returns its largest timestamp."""

CheckAccepted = Callable[[Buffer, "list[Batch]"], None]
"""Raises `ProtocolError` if accepted batches, one after the other in a buffer, may not be appended now."""


class Batch(NamedTuple):
    """What the log remembers of a batch that it appends."""

    offset: int
    next_offset: int
    size: int
    max_timestamp: int
    sequenced: Sequenced | None = None
    """The producer's numbers of the batch, if its producer is idempotent."""

    @classmethod
    def of(cls, header: BatchHeader) -> "Batch":
        """The batch of a header whose offset is final."""
        # The control batch at the end of a transaction has no sequence number.
        if header.producer_id < 0 or header.is_control:
            sequenced = None
        else:
            sequenced = Sequenced(
                header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta
            )
        return cls(header.base_offset, header.next_offset, header.size, header.max_timestamp, sequenced)


_sequenced_of = attrgetter("sequenced")
_timestamp_of = attrgetter("max_timestamp")


def latest_timestamp(batches: Sequence[Batch]) -> int:
    """The largest timestamp of some batches, in ms."""
    if len(batches) == 1:
        return batches[0].max_timestamp
    largest: int = max(map(_timestamp_of, batches))
    return largest


class AppendInfo(NamedTuple):
    """The result of an append. If it added nothing, `last_offset` is `base_offset` - 1.

    For a batch that its idempotent producer had sent before: the offsets of then, and no bytes.
    """

    base_offset: int
    last_offset: int
    bytes: int


class OutOfOrderError(ValueError):
    """Fetched batches that do not continue this log; the message says where it ends and what came."""


class UnpreparedEpochError(RuntimeError):
    """Fetched batches start a leader epoch whose entry is not durable yet; call `prepare_epochs` first (K101-8)."""


def stamp_batches(
    buf: bytearray | memoryview,
    offset: int,
    leader_epoch: int,
    admit: Admit | None = None,
    let_in: dict[Admit, LetIn] | None = None,
    check: CheckAccepted | None = None,
) -> list[Batch]:
    """Give the batches in `buf` consecutive offsets from `offset` on, and the leader's epoch (K101-1).

    `admit` checks batches of producers. A largest timestamp that no record has is corrected, as in Kafka. `let_in` is
    kept between calls: the batches that each `admit` has accepted, so that identical ones need no further check of
    their content. `check` is applied to all of them. Raises `CorruptBatch`, or what `admit` and `check` raise, and
    leaves `buf` unchanged, unless it consists of intact batches that may be appended.
    """
    batches: list[Batch] = []
    wrong_timestamps: list[tuple[int, Batch]] = []
    earlier_batches = None if admit is None else _let_in_by(admit, let_in)
    tries = TRIES
    position, length = 0, len(buf)
    with memoryview(buf) as view:
        while position < length:
            if length - position < BATCH_HEADER_SIZE:
                validate_batch(buf, position)
            checked = None if earlier_batches is None else earlier_batches.checked
            if (
                checked is not None
                and length - position > checked.size  # for only one batch the ordinary check is faster
                and (alike := _alike(view, position, checked, offset))
            ):
                batches += alike
                offset += len(alike)
                position += len(alike) * checked.size
                continue
            header = _CHECKED.unpack_from(view, position)
            (
                base,
                size,
                magic,
                crc,
                attributes,
                delta,
                first_timestamp,
                timestamp,
                producer_id,
                epoch,
                sequence,
                records,
            ) = header
            end = position + size + _LENGTH_BEHIND
            framed = magic == MAGIC and size >= _SMALLEST and end <= length
            if not framed or crc32c(view[position + _CRC_FROM : end]) != crc:
                validate_batch(buf, position)  # raises an error that describes the fault
            largest = timestamp
            is_repeat = checked is not None and is_alike(view[position:end], checked, first_timestamp, timestamp)
            if is_repeat:
                count_examined(1, end - position - BATCH_HEADER_SIZE)
            elif admit is not None:
                claims = BatchClaims(
                    base, attributes, delta, first_timestamp, timestamp, producer_id, epoch, sequence, records
                )
                largest = admit(claims, view[position + BATCH_HEADER_SIZE : end])
            elif records < 1 or delta != records - 1:
                validate_batch(buf, position)
            sequenced = None if producer_id < 0 else Sequenced(producer_id, epoch, sequence, delta)
            plain = records == 1 and not attributes and sequenced is None
            batch = Batch(offset, offset + records, end - position, largest, sequenced)
            batches.append(batch)
            offset += records
            if largest != timestamp:
                wrong_timestamps.append((position, batch))
            elif earlier_batches is not None and plain and not is_repeat:
                if size + _LENGTH_BEHIND == length:
                    earlier_batches.came_alone(view)
                elif tries and end < length:
                    tries -= 1
                    earlier_batches.check(bytes(view[position:end]))
            position = end
    if not batches:
        raise CorruptBatch("no batch to append")
    if check is not None:
        check(buf, batches)
    position, stamp = 0, _STAMP.pack_into
    for offset, _, size, _, _ in batches:
        stamp(buf, position, offset, size - _LENGTH_BEHIND, leader_epoch)
        position += size
    for position, batch in wrong_timestamps:
        _put_timestamp_right(buf, position, batch)
    return batches


def _let_in_by(admit: Admit, let_in: dict[Admit, LetIn] | None) -> LetIn:
    if let_in is None:
        return LetIn()
    earlier_batches = let_in.get(admit)
    if earlier_batches is None:
        earlier_batches = let_in[admit] = LetIn()
    return earlier_batches


def record_producers(state: ProducerState, batches: Sequence[Batch], end: int) -> None:
    """Record the producers of batches that were appended at offset `end`.

    If offsets are missing before a batch, compaction has removed batches that this log never had. Each batch has at
    least one offset: none is missing if there are as many as batches.
    """
    if batches[-1].next_offset - end == len(batches) and not any(map(_sequenced_of, batches)):
        return
    for batch in batches:
        if batch.offset > end:
            state.may_have_forgotten()
        end = batch.next_offset
        if batch.sequenced is not None:
            now = asyncio.get_running_loop().time()
            state.record(batch.sequenced, batch.offset, batch.max_timestamp, now)


def is_plain_single(header: BatchHeader) -> bool:
    """Whether a batch has one offset and no idempotent producer."""
    return header.records_count == 1 and not header.last_offset_delta and header.producer_id < 0


def fetched_alike(buf: Buffer, position: int, size: int, offset: int) -> list[Batch]:
    """The batches after a leader's batch that are identical in layout, and that a follower may append after it."""
    return _single_records(offset, size, alike_of_leader(buf, position, size, offset))


def _alike(view: memoryview, position: int, checked: CheckedBatches, offset: int) -> list[Batch]:
    """The batches from `position` on that are identical in layout to the known one, with offsets from `offset` on."""
    timestamps = alike_of_producer(view, position, checked)
    count_examined(len(timestamps), len(timestamps) * (checked.size - BATCH_HEADER_SIZE))
    return _single_records(offset, checked.size, timestamps)


def _single_records(offset: int, size: int, timestamps: Sequence[int]) -> list[Batch]:
    """Batches of this size with one record each, from `offset` on, without producer's numbers."""
    new = tuple.__new__  # `Batch(...)` calls it through a Python function, which costs more than the tuple
    return [new(Batch, (at, at + 1, size, timestamp, None)) for at, timestamp in enumerate(timestamps, offset)]


def _put_timestamp_right(buf: bytearray | memoryview, position: int, batch: Batch) -> None:
    _LARGEST_TIMESTAMP.pack_into(buf, position + _LARGEST_TIMESTAMP_AT, batch.max_timestamp)
    with memoryview(buf) as view, view[position + _CRC_FROM : position + batch.size] as checked:
        crc = crc32c(checked)
    _CRC.pack_into(buf, position + _CRC_AT, crc)


class TimestampLimits:
    """The limits of one topic."""

    def __init__(self, before_max_ms: int, after_max_ms: int, now_ms: Callable[[], int]) -> None:
        """The largest distances from the clock `now_ms`, all in ms. While its time is unknown (-1), all timestamps are
        allowed."""
        self._before_max_ms = before_max_ms
        self._after_max_ms = after_max_ms
        self._now_ms = now_ms

    def check(self, buf: Buffer, batches: Sequence[Batch]) -> None:
        """Check the records of accepted batches, which are in `buf` one after the other. Raises `ProtocolError`.

        A batch's largest timestamp decides about the upper limit. Only a lower limit that can be exceeded requires the
        records themselves."""
        now_ms = self._now_ms()
        if now_ms == NO_TIMESTAMP:
            return
        if (latest := latest_timestamp(batches)) > now_ms + self._after_max_ms:
            raise self._refusal(latest, now_ms)
        lowest = now_ms - self._before_max_ms
        if lowest <= LEAST_TIMESTAMP:
            return
        position = 0
        for batch in batches:
            is_single = batch.next_offset - batch.offset == 1
            earliest = batch.max_timestamp if is_single else _smallest_timestamp(buf, position, batch.size)
            if NO_TIMESTAMP != earliest < lowest:
                raise self._refusal(earliest, now_ms)
            position += batch.size

    def _refusal(self, timestamp: int, now_ms: int) -> ProtocolError:
        limits = f"from {now_ms - self._before_max_ms} to {now_ms + self._after_max_ms}"
        return ProtocolError(ErrorCode.INVALID_TIMESTAMP, f"a record's timestamp is {timestamp} ms; allowed: {limits}")


def _smallest_timestamp(buf: Buffer, position: int, size: int) -> int:
    """The smallest timestamp of a valid batch's records, without those that have none; -1 if all have none."""
    header = parse_header(buf, position)
    with memoryview(buf) as view:
        data = bytes(view[position + BATCH_HEADER_SIZE : position + size])
    if header.compression:
        data = decompressed(header.compression, data)
    smallest, pos = None, 0
    for _ in range(header.records_count):
        length, pos = read_varint(data, pos)
        timestamp = header.base_timestamp + read_varint(data, pos + 1)[0]
        if timestamp != NO_TIMESTAMP and (smallest is None or timestamp < smallest):
            smallest = timestamp
        pos += length
    return NO_TIMESTAMP if smallest is None else smallest
