"""Replicas of a compacted topic: records removed by compaction are lawful, other missing records are not."""

import struct
from collections.abc import Sequence
from pathlib import Path

import crc32c
import pytest

from analysis.core.replica_evidence import Circumstances, ReplicaReport
from analysis.core.replicas import check_partition
from analysis.replicafiles.kafka import compacts, read_partition
from analysis.replicafiles.log import ReplicaLog
from history.record.values import VALUE_FIRST
from tests.analysis.segment_files import batch, record, value, write_high_watermarks, write_replica

HORIZON = 0x40
COMPACTED = Circumstances(quiet=True, stopped=True, compacts=True, records=VALUE_FIRST)

Kept = tuple[int, str, int | None]
"""A record: its offset, key and value."""
WHOLE: list[Kept] = [(0, "a", 10), (1, "b", 11), (2, "a", 12), (3, "c", 13), (4, "b", None), (5, "z", 15)]
EPOCHS = [(1, 0), (2, 3)]


def log_of(path: Path, node: str, kept: Sequence[Kept], *, end: int = 6, compacted: bool = True) -> ReplicaLog:
    """A replica with one batch for each record, and an empty batch for the start of each epoch and the end of the
    log."""
    data = path / node
    by_offset = {offset: (key, number) for offset, key, number in kept}
    content = b""
    for offset in range(end):
        epoch = 1 if offset < 3 else 2
        if offset in by_offset:
            key, number = by_offset[offset]
            body = None if number is None else value(number)
            content += batch(offset, epoch, [record(0, body, key=key.encode())])
        elif offset in (0, 3, end - 1):
            content += batch(offset, epoch, [], last=0, count=0)
    write_replica(data, "log", 0, {0: content}, epochs=EPOCHS)
    write_high_watermarks(data, {("log", 0): end})
    return read_partition(node, ("log", 0), data, compacted=compacted)


def judged(path: Path, *replicas: Sequence[Kept], around: Circumstances = COMPACTED) -> ReplicaReport:
    return check_partition([log_of(path, f"n{i}", kept) for i, kept in enumerate(replicas)], circumstances=around)


def without(*offsets: int) -> list[Kept]:
    return [kept for kept in WHOLE if kept[0] not in offsets]


def test_replicas_that_are_compacted_differently_agree(tmp_path: Path) -> None:
    report = judged(tmp_path, WHOLE, without(0), without(0, 1), without(0, 1, 4))
    assert report.ok, report.anomalies
    assert report.undecided == ()


@pytest.mark.parametrize(("lost", "at"), [((3,), 3), ((2,), 2), ((0, 2), 2), ((5,), 5)])
def test_a_missing_record_without_a_later_replacement_is_an_anomaly(
    tmp_path: Path, lost: tuple[int, ...], at: int
) -> None:
    report = judged(tmp_path, WHOLE, without(*lost))
    assert [anomaly.name for anomaly in report.anomalies] == ["replica-divergence"]
    assert f"lacks what n0 holds at offset {at}" in report.anomalies[0].sentence


def test_an_earlier_dump_has_to_be_replaced_too(tmp_path: Path) -> None:
    before = log_of(tmp_path / "before", "n0", WHOLE)
    for number, (lost, names) in enumerate({(0, 1, 4): [], (0, 3): ["prefix-changed"]}.items()):
        after = log_of(tmp_path / str(number), "n0", without(*lost))
        report = check_partition([after], circumstances=COMPACTED, earlier=[before])
        assert [anomaly.name for anomaly in report.anomalies] == names


def test_the_same_files_of_an_uncompacted_topic_are_damaged(tmp_path: Path) -> None:
    log = log_of(tmp_path, "n0", without(0, 1), compacted=False)
    assert "0 records and the last offset delta 0" in log.damage


def test_a_batch_that_lost_some_of_its_records_keeps_their_offsets(tmp_path: Path) -> None:
    left = batch(0, 1, [record(1, value(11), key=b"b"), record(3, value(13), key=b"c")], last=3, attributes=HORIZON)
    log = _read(tmp_path / "a", left)
    assert (log.offset.tolist(), log.gaps, log.end, log.damage) == ([1, 3], ((0, 1), (2, 3)), 4, "")
    assert len(set(log.key.tolist())) == 2
    for number, wrong in enumerate(
        (
            batch(0, 1, [record(3, value(11), key=b"b"), record(1, value(13), key=b"c")], last=3),
            batch(0, 1, [record(1, value(11), key=b"b"), record(4, value(13), key=b"c")], last=3),
        )
    ):
        assert "an offset delta out of order" in _read(tmp_path / str(number), wrong).damage


def _read(path: Path, content: bytes) -> ReplicaLog:
    write_replica(path, "log", 0, {0: content}, epochs=[(1, 0)])
    write_high_watermarks(path, {("log", 0): 4})
    return read_partition("n0", ("log", 0), path, compacted=True)


def test_the_reader_reads_a_compacted_log_of_the_broker(tmp_path: Path) -> None:
    """The header of an emptied batch, byte by byte."""
    checked = struct.pack(">hiqqqhii", 0, 4, 1000, 1000, 7, 0, 2, 0)
    empty = struct.pack(">qiibI", 0, len(checked) + 9, 1, 2, crc32c.crc32c(checked)) + checked
    log = _read(tmp_path, empty)
    assert (log.end, log.damage, log.doubts) == (5, "", ())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"log.cleanup.policy": "delete"}, False),
        ({"log.cleanup.policy": "compact,delete"}, True),
        ({"cleanup.policy": "compact"}, True),
    ],
)
def test_only_some_settings_compact_a_topic(settings: dict[str, str], expected: bool) -> None:
    assert compacts(settings) is expected
