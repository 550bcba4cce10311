"""D10, with logs of idempotent producers that continue their sequences, and logs in which one does not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.core.anomaly import Anomaly
from analysis.core.replica_evidence import Circumstances
from analysis.core.replicas import check_partition
from analysis.replicafiles.kafka import forgets_producers, read_partition
from tests.analysis.segment_files import batch, record, value, write_high_watermarks, write_replica

LARGEST = (1 << 31) - 1
FROM_ZERO = Circumstances(from_zero=True)
TRANSACTIONAL, CONTROL = 0x10, 0x20
Written = tuple[int, int, int, int]
"""A batch: the producer's id and epoch, the sequence of its first record, and the number of records."""


def found(tmp_path: Path, written: list[Written], around: Circumstances = FROM_ZERO, **odd: int) -> list[Anomaly]:
    """The anomalies of a log with these batches."""
    return of_log(tmp_path, {0: written}, around, **odd)


def of_log(tmp_path: Path, segments: dict[int, list[Written]], around: Circumstances, **odd: int) -> list[Anomaly]:
    """The anomalies of a log whose segments have these base offsets and batches. `odd`: as of `batch`."""
    contents, number, end = {}, 0, 0
    for base, written in segments.items():
        content, end = b"", base
        for producer, epoch, sequence, count in written:
            records = [record(delta, value(number + delta, 20)) for delta in range(count)]
            content += batch(end, 1, records, producer=(producer, epoch, sequence), **odd)
            number, end = number + count, end + count
        contents[base] = content
    write_replica(tmp_path, "log", 0, contents, epochs=[(1, min(segments))])
    write_high_watermarks(tmp_path, {("log", 0): end})
    log = read_partition("n1", ("log", 0), tmp_path)
    return [
        each
        for each in check_partition([log], circumstances=around).anomalies
        if each.name == "sequence-gap-on-replica"
    ]


@pytest.mark.parametrize(
    "written",
    [
        pytest.param([], id="no batch"),
        pytest.param([(-1, -1, -1, 1), (-1, -1, -1, 2)], id="no idempotent producer"),
        pytest.param([(7, 0, 0, 1), (7, 0, 1, 3), (7, 0, 4, 1)], id="one producer"),
        pytest.param([(7, 0, 0, 2), (8, 0, 0, 1), (7, 0, 2, 1), (8, 0, 1, 5), (-1, -1, -1, 1)], id="two producers"),
        pytest.param([(7, 0, 0, 9), (7, 1, 0, 1), (7, 1, 1, 1)], id="a new epoch starts at 0"),
        pytest.param([(7, 1, 0, 1), (7, 0, 0, 1), (7, 1, 1, 1)], id="epochs are apart"),
    ],
)
def test_producers_that_continue_are_accepted(tmp_path: Path, written: list[Written]) -> None:
    assert found(tmp_path, written) == []


@pytest.mark.parametrize(
    ("written", "at", "count", "sentence"),
    [
        pytest.param([(7, 0, 0, 2), (7, 0, 3, 1)], 2, 1, "after its batch at offset 0, 2 must follow", id="a gap"),
        pytest.param(
            [(7, 0, 0, 2), (7, 0, 0, 2)], 2, 1, "after its batch at offset 0, 2 must follow", id="a repetition"
        ),
        pytest.param([(7, 0, 0, 2), (7, 0, 2, 1), (7, 0, 1, 1)], 3, 1, "3 must follow", id="an overlap"),
        pytest.param([(8, 0, 0, 4), (7, 0, 0, 1), (8, 0, 4, 1), (7, 0, 2, 1)], 6, 1, "of producer 7", id="one of two"),
        pytest.param([(7, 2, 0, 1), (7, 2, 5, 1), (7, 2, 9, 1)], 1, 2, "epoch 2", id="two gaps are one anomaly"),
    ],
)
@pytest.mark.parametrize("around", [FROM_ZERO, Circumstances()])
def test_a_producer_that_does_not_continue_is_an_anomaly_of_every_system(
    tmp_path: Path, written: list[Written], at: int, count: int, sentence: str, around: Circumstances
) -> None:
    (anomaly,) = found(tmp_path, written, around)
    assert anomaly.count == count
    assert sentence in anomaly.sentence
    assert anomaly.witness[-1]["offset"] == at


