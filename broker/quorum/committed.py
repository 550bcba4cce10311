"""Reads committed batches: data records for the state machine, control records for the trace (K595-41)."""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from broker.log.log import PartitionLog
from broker.protocol.codec import decode_exactly, encode
from broker.protocol.messages.control_records import LEADER_CHANGE_TYPE, ControlRecordKey, LeaderChangeMessage, Voter
from broker.protocol.records import Record, build_batch, iter_batches, read_records

READ_BYTES = 1 << 20
CONTROL_VERSION = 0
_DIGESTED = struct.Struct(">qqiI")


class CommittedBatch(NamedTuple):
    """One batch. `leader_change` is set for a control batch that opens an epoch. `crc` is the CRC of the batch header,
    which
    covers all records of the batch."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int
    records: list[bytes]
    leader_change: LeaderChangeMessage | None


def committed_batches(log: PartitionLog, start: int, high_watermark: int) -> Iterator[CommittedBatch]:
    """All batches of [start, high_watermark), in order. Raises `CorruptBatch` for an unreadable log."""
    while start < high_watermark:
        data = log.read(start, READ_BYTES, high_watermark)
        first_offset = start
        for position, header in iter_batches(data):
            records = read_records(data, position)
            place = (header.base_offset, header.next_offset, header.leader_epoch, header.crc)
            if header.is_control:
                yield CommittedBatch(*place, [], _leader_change(records))
            else:
                yield CommittedBatch(*place, [record.value or b"" for record in records], None)
            start = header.next_offset
        if start == first_offset:
            raise RuntimeError(f"{log.directory}: no batch at the committed offset {start}")


def digest_with(digest: int, batch: CommittedBatch) -> int:
    """The digest of a log after `batch`, from its digest before the batch. The digest of an empty log is 0.

    A CRC-32 chained over base offset, next offset, epoch and CRC-32C of every batch. Two nodes have the same digest if
    they applied the same batches in the same order, and otherwise, collisions apart, different ones.
    """
    return zlib.crc32(_DIGESTED.pack(batch.base_offset, batch.next_offset, batch.epoch, batch.crc), digest)


def data_batch(records: tuple[bytes, ...], timestamp_ms: int) -> bytearray:
    """One batch of data records; the append stamps offset and epoch."""
    return bytearray(build_batch([Record(0, timestamp_ms, None, value) for value in records]))


def leader_change_batch(
    leader_id: int, voters: tuple[int, ...], granting_voters: tuple[int, ...], timestamp_ms: int
) -> bytearray:
    """The control batch that opens a leader's epoch (K595-4, K595-21)."""
    key, value = bytearray(), bytearray()
    encode(ControlRecordKey(version=CONTROL_VERSION, type=LEADER_CHANGE_TYPE), CONTROL_VERSION, key)
    message = LeaderChangeMessage(
        version=CONTROL_VERSION,
        leader_id=leader_id,
        voters=[Voter(voter_id=voter) for voter in voters],
        granting_voters=[Voter(voter_id=voter) for voter in granting_voters],
    )
    encode(message, CONTROL_VERSION, value)
    return bytearray(build_batch([Record(0, timestamp_ms, bytes(key), bytes(value))], control=True))


def _leader_change(records: list[Record]) -> LeaderChangeMessage | None:
    """The LeaderChangeMessage of a control batch; None for control records of other types."""
    key = decode_exactly(ControlRecordKey, CONTROL_VERSION, records[0].key or b"")
    if key.type != LEADER_CHANGE_TYPE:
        return None
    return decode_exactly(LeaderChangeMessage, CONTROL_VERSION, records[0].value or b"")
