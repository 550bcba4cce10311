"""Deletions of records: what the journal has of them, and the rules for answers, reads, replicas, logs and lookups."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.checkers.timestamp_lookups import judge
from analysis.core.deletion_rules import (
    INF,
    AnsweredStarts,
    ReadAgain,
    ReplicaStart,
    Retention,
    expired_early,
    read_again,
    wrong_answers,
    wrong_starts,
)
from analysis.core.replica_evidence import Circumstances
from analysis.core.replicas import check_partition
from analysis.core.rows import rows_of
from analysis.evidence.deletions import Deletion, Deletions, deletions_of
from analysis.replicafiles.kafka import LOG_STARTS, read_partition
from analysis.replicafiles.log import ReplicaLog
from history.record.offset_record import NO_OFFSET
from tests.analysis.log_checks import GroupsInMemory
from tests.analysis.log_histories import Op, end, info, ok, read, table
from tests.analysis.offset_operations import lookup, sight
from tests.analysis.replica_logs import replica
from tests.analysis.segment_files import log_bytes, write_high_watermarks, write_replica

KEY = ("log", 0)
SENT = {KEY: (np.arange(10), np.arange(10.0))}
"""Ten records, one each second."""


def sent(number: int, offset: int, *, client: str = "p1", partition: int = 0, t: int = 1) -> dict[str, Any]:
    where = {"client": client, "number": number, "partition": partition, "offset": offset}
    return {"event": "deletion_sent", "t": t, **where}


def answer(number: int, low_watermark: int, *, client: str = "p1", error: str = "", t: int = 5) -> dict[str, Any]:
    told = {"client": client, "number": number, "low_watermark": low_watermark, "error": error}
    return {"event": "records_deleted", "t": t, **told}


def names(found: Any) -> list[str]:
    return [each.name for each in found]


# ---- the journal


def test_answers_belong_to_their_requests_and_requests_bound_missing_records() -> None:
    journal = [sent(1, 7), {"event": "note", "t": 2}, sent(1, 9, client="p2"), sent(2, 30), answer(1, 8)]
    journal += [answer(2, -1, error="REQUEST_TIMED_OUT")]
    found = deletions_of("log", journal)
    assert found.defects == ()
    assert found.requested == {KEY: 30}
    assert found.answered == {KEY: 8}
    assert [(each.client, each.number, each.is_answered) for each in found.requests] == [
        ("p1", 1, True),
        ("p1", 2, False),
        ("p2", 1, False),
    ]


@pytest.mark.parametrize(
    ("journal", "defect"),
    [
        ([sent(1, 7), sent(1, 7)], "request 1 of p1 to delete records twice"),
        ([answer(1, 7)], "no request 1 of p1"),
        ([sent(1, 7), answer(1, 7), answer(1, 7)], "two answers to request 1"),
        ([sent(1, 7), answer(1, -1)], "a contradictory answer"),
        ([sent(1, 7), answer(1, 7, error="X")], "a contradictory answer"),
    ],
)
def test_lines_that_contradict_each_other_are_defects(journal: list[dict[str, Any]], defect: str) -> None:
    (found,) = deletions_of("log", journal).defects
    assert defect in found


# ---- answers and replicas


def deletions(*requests: tuple[int, int, int]) -> Deletions:
    """Requests below an offset, with the times of their answers and the low watermarks."""
    made = [Deletion("p1", number, 0, *each) for number, each in enumerate(requests, 1)]
    return Deletions("log", tuple(made))


@pytest.mark.parametrize(
    ("low_watermark", "found"), [(9, ["deletion-undone"]), (10, []), (12, []), (13, ["deletion-beyond-request"])]
)
def test_the_low_watermark_of_an_answer_is_between_its_request_and_the_highest(
    low_watermark: int, found: list[str]
) -> None:
    its = deletions((10, 5, low_watermark), (12, 6, 12))
    assert names(wrong_answers(its, bounded=True)) == found
    assert names(wrong_answers(its, bounded=False)) == [name for name in found if name == "deletion-undone"]


@pytest.mark.parametrize(
    ("start", "found"), [(7, ["deletion-undone"]), (8, []), (12, []), (13, ["deletion-beyond-request"])]
)
def test_a_replica_starts_between_the_answered_and_the_requested_offset(start: int, found: list[str]) -> None:
    its = replace(deletions((8, 5, 8)), requests=(*deletions((8, 5, 8)).requests, Deletion("p2", 1, 0, 12)))
    assert names(wrong_starts(its, [ReplicaStart("n1", KEY, start)], bounded=True)) == found


# ---- reads


def again(history: list[Op], *, from_fetches: bool = True) -> ReadAgain | None:
    its = AnsweredStarts.of(deletions((2, 50, 2), (4, 80, 4)).requests, from_fetches=from_fetches)
    return its.shown_again(rows_of(table(history)))


@pytest.mark.parametrize("history", [[read(0, [1], 49, 60)], [read(2, [1], 51, 60)], [read(3, [1], 79, 99)]])
def test_reads_that_were_sent_before_an_answer_or_start_above_it_are_lawful(history: list[Op]) -> None:
    assert again(history) is None


def test_a_later_read_that_shows_a_deleted_record_is_found() -> None:
    history = [read(3, [1], 90, 95), read(1, [1, 2], 60, 65), read(4, [3], 99, 100)]
    found = again(history)
    assert found == ReadAgain(2, offset=1, low_watermark=2, inv=60, ret=65, process=1)
    (anomaly,) = read_again(deletions((2, 50, 2), (4, 80, 4)), {KEY: found})
    assert (anomaly.name, anomaly.count) == ("deletion-undone", 2)
    assert "below 2 was answered with the low watermark 2, and a read that was sent later shows offset 1" in (
        anomaly.sentence
    )


def test_reads_of_libraries_that_fetch_ahead_count_only_in_the_end() -> None:
    assert again([read(0, [1], 90, 95)], from_fetches=False) is None
    assert again([read(0, [1], 90, 95, final=True)], from_fetches=False) is not None


# ---- the log check


def log(history: list[Op], deleted_to: int) -> tuple[list[str], bool, tuple[str, ...]]:
    """The anomalies, whether the final read is complete, and what is undecided."""
    report = GroupsInMemory.of(table(history)).report(deleted={KEY: deleted_to})
    assert report == GroupsInMemory.of(table(history)).report(span=2, deleted={KEY: deleted_to})
    return names(report.anomalies), report.partitions[KEY].final_end is not None, report.undecided


FOUR = [ok(name, 10 * name, 10 * name + 5, name - 1) for name in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("deleted_to", "shown_from", "found", "complete"),
    [
        (0, 0, [], True),
        (2, 0, [], True),
        (2, 1, [], True),
        (2, 2, [], True),
        (2, 3, ["lost-acknowledged-write"], False),
        (0, 2, [], False),
        (4, 4, [], True),
    ],
)
def test_a_final_read_lacks_only_records_below_the_requested_offset(
    deleted_to: int, shown_from: int, found: list[str], complete: bool
) -> None:
    names_of = list(range(shown_from + 1, 5))
    finals = [end(4, 100, 105, final=True), *([read(shown_from, names_of, 106, 110, final=True)] if names_of else [])]
    anomalies, is_complete, _ = log([*FOUR, *finals], deleted_to)
    assert is_complete == complete
    assert anomalies == (found if complete else [])


def test_a_record_above_the_requested_offset_is_lost_and_one_below_is_not() -> None:
    finals = [end(4, 100, 105, final=True), read(2, [3, 9], 106, 110, final=True)]
    history = [*FOUR, info(9, 41), *finals]
    assert log(history, 2)[0] == ["lost-acknowledged-write"]
    history = [*FOUR[2:], read(0, [1, 2], 30, 35), info(1, 10), info(2, 20), end(4, 100, 105, final=True)]
    history += [read(2, [3, 4], 106, 110, final=True)]
    assert log(history, 2)[:2] == ([], True)
    lacking = [*history[:-2], end(3, 111, 112, final=True)]
    assert "lost-acknowledged-write" in log(lacking, 2)[0]


def test_two_records_at_a_deleted_offset_contradict_each_other_still() -> None:
    finals = [end(4, 100, 105, final=True), read(2, [3, 4], 106, 110, final=True)]
    for another in ([ok(7, 12, 16, 0)], [info(7, 1), read(0, [7], 40, 45)]):
        assert "lost-acknowledged-write" in log([*FOUR, *another, *finals], 2)[0]


def test_an_append_without_an_offset_may_have_been_deleted() -> None:
    finals = [end(4, 100, 105, final=True), read(2, [3, 4], 106, 110, final=True)]
    history = [*FOUR[1:], ok(1, 10, 15, -1), *finals]
    anomalies, complete, undecided = log(history, 2)
    assert (anomalies, complete) == ([], True)
    assert len(undecided) == 1


def test_an_offset_that_no_append_can_fill_is_a_gap_even_below_the_requested_offset() -> None:
    finals = [end(4, 100, 105, final=True), read(2, [3, 4], 106, 110, final=True)]
    assert log([FOUR[0], *FOUR[2:], *finals], 3)[0] == ["gap"]


# ---- epoch files


@pytest.mark.parametrize(
    ("file", "found"),
    [
        (((2, 3), (3, 4)), []),
        (((2, 2), (3, 4)), []),
        (((1, 0), (2, 2), (3, 4)), []),
        (((2, 3),), ["epoch-start-mismatch"]),
        (((2, 3), (3, 3)), ["epoch-start-mismatch"]),
    ],
)
def test_epoch_entries_start_with_the_log(file: tuple[tuple[int, int], ...], found: list[str]) -> None:
    """The start is stored before the epochs below it are removed (K101-11)."""
    late = replica("n1", [2, 3], [4, 5], hw=5, start=3, file=file)
    whole = replica("n2", [1, 1, 2, 2, 3], [1, 2, 3, 4, 5], hw=5)
    around = Circumstances(quiet=True, stopped=True, deleted_to=3)
    assert names(check_partition([late, whole], circumstances=around).anomalies) == found


# ---- replicas' files


def written(directory: Path, node: str, values: Sequence[int], start: int | None) -> ReplicaLog:
    """A replica with one segment and a stored start."""
    data = directory / node
    write_replica(data, "log", 0, {0: log_bytes([1] * len(values), values)}, epochs=[(1, start or 0)])
    write_high_watermarks(data, {("log", 0): len(values)})
    if start is not None:
        (data / LOG_STARTS).write_text(f"0\n1\nlog 0 {start}\n")
    return read_partition(node, KEY, data)


def test_a_log_excludes_deleted_records_of_its_first_segment(tmp_path: Path) -> None:
    """A deposed leader may hold records there that its successor never had."""
    logs = [written(tmp_path, "n1", [1, 9, 3, 4], 2), written(tmp_path, "n2", [1, 2, 3, 4], 2)]
    assert [(log.start, log.offset.tolist()) for log in logs] == [(2, [2, 3])] * 2
    around = Circumstances(quiet=True, stopped=True, deleted_to=2)
    assert check_partition(logs, circumstances=around) == replace(
        check_partition(logs, circumstances=around), anomalies=()
    )
    served = [written(tmp_path, "n3", [1, 9, 3, 4], None), logs[1], written(tmp_path, "n4", [1, 2, 3, 4], None)]
    assert "replica-divergence" in names(check_partition(served, circumstances=around).anomalies)
    report = check_partition(logs, circumstances=replace(around, deleted_to=1))
    assert any("starts at offset 2, though nothing may delete" in each for each in report.undecided)


def test_a_stored_start_beyond_the_log_is_a_doubt(tmp_path: Path) -> None:
    assert any("starts at 9 by" in doubt for doubt in written(tmp_path, "n1", [1, 2], 9).doubts)


# ---- lookups


@pytest.mark.parametrize(
    ("asked", "given", "deleted_to", "wrong"),
    [
        (100, 12, 12, False),
        (100, 12, 11, True),
        (101, 11, 12, True),
        (140, NO_OFFSET, 12, True),
        (140, NO_OFFSET, 14, False),
    ],
)
def test_a_lookup_may_pass_over_records_that_may_have_been_deleted(
    asked: int, given: int, deleted_to: int, wrong: bool
) -> None:
    seen = sight(10, (100, 100, 120, 140), 50)
    found = judge("log", [lookup(asked, given, 60)], [seen], {KEY: deleted_to})
    assert bool(found.anomalies) == wrong


def test_lookups_over_random_records_are_judged_as_by_a_search() -> None:
    rng = random.Random(1)
    for _ in range(300):
        times = tuple(rng.randint(0, 9) for _ in range(rng.randint(1, 8)))
        deleted_to, asked, given = rng.randint(0, 9), rng.randint(0, 9), rng.randint(0, len(times) - 1)
        kept = [at for at, time in enumerate(times) if at >= deleted_to and time >= asked and at < given]
        expected = times[given] < asked or bool(kept)
        found = judge("log", [lookup(asked, given, 60)], [sight(0, times, 50)], {KEY: deleted_to})
        assert bool(found.anomalies) == expected


# ---- X5, retention


@pytest.mark.parametrize(
    ("retention", "at_s", "size", "is_early"),
    [
        (Retention(age_s=5), 9.0, INF, False),  # the youngest record below offset 5 is of 4 s
        (Retention(age_s=5), 8.6, INF, False),  # clocks may differ
        (Retention(age_s=5), 8.4, INF, True),
        (Retention(size=100), 5.0, 100, False),
        (Retention(size=100), 5.0, 99, True),
        (Retention(size=100), 5.0, INF, False),  # unknown
        (Retention(age_s=5, size=100), 5.0, 99, False),  # either may explain a part
    ],
)
def test_a_log_may_start_above_expired_records(retention: Retention, at_s: float, size: float, is_early: bool) -> None:
    found = list(expired_early([ReplicaStart("n1", KEY, 5, at_s, size)], retention, {}, SENT))
    assert names(found) == ["deletion-beyond-request"] * is_early


def test_deleted_records_need_not_have_expired() -> None:
    start, retention = ReplicaStart("n1", KEY, 5, 5.0), Retention(age_s=100)
    assert not list(expired_early([start], retention, {KEY: 5}, SENT))
    (found,) = expired_early([start], retention, {KEY: 3}, SENT)
    assert "keeps 2 acknowledged records below" in found.sentence
