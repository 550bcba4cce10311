"""Lookups by timestamp: correct and wrong answers, and the reader of clients' records."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from analysis.core.lookup_rules import judge
from history.lookups import LOOKUPS, NO_RECORD, Lookup, LookupWriter, Sight, read_lookups
from workloads.known_times import KnownTimes

TIMES = (100, 100, 120, 110, 130, 140)
"""The timestamps of the records at the offsets 10 to 15, as one client had read them at time 50."""
SIGHT = Sight("consumer-1", 0, 10, TIMES, 50)


def lookup(timestamp: int, offset: int, *, inv: int = 60, partition: int = 0) -> Lookup:
    return Lookup("consumer-2", partition, timestamp, offset, inv, inv + 5)


@pytest.mark.conforms("LOG-1")
@pytest.mark.parametrize(
    ("asked", "given"),
    [(100, 10), (1, 10), (101, 12), (111, 12), (120, 12), (121, 14), (140, 15), (141, NO_RECORD), (141, 16), (90, 9)],
)
def test_the_first_record_that_is_not_earlier_passes(asked: int, given: int) -> None:
    assert judge("log", [lookup(asked, given)], [SIGHT]).anomalies == ()


@pytest.mark.conforms("LOG-1")
@pytest.mark.parametrize(
    ("asked", "given", "why"),
    [
        (101, 13, "the record at offset 12 is of 120 ms"),
        (100, 11, "the record at offset 10 is of 100 ms"),
        (101, 11, "the record at offset 11 is of 100 ms"),
        (140, 16, "the record at offset 15 is of 140 ms"),
        (140, NO_RECORD, "that no such record exists; the record at offset 15 is of 140 ms"),
        (111, NO_RECORD, "that no such record exists; the record at offset 12 is of 120 ms"),
    ],
)
def test_lookup_answers_with_an_earlier_a_later_or_no_record_are_anomalies(asked: int, given: int, why: str) -> None:
    (found,) = judge("log", [lookup(asked, given)], [SIGHT]).anomalies
    assert found.name == "wrong-offset-for-timestamp"
    assert why in found.sentence


def test_a_record_read_after_the_start_of_a_lookup_may_be_newer() -> None:
    late = lookup(140, NO_RECORD, inv=49)
    assert judge("log", [late], [SIGHT]).anomalies == ()


def test_a_record_with_two_timestamps_and_one_of_another_partition_are_ignored() -> None:
    other = Sight("consumer-3", 0, 15, (150,), 55)
    assert judge("log", [lookup(140, NO_RECORD)], [SIGHT, other]).anomalies == ()
    assert judge("log", [lookup(140, NO_RECORD, partition=1)], [SIGHT]) == ((), 0)


def test_lookups_without_a_record_to_compare_are_not_counted() -> None:
    assert judge("log", [lookup(100, 10), lookup(90, 9)], [SIGHT]).decided == 1


def write(directory: Path) -> Path:
    """The record of one client; returns its file."""
    with LookupWriter(directory / "history" / "operations", "consumer-1", lambda: 50) as writer:
        writer.seen(0, 10, TIMES)
        writer.looked_up(0, 101, 12, inv=40)
    return directory / "history" / LOOKUPS / "consumer-1.jsonl"


def test_the_reader_reads_lookups_recorded_by_a_client(tmp_path: Path) -> None:
    (tmp_path / "history" / "operations").mkdir(parents=True)
    write(tmp_path)
    records = read_lookups(tmp_path)
    assert records.sights == (SIGHT,)
    assert records.lookups == (Lookup("consumer-1", 0, 101, 12, 40, 50),)
    assert (records.clients, records.defects) == (("consumer-1",), ())


def test_a_file_that_was_cut_or_changed_is_a_defect(tmp_path: Path) -> None:
    (tmp_path / "history" / "operations").mkdir(parents=True)
    path = write(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    assert any("has ended" in each for each in read_lookups(tmp_path).defects)
    path.write_bytes(content.replace(b"101", b"102"))
    assert any("is damaged" in each for each in read_lookups(tmp_path).defects)


def test_a_client_looks_up_times_of_records_that_it_read() -> None:
    times, rng = KnownTimes(), Random(1)
    assert times.draw(0, rng) is None
    assert [times.add(0, offset, 1000 + offset) for offset in (0, 1, 2, 1, 3)] == [True, True, True, False, True]
    drawn = [times.draw(0, rng) for _ in range(200)]
    asked = [each for each in drawn if each is not None]
    assert min(asked) >= 1000
    assert max(asked) > 1003, "also for a time after the last record"
    assert 0 < len(asked) < 200, "and for the start"
