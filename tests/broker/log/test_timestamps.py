"""A lookup by time: in batches of several records, of every codec, after any change of the log."""

from pathlib import Path

import pytest
from crc32c import crc32c

from broker.disk import RealDisk
from broker.log.log import PartitionLog
from broker.log.log_config import LogConfig
from broker.log.validation import BYTES_PER_RECORD, bytes_examined
from broker.protocol.compression import NAMES
from broker.protocol.records import LOG_APPEND_TIME_MASK, Record, build_batch, parse_header, stamp
from broker.replica.compactor import raw_records, rebuilt
from tests.broker.log.making import DIRECTORY, in_loop, only_file

STORIES = in_loop
CODECS = pytest.mark.parametrize("codec", [0, *NAMES], ids=["none", *NAMES.values()])
TIMES = (1_000, 51_000, 1_010, 61_000, 1_020)
"""Of one batch: neither its first nor its last record is the latest."""


def batch(*times: int, codec: int = 0, attributes: int = 0) -> bytearray:
    plain = build_batch([Record(0, time, f"key {time}".encode(), b"value") for time in times])
    header = parse_header(plain)
    records = list(raw_records(header, plain))
    return bytearray(rebuilt(header._replace(attributes=codec | attributes), records, None))


async def opened(root: Path, *, clean: bool = False, segment_bytes: int = 1 << 20, start: int = 0) -> PartitionLog:
    config = LogConfig(segment_bytes, 100, compacted=True)
    return await PartitionLog.open(RealDisk(str(root)), DIRECTORY, config, clean_shutdown=clean, start_offset=start)


async def holding(root: Path, *batches: bytearray, segment_bytes: int = 1 << 20) -> PartitionLog:
    log = await opened(root, segment_bytes=segment_bytes)
    await log.start_leader_epoch(0)
    for each in batches:
        log.append_as_leader(each, 0)
    return log


@pytest.mark.conforms("LOG-1")
@CODECS
async def test_a_time_is_found_in_the_middle_of_a_batch(tmp_path: Path, codec: int) -> None:
    log = await holding(tmp_path, batch(*TIMES, codec=codec), batch(*TIMES, codec=codec))
    assert log.offset_for_timestamp(1_000) == (0, 1_000)
    assert log.offset_for_timestamp(1_001) == log.offset_for_timestamp(51_000) == (1, 51_000)
    assert log.offset_for_timestamp(51_001) == (3, 61_000)
    assert log.offset_for_timestamp(61_001) is None
    assert log.max_timestamp_below(10) == log.max_timestamp_below(5) == (3, 61_000), "the first that has it"


@pytest.mark.conforms("LOG-1")
@CODECS
async def test_the_first_of_the_records_with_the_largest_time_is_found(tmp_path: Path, codec: int) -> None:
    log = await holding(tmp_path, batch(5, 7, 7, 6, codec=codec), batch(7, 1, codec=codec))
    assert log.max_timestamp_below(6) == (1, 7)
    assert log.offset_for_timestamp(6) == (1, 7)


@pytest.mark.conforms("LOG-1")
@CODECS
@pytest.mark.parametrize("clean", [True, False])
async def test_times_are_the_same_after_a_restart(tmp_path: Path, codec: int, clean: bool) -> None:
    batches = [batch(*(time + 10 * number for time in TIMES), codec=codec) for number in range(20)]
    log = await holding(tmp_path, *batches, segment_bytes=400)
    assert len(log.segments) > 3
    asked = [*range(0, 62_000, 500), *TIMES]
    found = [log.offset_for_timestamp(time) for time in asked], [log.max_timestamp_below(5 * n) for n in range(21)]
    await log.close()
    again = await opened(tmp_path, clean=clean, segment_bytes=400)
    assert again.recovered.scanned != clean
    assert [again.offset_for_timestamp(time) for time in asked] == found[0]
    assert [again.max_timestamp_below(5 * n) for n in range(21)] == found[1]
    assert found[1][20] == (98, 61_190)


