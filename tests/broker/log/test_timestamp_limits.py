"""The limits of producers' timestamps, which apply to every record, in every layout and codec."""

from functools import partial
from pathlib import Path

import pytest

from broker.disk import RealDisk
from broker.errors import ErrorCode, ProtocolError
from broker.log.append_validation import TimestampLimits
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.validation import admit
from broker.protocol.records import NO_TIMESTAMP, Record, build_batch
from simulator.client import compressed
from tests.broker.log.making import in_loop, open_log

pytestmark = pytest.mark.conforms("LOG-5")
STORIES = in_loop
NOW = 1_800_000_000_000
HOUR = 3_600_000
NEVER = (1 << 63) - 1


def batch(*timestamps: int, codec: str = "none") -> bytes:
    """A producer's batch with one record per timestamp."""
    made = build_batch([Record(0, timestamp, None, b"value") for timestamp in timestamps])
    return bytes(compressed(made, codec))


def append(log: PartitionLog, records: bytes, *, before_ms: int = NEVER, after_ms: int = NEVER) -> ErrorCode:
    """The error of an append under these limits; the log grows exactly if the append succeeds."""
    end = log.log_end_offset
    check = TimestampLimits(before_ms, after_ms, lambda: NOW).check
    try:
        log.append_as_leader(bytearray(records), 1, admit=admit, check=check)
    except ProtocolError as error:
        assert log.log_end_offset == end
        return error.code
    assert log.log_end_offset > end
    return ErrorCode.NONE


async def led(tmp_path: Path) -> PartitionLog:
    log = await open_log(RealDisk(str(tmp_path)), LogConfig())
    await log.start_leader_epoch(1)
    return log


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_each_limit_is_the_last_timestamp_that_is_allowed(tmp_path: Path, codec: str) -> None:
    log = await led(tmp_path)
    ahead, behind = partial(append, log, after_ms=HOUR), partial(append, log, before_ms=HOUR)
    for rest in ((), (NOW,), (NOW, NOW - 5, NO_TIMESTAMP)):
        assert ahead(batch(NOW + HOUR, *rest, codec=codec)) == ErrorCode.NONE
        assert ahead(batch(NOW + HOUR + 1, *rest, codec=codec)) == ErrorCode.INVALID_TIMESTAMP
        assert ahead(batch(*rest, NOW + HOUR + 1, codec=codec)) == ErrorCode.INVALID_TIMESTAMP
        assert ahead(batch(0, *rest, codec=codec)) == ErrorCode.NONE
        assert behind(batch(NOW - HOUR, *rest, codec=codec)) == ErrorCode.NONE
        assert behind(batch(NOW - HOUR - 1, *rest, codec=codec)) == ErrorCode.INVALID_TIMESTAMP
        assert behind(batch(*rest, NOW - HOUR - 1, codec=codec)) == ErrorCode.INVALID_TIMESTAMP
        assert behind(batch(NOW + 9 * HOUR, *rest, codec=codec)) == ErrorCode.NONE


async def test_a_record_without_a_timestamp_has_no_limit(tmp_path: Path) -> None:
    log = await led(tmp_path)
    assert append(log, batch(NO_TIMESTAMP), before_ms=0, after_ms=0) == ErrorCode.NONE
    assert append(log, batch(NO_TIMESTAMP, NO_TIMESTAMP), before_ms=0, after_ms=0) == ErrorCode.NONE
    assert append(log, batch(-2), before_ms=HOUR) == ErrorCode.INVALID_TIMESTAMP


async def test_batches_of_a_known_layout_are_checked_each(tmp_path: Path) -> None:
    """Further batches of one layout skip the check of their content, in one request and in later ones."""
    log = await led(tmp_path)
    run = [batch(NOW + number) for number in range(20)]
    assert append(log, b"".join(run), before_ms=HOUR, after_ms=HOUR) == ErrorCode.NONE
    for place in (0, 7, 19):
        for wrong in (NOW + HOUR + 1, NOW - HOUR - 1):
            some = [*run[:place], batch(wrong), *run[place + 1 :]]
            assert append(log, b"".join(some), before_ms=HOUR, after_ms=HOUR) == ErrorCode.INVALID_TIMESTAMP
    for _ in range(3):
        assert append(log, batch(NOW), before_ms=HOUR, after_ms=HOUR) == ErrorCode.NONE
    assert append(log, batch(NOW + HOUR + 1), after_ms=HOUR) == ErrorCode.INVALID_TIMESTAMP
