"""Every offset of a partition is in one range, and every row group has one owner."""

import random

from analysis.core.offset_ranges import RowGroup, plan_ranges
from history.record.schemas import INF

LOG = ("log", 0)


def group(number: int, low: int, high: int, rows: int = 10) -> RowGroup:
    return RowGroup("one.parquet", number, rows, low, high)


def test_a_range_has_the_row_groups_that_overlap_it() -> None:
    groups = [group(0, 0, 99), group(1, 90, 205), group(2, 150, 150)]
    tasks = sorted(plan_ranges({LOG: groups}, 100), key=lambda task: task.start)
    assert [(task.start, task.stop, task.end) for task in tasks] == [(0, 100, 100), (100, 200, 200), (200, INF, 206)]
    assert [[each.number for each in task.groups] for task in tasks] == [[0, 1], [1, 2], [1]]
    assert [task.owned for task in tasks] == [(True, True), (False, True), (False,)]


def test_the_task_with_the_most_rows_is_first() -> None:
    groups = {LOG: [group(0, 0, 99, rows=3), group(1, 100, 199, rows=8)], ("log", 1): [group(0, 0, 9, rows=5)]}
    assert [task.rows for task in plan_ranges(groups, 100)] == [8, 5, 3]


def test_a_partition_with_most_rows_is_many_tasks() -> None:
    hot = [group(number, number * 10, number * 10 + 12) for number in range(100)]
    tasks = plan_ranges({LOG: hot, ("log", 1): [group(0, 0, 9)]}, 100)
    assert len(tasks) == 12
    assert max(task.rows for task in tasks) <= 110


def test_row_groups_without_offsets_belong_to_the_first_range() -> None:
    tasks = plan_ranges({LOG: [group(0, 0, -1), group(1, 250, 260)]}, 100)
    assert {(task.start, tuple(each.number for each in task.groups)) for task in tasks} == {
        (0, (0,)),
        (100, ()),
        (200, (1,)),
    }
    assert all(all(task.owned) for task in tasks)


def test_an_absurd_offset_makes_no_million_ranges() -> None:
    (first, *_, last) = sorted(plan_ranges({LOG: [group(0, 0, 1 << 50)]}, 1 << 18), key=lambda task: task.start)
    assert first.start == 0
    assert (last.stop, last.end) == (INF, (1 << 50) + 1)
    assert last.start // (1 << 18) == 4


def test_ranges_cover_all_offsets_and_each_row_group_has_one_owner() -> None:
    rng = random.Random("ranges")
    for _ in range(300):
        groups = [
            group(number, low, low + rng.choice([-1, 0, 3, 50, 400]), rng.randint(0, 9))
            for number, low in enumerate(rng.choices(range(500), k=rng.randint(0, 12)))
        ]
        span = rng.choice([1, 7, 64, 1000])
        tasks = sorted(plan_ranges({LOG: groups}, span), key=lambda task: task.start)
        owned = [each for task in tasks for each, mine in zip(task.groups, task.owned, strict=True) if mine]
        assert sorted(each.number for each in owned) == list(range(len(groups)))
        for each in groups:
            for offset in range(each.low, each.high + 1):
                (task,) = (task for task in tasks if task.start <= offset < task.stop)
                assert each in task.groups
                assert offset < task.end


def test_row_groups_with_impossible_offsets_are_read_too() -> None:
    """Rows that no task reads would be overlooked, and they are damage."""
    for low, high in ((INF, INF), ((1 << 63) - 1, (1 << 63) - 1), (-9, -1), (7, 3)):
        tasks = plan_ranges({LOG: [group(0, 0, 150), group(1, low, high)]}, 100)
        assert any(each.number == 1 for task in tasks for each in task.groups), (low, high)
