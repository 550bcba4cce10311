"""Queries of a led partition's offsets: ListOffsets and OffsetForLeaderEpoch."""

from typing import NamedTuple

from broker.errors import ErrorCode
from broker.replica.log_view import UNDEFINED, EpochEnd
from broker.replica.partition import Partition
from broker.replica.reads import epoch_error
from broker.tiered.manifest import TieredOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6


class OffsetFound(NamedTuple):
    """An offset with the timestamp (ms) and leader epoch of its record; each -1 without a record."""

    error: ErrorCode = ErrorCode.NONE
    timestamp: int = UNDEFINED
    offset: int = UNDEFINED
    leader_epoch: int = UNDEFINED


class EpochEndFound(NamedTuple):
    """The answer of OffsetForLeaderEpoch."""

    error: ErrorCode
    end: EpochEnd = EpochEnd(UNDEFINED, UNDEFINED)


def list_offset(partition: Partition, timestamp: int, current_leader_epoch: int, *, by_replica: bool) -> OffsetFound:
    """ListOffsets: a time in milliseconds, or -1 latest (for consumers the high watermark), -2 and -4 earliest, -3 the
    record with the largest timestamp, -5 the last tiered record, -6 the earliest offset that is not tiered. -5 and -6
    are unknown (-1) without remote storage, and while a new leader does not know what is tiered (K1023-3)."""
    leader = partition.serving
    if leader is None:
        return OffsetFound(partition.error)
    if by_replica or current_leader_epoch != UNDEFINED:
        error = epoch_error(leader.leader_epoch, current_leader_epoch)
        if error is not ErrorCode.NONE:
            return OffsetFound(error)
    log = partition.log
    if timestamp == EARLIEST:
        return OffsetFound(offset=log.log_start_offset, leader_epoch=_epoch_at(partition, log.log_start_offset))
    if timestamp == EARLIEST_LOCAL:
        local = log.local_start_offset
        return OffsetFound(offset=local, leader_epoch=log.epochs.epoch_at(local))
    if by_replica and timestamp == EARLIEST_PENDING_UPLOAD:
        return _pending_upload(partition)
    if by_replica and timestamp == LATEST:
        return OffsetFound(offset=log.log_end_offset, leader_epoch=leader.leader_epoch)
    # KIP-207: a new leader's high watermark may be lower than what its predecessor showed; wait until it is not.
    if not leader.high_watermark_is_known:
        return OffsetFound(ErrorCode.OFFSET_NOT_AVAILABLE)
    if timestamp == LATEST_TIERED:
        tiered = _highest_tiered(partition)
        return OffsetFound() if tiered is None else OffsetFound(offset=tiered.offset, leader_epoch=tiered.epoch)
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return _pending_upload(partition)
    if timestamp == LATEST:
        return OffsetFound(offset=leader.high_watermark, leader_epoch=leader.leader_epoch)
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        return OffsetFound(ErrorCode.UNSUPPORTED_VERSION)
    try:
        return _by_time(partition, timestamp, leader.high_watermark)
    except OSError as error:
        partition.fail(error)
        return OffsetFound(ErrorCode.KAFKA_STORAGE_ERROR)


def _highest_tiered(partition: Partition) -> TieredOffset | None:
    """The last tiered record; None without one, or before this leader knows it."""
    remote = partition.remote
    if remote is None or not partition.settings.remote_storage or not remote.ready:
        return None
    return remote.highest_tiered()


def _pending_upload(partition: Partition) -> OffsetFound:
    """The offset after the last tiered one, at least the log's start, with its epoch (K1023-3)."""
    log, tiered = partition.log, _highest_tiered(partition)
    if tiered is not None:
        offset = tiered.offset + 1 + partition.skips_an_upload
        if partition.clamps_pending_upload:
            offset = max(offset, log.log_start_offset)
    elif log.local_start_offset == log.log_start_offset and partition.settings.remote_storage:
        offset = log.log_start_offset
    else:
        return OffsetFound()
    return OffsetFound(offset=offset, leader_epoch=log.epochs.epoch_at(offset))


def _by_time(partition: Partition, timestamp: int, bound: int) -> OffsetFound:
    """The record below `bound` for a timestamp or MAX_TIMESTAMP. Raises `OSError` for damaged bytes."""
    log = partition.log
    looks_remotely = timestamp != MAX_TIMESTAMP and log.log_start_offset < log.local_start_offset
    if looks_remotely and partition.remote is not None and not partition.looks_up_locally:
        remote = partition.remote.first_not_before(timestamp)
        if isinstance(remote, ErrorCode):
            return OffsetFound(remote)
        if remote is not None and remote.offset < bound:
            epoch = _epoch_at(partition, remote.offset)
            return OffsetFound(offset=remote.offset, timestamp=remote.timestamp, leader_epoch=epoch)
    record = log.max_timestamp_below(bound) if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if record is None or record.offset >= bound:
        return OffsetFound()
    return OffsetFound(
        offset=record.offset, timestamp=record.timestamp, leader_epoch=_epoch_at(partition, record.offset)
    )


def epoch_end(
    partition: Partition, current_leader_epoch: int, asked_epoch: int, *, by_replica: bool = False
) -> EpochEndFound:
    """OffsetForLeaderEpoch: the largest epoch not above `asked_epoch`, and its end (K101-5, K101-6, H1). A replica must
    name the epoch that it follows (H3)."""
    leader = partition.serving
    if leader is None:
        return EpochEndFound(partition.error)
    if by_replica or current_leader_epoch != UNDEFINED:
        error = epoch_error(leader.leader_epoch, current_leader_epoch)
        if error is not ErrorCode.NONE:
            return EpochEndFound(error)
    log = partition.log
    return EpochEndFound(ErrorCode.NONE, EpochEnd(*log.epochs.end_offset_for(asked_epoch, log.log_end_offset)))


class LogEndFound(NamedTuple):
    """The end of a replica's log: the epoch of its last record (-1 without records) and the next offset.

    `leader_epoch`: the replica's current epoch. It has completed the truncations of earlier leaders.
    """

    error: ErrorCode
    leader_epoch: int = UNDEFINED
    last_epoch: int = UNDEFINED
    end_offset: int = UNDEFINED


def log_end(partition: Partition) -> LogEndFound:
    """The end of the log with which this replica could lead (KIP-966)."""
    if partition.role is None:
        return LogEndFound(partition.error)
    end = partition.log.log_end_offset
    last_epoch = partition.log.epochs.epoch_at(end - 1) if end > partition.log.log_start_offset else UNDEFINED
    return LogEndFound(ErrorCode.NONE, partition.leader_epoch, last_epoch, end)


def _epoch_at(partition: Partition, offset: int) -> int:
    """The epoch of the record at an offset; -1 without a record."""
    log = partition.log
    return log.epochs.epoch_at(offset) if offset < log.log_end_offset else UNDEFINED
