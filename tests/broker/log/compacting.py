"""Compacted logs for tests: made, compacted and read."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.segment import Segment
from broker.protocol.records import (
    Record,
    build_batch,
    iter_batches,
)
from broker.replica.compactor import Cleaner, SegmentSizes, raw_records, rebuilt
from tests.broker.log.making import DIRECTORY

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100, compacted=True)
SIZES = SegmentSizes(segment=100_000, index_interval=100)
DAY_MS = 86_400_000
NOW_MS = 1_000_000_000

Pair = tuple[str | None, str | None]


async def open_log(path: Path, config: LogConfig = CONFIG, *, clean: bool = False, point: int = 0) -> PartitionLog:
    return await PartitionLog.open(RealDisk(str(path)), DIRECTORY, config, clean_shutdown=clean, recovery_point=point)


def batch(*pairs: Pair, codec: int = 0, producer: int = -1, sequence: int = -1) -> bytearray:
    records = [Record(0, 1000, _bytes(key), _bytes(value)) for key, value in pairs]
    epoch = 0 if producer >= 0 else -1
    plain = build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    if not codec:
        return bytearray(plain)
    ((_, header),) = iter_batches(plain)
    return bytearray(rebuilt(header._replace(attributes=codec), list(raw_records(header, plain)), None))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


async def write(log: PartitionLog, epoch: int, *batches: bytearray) -> None:
    """Lead an epoch, append batches."""
    if log.epochs.latest_epoch != epoch:
        await log.start_leader_epoch(epoch)
    for each in batches:
        log.append_as_leader(each, epoch)


async def compact(
    log: PartitionLog,
    path: Path,
    *,
    now_ms: int = NOW_MS,
    delete_retention_ms: int = DAY_MS,
    drops_epochs: bool = False,
    lock: asyncio.Lock | None = None,
) -> bool:
    """Start a new segment, and compact all before it. `lock`: the partition's lock, under which its log changes."""
    log.roll()

    async def replace(old: Sequence[Segment], cleaned: Segment, truncations: int) -> bool:
        async with lock or asyncio.Lock():
            return await log.replace_segments(old, cleaned, truncations)

    cleaner = Cleaner(RealDisk(str(path)), log, wanted=lambda: True, replace=replace, drops_epochs=drops_epochs)
    end = log.log_end_offset
    return await cleaner.clean(end, now_ms=now_ms, delete_retention_ms=delete_retention_ms, sizes=SIZES)


def content(log: PartitionLog) -> list[tuple[int, str | None, str | None]]:
    """Offset, key and value of every record; as a consumer reads them, from fetch to fetch."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1, log.log_end_offset)
        for position, header in iter_batches(data):
            for record in raw_records(header, data[position:]):
                assert record.offset_delta <= header.last_offset_delta
                text = None if record.key is None else record.key.decode()
                found.append((header.base_offset + record.offset_delta, text, _value(record.rest, record.is_tombstone)))
            assert header.next_offset > offset, "a fetch that gives nothing new never ends"
            offset = header.next_offset
    return found


def _value(rest: bytes, is_tombstone: bool) -> str | None:
    """The value of the records that these tests write: short, and without headers."""
    if is_tombstone:
        return None
    key_length = max(rest[0] >> 1, 0) if not rest[0] & 1 else 0
    at = 1 + key_length
    return rest[at + 1 : at + 1 + (rest[at] >> 1)].decode()


def headers(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Base offset, next offset and number of records of every batch."""
    data = b"".join(file.read(at, length) for file, at, length in log.locate(0, 1 << 30, log.log_end_offset))
    return [(header.base_offset, header.next_offset, header.records_count) for _, header in iter_batches(data)]


def left_over(path: Path) -> list[str]:
    """What a pass was writing."""
    return sorted(each.name for each in (path / DIRECTORY).iterdir() if each.suffix == ".cleaned")