@pytest.mark.conforms("LOG-1")
@CODECS
async def test_no_record_below_the_logs_start_is_found(tmp_path: Path, codec: int) -> None:
    """The start may be inside a batch; its header still counts the records before the start."""
    log = await holding(tmp_path, batch(*TIMES, codec=codec), batch(2_000, 3_000, codec=codec))
    await log.advance_start(2)
    assert log.offset_for_timestamp(1_011) == log.max_timestamp_below(7) == (3, 61_000)
    await log.advance_start(4)
    assert log.max_timestamp_below(5) == (4, 1_020)
    assert log.max_timestamp_below(7) == (6, 3_000)
    assert log.offset_for_timestamp(1_000) == (4, 1_020)
    assert log.offset_for_timestamp(2_500) == (6, 3_000)


@pytest.mark.conforms("LOG-1")
@CODECS
async def test_no_record_that_compaction_has_removed_is_found(tmp_path: Path, codec: int) -> None:
    plain = batch(*TIMES)
    header = parse_header(plain)
    kept = [record for record in raw_records(header, plain) if record.offset_delta != 3]
    left = bytearray(rebuilt(header._replace(attributes=codec), kept, 900_000))
    stamp(left, 0, 0, 0)
    log = await opened(tmp_path)
    await log.replicate(left, 0)
    assert log.log_end_offset == 5
    assert log.max_timestamp_below(5) == (1, 51_000)
    assert log.offset_for_timestamp(1_001) == (1, 51_000)
    assert log.offset_for_timestamp(51_001) is None


@pytest.mark.conforms("LOG-1")
@CODECS
async def test_records_that_the_log_has_stamped_have_the_time_of_their_batch(tmp_path: Path, codec: int) -> None:
    stamped = batch(*TIMES, codec=codec, attributes=LOG_APPEND_TIME_MASK)
    stamp(stamped, 0, 0, 0)
    log = await opened(tmp_path)
    await log.replicate(stamped, 0)
    assert log.max_timestamp_below(5) == log.offset_for_timestamp(1_001) == (0, 61_000)


async def test_a_batch_of_an_unknown_codec_counts_from_its_first_offset(tmp_path: Path) -> None:
    unknown = batch(*TIMES)
    unknown[22] = 7
    unknown[17:21] = crc32c(unknown[21:]).to_bytes(4, "big")
    stamp(unknown, 0, 0, 0)
    log = await opened(tmp_path)
    await log.replicate(unknown, 0)
    assert log.offset_for_timestamp(1_001) == log.max_timestamp_below(5) == (0, 61_000)


@pytest.mark.conforms("LOG-1")
@CODECS
async def test_batches_decompressed_for_a_time_lookup_are_counted(tmp_path: Path, codec: int) -> None:
    log = await holding(tmp_path, batch(*range(5_000), codec=codec))
    for look, asked in ((log.offset_for_timestamp, 4_999), (log.max_timestamp_below, 5_000)):
        before = bytes_examined()
        assert look(asked) == (4_999, 4_999)
        assert bytes_examined() - before > 5_000 * BYTES_PER_RECORD


@pytest.mark.conforms("LOG-1")
@CODECS
async def test_a_lookup_by_time_fails_at_a_damaged_batch(tmp_path: Path, codec: int) -> None:
    log = await holding(tmp_path, batch(*TIMES, codec=codec), batch(*TIMES, codec=codec))
    await log.close()
    path = only_file(tmp_path, ".log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    log = await opened(tmp_path, clean=True)
    for look, asked in ((log.offset_for_timestamp, 1_001), (log.max_timestamp_below, 10)):
        with pytest.raises(OSError, match="the bytes are not what was written"):
            look(asked)
    assert not list((tmp_path / DIRECTORY).glob("*.positions")), "the next start reads the segment whole"
