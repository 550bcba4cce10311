"""An append that is not durable but names its offset is matched with its record inside the offset's range."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.engines.log import conclude_all
from history.record.schemas import ACKS_ALL
from history.upper_bounds import UPPER_BOUNDS
from tests.analysis.log_checks import GroupsInMemory, agrees_with_search, check, undecided_partitions
from tests.analysis.log_histories import Op, end, info, ok, read, table, v, weak_history
from tests.analysis.test_certificate import certified, verified

SPLITS = ((1, 1), (2, 2), (5, 3), (100, 64))


def weak(name: int, inv: int, ret: int, offset: int) -> Op:
    return ok(name, inv, ret, offset, acks=1)


def travelling(history: list[Op], most: int | None, span: int) -> list[int]:
    """The values of the appends that the driver gets, by invocation."""
    _, facts = GroupsInMemory.of(table(history), most).ranges(span)
    loose = facts["log", 0].loose.in_order()
    assert len(loose.value) == len(loose.type) == len(loose.inv) == len(loose.ret)
    return [int(value) for value in loose.value]


@pytest.mark.parametrize(("most", "span"), SPLITS)
def test_only_appends_without_a_record_at_their_offset_travel(most: int, span: int) -> None:
    history = [
        *(weak(n, 10 * n, 10 * n + 5, n) for n in range(9)),
        weak(9, 90, 95, 9),  # lost: its offset is given to 10
        weak(10, 100, 105, 9),
        weak(11, 110, 115, 10),  # never read
        info(12, 120),
        weak(13, 130, 135, 20),
        read(0, [*range(9), 10], 200, 210),
    ]
    assert travelling(history, most, span) == [v(9), v(11), v(12), v(13)]
    report = GroupsInMemory.of(table(history), most).report(span)
    assert report.ok
    assert report.partitions["log", 0].stats["located_by_reads"] == 10


@pytest.mark.parametrize("span", [2, 1 << 20])
def test_the_result_for_the_driver_does_not_grow_with_matched_appends(span: int) -> None:
    for count in (10, 300):
        history = [weak(n, 10 * n, 10 * n + 5, n) for n in range(count)]
        history.append(read(0, list(range(count)), 10 * count, 10 * count + 5))
        summaries, facts = GroupsInMemory.of(table(history), 7).ranges(span)
        assert not len(facts["log", 0].loose)
        assert all(not len(each.located.offset) for each in summaries["log", 0])
        assert sum(each.named for each in summaries["log", 0]) == count
        assert conclude_all(summaries, facts)["log", 0].stats["located_by_reads"] == count


@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_every_range_size_and_segmentation_gives_the_same_report(upper_bound: str) -> None:
    rng = random.Random(f"named ranges {upper_bound}")
    operations = table(*(weak_history(rng) for _ in range(24)))
    expected = check(operations, upper_bound=upper_bound)
    for most, span in SPLITS:
        found = GroupsInMemory.of(operations, most, rng).report(span, upper_bound=upper_bound)
        assert found.anomalies == expected.anomalies, (most, span)
        assert found == expected


@pytest.mark.rotating(6, among="random histories")
@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_matched_appends_agree_with_exhaustive_search(upper_bound: str) -> None:
    rng = random.Random(f"named agreement {upper_bound}")
    histories = [weak_history(rng) for _ in range(1_500)]
    legal, _ = agrees_with_search(histories, upper_bound)
    assert 0.25 < legal / len(histories) < 0.9


@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_every_range_size_gives_the_same_certificate_and_it_verifies(tmp_path: Path, upper_bound: str) -> None:
    rng = random.Random(f"named certificates {upper_bound}")
    histories = [weak_history(rng) for _ in range(12)]
    report = check(table(*histories), upper_bound=upper_bound)
    bad = {anomaly.partition for anomaly in report.anomalies}
    bad |= undecided_partitions(report)
    operations = table(*(history for number, history in enumerate(histories) if number not in bad))
    assert any(op.acks != ACKS_ALL for number, history in enumerate(histories) if number not in bad for op in history)
    expected = certified(operations, tmp_path, upper_bound, span=1 << 20)
    assert certified(operations, tmp_path, upper_bound, span=2).equals(expected)
    verified(tmp_path, upper_bound)


WRONG: dict[str, tuple[str, list[Op]]] = {
    "a read shows the record before it was sent": (
        "future-read",
        [weak(1, 50, 60, 0), read(0, [1], 10, 20)],
    ),
    "a later offset was shown to exist before the record of an earlier one was sent": (
        "future-read",
        [weak(1, 50, 60, 0), read(0, [1], 70, 80), info(2, 10), end(2, 25, 30)],
    ),
    "a later offset was acknowledged before the record of an earlier one was sent": (
        "append-reorder",
        [weak(1, 50, 60, 0), read(0, [1], 70, 80), ok(2, 10, 20, 1)],
    ),
    "a record without an offset is read after one that was sent when it had been acknowledged": (
        "append-reorder",
        [weak(1, 50, 60, 0), ok(2, 10, 20, -1), read(0, [1, 2], 70, 80)],
    ),
    "the record is there twice": (
        "duplicate",
        [weak(1, 10, 20, 0), ok(2, 30, 40, 1), read(0, [1, 2, 1], 50, 60)],
    ),
    "the record was read and the final read lacks it": (
        "committed-then-truncated",
        [ok(1, 10, 20, 0), weak(2, 30, 40, 1), read(0, [1, 2], 50, 60), end(1, 70, 80, final=True),
         read(0, [1], 90, 95, final=True)],
    ),
    "the record was read and the final read shows another at its offset": (
        "committed-then-truncated",
        [weak(1, 10, 20, 0), weak(2, 30, 40, 0), read(0, [1], 25, 28), end(1, 70, 80, final=True),
         read(0, [2], 90, 95, final=True)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "history"), WRONG.values(), ids=WRONG)
def test_the_checker_finds_a_contradiction_of_a_matched_append(name: str, history: list[Op]) -> None:
    expected = check(table(history))
    assert name in [anomaly.name for anomaly in expected.anomalies]
    for most, span in SPLITS:
        assert GroupsInMemory.of(table(history), most).report(span) == expected, (most, span)


@pytest.mark.parametrize("span", [7, 100, 1 << 20])
def test_every_matched_record_that_the_final_read_lacks_is_counted(span: int) -> None:
    """The report cannot list all of them. Records that were read only after the final end query are not losses."""
    count, late = 700, 90
    history = [weak(n, 10 * n, 10 * n + 5, n) for n in range(count + late)]
    history.append(read(0, list(range(count)), 20_000, 20_005, process=1))
    history += [end(100, 30_000, 30_005, final=True), read(0, list(range(100)), 30_010, 30_015, final=True)]
    history.append(read(count, list(range(count, count + late)), 40_000, 40_005, process=4))
    report = GroupsInMemory.of(table(history), 50).report(span)
    counts = {anomaly.name: anomaly.count for anomaly in report.anomalies}
    assert counts["committed-then-truncated"] == count - 100


def test_the_first_of_two_appends_of_a_value_with_one_offset_is_matched() -> None:
    history = [weak(1, 30, 35, 0), replace(weak(1, 10, 15, 0), process=3), read(0, [1], 50, 60)]
    for most, span in SPLITS:
        _, facts = GroupsInMemory.of(table(history), most).ranges(span)
        assert facts["log", 0].loose.inv.tolist() == [30], (most, span)


def test_an_absurd_offset_that_is_not_binding_needs_no_memory() -> None:
    history = [weak(1, 10, 15, 0), weak(2, 20, 25, 1 << 50), read(0, [1], 30, 40)]
    assert travelling(history, None, 1 << 20) == [v(2)]
