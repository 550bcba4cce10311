"""Lookups by timestamp: correct and wrong answers, and the reader of clients' records."""

from pathlib import Path
from random import Random

import pytest

from analysis.checkers.timestamp_lookups import judge
from history.record.offset_record import LOOKUP, LOOKUPS, NO_OFFSET, SIGHT, OffsetOperation, OffsetWriter, read_offsets
from tests.analysis import offset_operations
from tests.analysis.offset_operations import sight
from workloads.known_times import KnownTimes

TIMES = (100, 100, 120, 110, 130, 140)
"""The timestamps of the records at the offsets 10 to 15, as one client had read them at time 50."""
SEEN = sight(10, TIMES, 50)


def lookup(timestamp: int, offset: int, *, inv: int = 60, partition: int = 0) -> OffsetOperation:
    return offset_operations.lookup(timestamp, offset, inv, partition=partition)


@pytest.mark.conforms("LOG-1")
@pytest.mark.parametrize(
    ("asked", "given"),
    [(100, 10), (1, 10), (101, 12), (111, 12), (120, 12), (121, 14), (140, 15), (141, NO_OFFSET), (141, 16), (90, 9)],
)
def test_the_first_record_that_is_not_earlier_passes(asked: int, given: int) -> None:
    assert judge("log", [lookup(asked, given)], [SEEN]).anomalies == ()


@pytest.mark.conforms("LOG-1")
@pytest.mark.parametrize(
    ("asked", "given", "why"),
    [
        (101, 13, "the record at offset 12 is of 120 ms"),
        (100, 11, "the record at offset 10 is of 100 ms"),
        (101, 11, "the record at offset 11 is of 100 ms"),
        (140, 16, "the record at offset 15 is of 140 ms"),
        (140, NO_OFFSET, "that no such record exists; the record at offset 15 is of 140 ms"),
        (111, NO_OFFSET, "that no such record exists; the record at offset 12 is of 120 ms"),
    ],
)
def test_lookup_answers_with_an_earlier_a_later_or_no_record_are_anomalies(asked: int, given: int, why: str) -> None:
    (found,) = judge("log", [lookup(asked, given)], [SEEN]).anomalies
    assert found.name == "wrong-offset-for-timestamp"
    assert why in found.sentence


def test_a_record_read_after_the_start_of_a_lookup_may_be_newer() -> None:
    late = lookup(140, NO_OFFSET, inv=49)
    assert judge("log", [late], [SEEN]).anomalies == ()


def test_a_record_with_two_timestamps_and_one_of_another_partition_are_ignored() -> None:
    other = sight(15, (150,), 55, "consumer-3")
    assert judge("log", [lookup(140, NO_OFFSET)], [SEEN, other]).anomalies == ()
    assert judge("log", [lookup(140, NO_OFFSET, partition=1)], [SEEN]) == ((), 0)


def test_lookups_without_a_record_to_compare_are_not_counted() -> None:
    assert judge("log", [lookup(100, 10), lookup(90, 9)], [SEEN]).decided == 1


def write(directory: Path) -> Path:
    """The record of one client; returns its file."""
    with OffsetWriter(directory / "history" / "operations", LOOKUPS, "consumer-1", lambda: 50) as writer:
        writer.add("sight", 0, first=10, timestamps=list(TIMES))
        writer.add("lookup", 0, timestamp=101, offset=12, inv=40)
    return directory / "history" / LOOKUPS / "consumer-1.jsonl"


def test_the_reader_reads_lookups_recorded_by_a_client(tmp_path: Path) -> None:
    (tmp_path / "history" / "operations").mkdir(parents=True)
    write(tmp_path)
    records = read_offsets(tmp_path, LOOKUPS)
    assert records.of(SIGHT) == [SEEN]
    assert records.of(LOOKUP) == [OffsetOperation(LOOKUP, "consumer-1", 0, 40, 50, 12, timestamp=101)]
    assert (records.clients, records.defects) == (("consumer-1",), ())


def test_a_file_that_was_cut_or_changed_is_a_defect(tmp_path: Path) -> None:
    (tmp_path / "history" / "operations").mkdir(parents=True)
    path = write(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    assert any("has ended" in each for each in read_offsets(tmp_path, LOOKUPS).defects)
    path.write_bytes(content.replace(b"101", b"102"))
    assert any("is damaged" in each for each in read_offsets(tmp_path, LOOKUPS).defects)


def test_a_client_looks_up_times_of_records_that_it_read() -> None:
    times, rng = KnownTimes(), Random(1)
    assert times.draw(0, rng) is None
    assert [times.add(0, offset, 1000 + offset) for offset in (0, 1, 2, 1, 3)] == [True, True, True, False, True]
    drawn = [times.draw(0, rng) for _ in range(200)]
    asked = [each for each in drawn if each is not None]
    assert min(asked) >= 1000
    assert max(asked) > 1003, "also for a time after the last record"
    assert 0 < len(asked) < 200, "and for the start"