@pytest.mark.parametrize("written", [[(7, 0, 17, 5)], [(8, 0, 0, 1), (7, 0, 1, 1)], [(7, 0, 0, 1), (7, 1, 1, 1)]])
def test_a_first_number_other_than_0_is_one_where_the_system_promises_to_refuse_it(
    tmp_path: Path, written: list[Written]
) -> None:
    (anomaly,) = found(tmp_path / "promised", written)
    assert "it is the first one of that producer and epoch, and must have 0" in anomaly.sentence
    assert found(tmp_path / "not promised", written, Circumstances()) == []


def test_the_number_after_the_largest_is_0(tmp_path: Path) -> None:
    around = Circumstances()
    assert found(tmp_path / "between", [(7, 0, LARGEST - 1, 2), (7, 0, 0, 1)], around) == []
    assert found(tmp_path / "within", [(7, 0, LARGEST, 3), (7, 0, 2, 1)], around) == []
    assert len(found(tmp_path / "skipped", [(7, 0, LARGEST, 1), (7, 0, 1, 1)], around)) == 1


def test_a_log_that_starts_later_leaves_first_numbers_undecided(tmp_path: Path) -> None:
    assert of_log(tmp_path / "first", {40: [(7, 0, 17, 1), (7, 0, 18, 1)]}, FROM_ZERO) == []
    assert len(of_log(tmp_path / "between", {40: [(7, 0, 17, 1), (7, 0, 19, 1)]}, FROM_ZERO)) == 1


def test_records_in_remote_segments_do_not_count_as_missing(tmp_path: Path) -> None:
    found(tmp_path, [(7, 0, 17, 1), (7, 0, 18, 1)])
    log = read_partition("n1", ("log", 0), tmp_path)
    assert not check_partition([log], circumstances=FROM_ZERO).ok
    assert check_partition([replace(log, own_start=17)], circumstances=FROM_ZERO).ok


def test_segments_continue_each_other_and_a_missing_one_hides_its_records(tmp_path: Path) -> None:
    assert of_log(tmp_path / "whole", {0: [(7, 0, 0, 2)], 2: [(7, 0, 2, 1)]}, FROM_ZERO) == []
    assert len(of_log(tmp_path / "gap", {0: [(7, 0, 0, 2)], 2: [(7, 0, 3, 1)]}, FROM_ZERO)) == 1
    assert of_log(tmp_path / "missing", {0: [(7, 0, 0, 2)], 9: [(7, 0, 8, 1), (8, 0, 4, 1)]}, FROM_ZERO) == []


@pytest.mark.parametrize(
    "around",
    [
        Circumstances(deleted_to=1, from_zero=True),
        Circumstances(compacts=True, from_zero=True),
        Circumstances(forgets_producers=True, from_zero=True),
    ],
)
def test_the_rule_does_not_apply_to_leaders_that_expire_producers(tmp_path: Path, around: Circumstances) -> None:
    assert found(tmp_path, [(7, 0, 3, 1), (7, 0, 9, 1), (7, 0, 9, 1)], around) == []


@pytest.mark.parametrize("attributes", [TRANSACTIONAL, CONTROL | TRANSACTIONAL])
def test_transactions_are_not_checked(tmp_path: Path, attributes: int) -> None:
    assert found(tmp_path, [(7, 0, 3, 1), (7, 0, 9, 1)], attributes=attributes) == []


def test_compressed_batches_count_also_unopened(tmp_path: Path) -> None:
    assert len(found(tmp_path, [(7, 0, 0, 2), (7, 0, 3, 1)], codec=1)) == 1


def test_a_log_without_producers_has_no_sequences(tmp_path: Path) -> None:
    found(tmp_path, [(-1, -1, -1, 1)])
    log = read_partition("n1", ("log", 0), tmp_path)
    assert not len(log.sequences)
    assert log.sequences.dtype == np.int64
    assert check_partition([replace(log, node="n1")], circumstances=FROM_ZERO).ok


def test_some_settings_expire_producers_of_a_broker() -> None:
    assert not forgets_producers({"log.segment.bytes": "4096"})
    assert forgets_producers({"producer.id.expiration.ms": "1000"})
    assert forgets_producers({"transactional.id.expiration.ms": "1000"})
