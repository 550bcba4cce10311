"""The report on registers and its certificate do not depend on the tasks, on how rows are stored, or on the map."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.core.registers import RegisterReport, check
from analysis.core.rows import DamagedError
from analysis.engines.register import ORDER, RegisterPlan, check_and_order, plan_keys, write_register_certificate
from analysis.engines.task_map import TaskMap, WorkerProcesses, in_sequence
from analysis.verifiers.register import verify_registers
from history.record.operation_tables import IndexedGroup, read_index, write_index
from history.record.shapes import REGISTER
from tests.analysis.register_histories import read, table, write
from tests.analysis_pipeline.register_tables import certified, many_keys, stored


def whole(operations: pa.Table) -> RegisterReport:
    """The report of a check of all keys at once."""
    return replace(check(operations), orders={})


def entries(certificate: Path) -> list[dict[str, Any]]:
    parts = [pq.read_table(path) for path in sorted(certificate.glob("*.parquet"))]
    rows: list[dict[str, Any]] = pa.concat_tables([ORDER.empty_table(), *parts]).to_pylist()
    return rows


@pytest.mark.rotating(3)
@pytest.mark.parametrize("seed", range(6))
def test_every_size_of_tasks_and_row_groups_gives_the_same_report(tmp_path: Path, seed: int) -> None:
    rng = random.Random(f"register tasks {seed}")
    operations = table(many_keys(rng, 12, hot=40, wrong=True))
    expected = whole(operations)
    assert expected.anomalies
    for pieces, most, task_rows in ((1, 1, 1), (2, 3, 10), (5, 8, 40), (3, 1000, 1 << 20)):
        run = tmp_path / f"{pieces}-{most}"
        stored(run, operations, pieces=pieces, least_rows=1, most_rows=most)
        found = check_and_order(RegisterPlan.of(run / "tables", task_rows=task_rows), in_sequence)[0]
        assert repr(found) == repr(expected), (pieces, most, task_rows)


@pytest.mark.parametrize("seed", range(2))
def test_the_certificate_has_the_same_entries_for_all_sizes_of_tasks(tmp_path: Path, seed: int) -> None:
    operations = table(many_keys(random.Random(f"register orders {seed}"), 12, hot=40))
    found = []
    for pieces, most, task_rows in ((1, 1, 1), (4, 6, 25), (2, 1000, 1 << 20)):
        run = tmp_path / f"{pieces}-{most}"
        stored(run, operations, pieces=pieces, least_rows=1, most_rows=most)
        directory = certified(run, task_rows=task_rows)
        assert f"{operations.num_rows} operations on 13 registers" in verify_registers(directory, run)
        found.append(entries(directory))
    assert found[0] == found[1] == found[2]


def test_a_certificate_replaces_one_with_other_parts(tmp_path: Path) -> None:
    stored(tmp_path, table({"a": [write(1, 0, 1)], "b": [write(2, 0, 1)]}), least_rows=1)
    assert len(list(certified(tmp_path, task_rows=1).glob("*.parquet"))) == 2
    directory = certified(tmp_path)
    assert [path.name for path in directory.glob("*.parquet")] == ["registers-00000.parquet"]
    assert verify_registers(directory, tmp_path)


def test_worker_processes_give_the_same_report_certificate_and_verification(tmp_path: Path) -> None:
    operations = table(many_keys(random.Random("register processes"), 12, hot=40))
    wrong = table(many_keys(random.Random("wrong register processes"), 12, hot=40, wrong=True))
    outcomes: list[tuple[str, str, dict[str, bytes], str]] = []
    stored(tmp_path / "right", operations, pieces=3, least_rows=1, most_rows=5)
    stored(tmp_path / "wrong", wrong, pieces=3, least_rows=1, most_rows=5)
    maps: tuple[TaskMap, TaskMap] = (in_sequence, WorkerProcesses(2))
    for spread in maps:
        right = check_and_order(RegisterPlan.of(tmp_path / "right" / "tables", task_rows=30), spread)[0]
        refuted = check_and_order(RegisterPlan.of(tmp_path / "wrong" / "tables", task_rows=30), spread)[0]
        directory = certified(tmp_path / "right", task_rows=30, spread=spread)
        files = {path.name: path.read_bytes() for path in directory.iterdir()}
        proven = verify_registers(directory, tmp_path / "right", spread=spread)
        outcomes.append((repr(right), repr(refuted), files, proven))
    assert outcomes[0] == outcomes[1]
    assert check(operations).ok
    assert not check(wrong).ok


def test_a_key_with_many_operations_is_a_task_of_its_own_and_the_first(tmp_path: Path) -> None:
    stored(tmp_path, table(many_keys(random.Random("hot"), 30, hot=400)), least_rows=4, most_rows=64)
    plan = RegisterPlan.of(tmp_path / "tables", task_rows=100)
    assert (plan.tasks[0].start, plan.tasks[0].stop) == ("hot", "k00")
    assert all(low.rows >= high.rows for low, high in zip(plan.tasks, plan.tasks[1:], strict=False))
    assert 2 < len(plan.tasks) < 15


def test_tasks_cover_each_key_once_and_have_the_row_groups_that_may_have_it() -> None:
    rng = random.Random("plans")
    for _ in range(200):
        some = [sorted(rng.choices("abcdefgh", k=2)) for _ in range(rng.randrange(9))]
        groups = [IndexedGroup((), f"f{n}", 0, rng.randint(1, 9), low, high) for n, (low, high) in enumerate(some)]
        tasks = sorted(plan_keys(groups, rng.randint(1, 30)), key=lambda task: task.start)
        assert [task.stop for task in tasks] == [*(task.start for task in tasks[1:]), None][: len(tasks)]
        for key in {key for each in some for key in each}:
            (task,) = [task for task in tasks if task.start <= key and (task.stop is None or key < task.stop)]
            assert set(task.groups) >= {each for each in groups if each.lowest <= key <= each.highest}
        assert sum(task.rows for task in tasks) == pytest.approx(sum(each.rows for each in groups), abs=len(tasks))


def _index_of_another_key(tables: Path) -> None:
    groups = read_index(REGISTER, tables)
    write_index(REGISTER, [replace(groups[0], lowest="a"), *groups[1:]], tables)


def _unreadable(tables: Path) -> None:
    (path,) = (tables / "registers").iterdir()
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [(_index_of_another_key, "other keys than the index of registers states"), (_unreadable, "cannot be read")],
)
def test_row_groups_that_are_not_as_the_index_states_are_damage(
    tmp_path: Path, damage: Callable[[Path], None], complaint: str
) -> None:
    stored(tmp_path, table({"k": [write(1, 0, 1), read(1, 2, 3)]}))
    damage(tmp_path / "tables")
    with pytest.raises(DamagedError, match=complaint):
        check_and_order(RegisterPlan.of(tmp_path / "tables"), in_sequence)[0]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"highest": ""}, "has no range of places"),
        ({"lowest": "z"}, "has no range of places"),
        ({"path": "a\0b"}, "cannot be read"),
    ],
)
def test_an_index_that_hides_a_row_group_from_all_tasks_is_damage(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    stored(tmp_path, table({"a": [write(1, 0, 1)], "b": [write(2, 0, 1)], "c": [write(3, 0, 1)]}), least_rows=1)
    first, second, third = read_index(REGISTER, tmp_path / "tables")
    write_index(REGISTER, [first, replace(second, **changes), third], tmp_path / "tables")
    with pytest.raises(DamagedError, match=complaint):
        check_and_order(RegisterPlan.of(tmp_path / "tables"), in_sequence)[0]


def test_an_index_with_bytes_outside_utf8_is_damage(tmp_path: Path) -> None:
    stored(tmp_path, table({"a": [write(1, 0, 1)]}))
    index = tmp_path / "tables" / "registers.parquet"
    broken = pa.array([b"\xff"], pa.binary()).view(pa.string())
    rows = pq.read_table(index)
    pq.write_table(rows.set_column(3, rows.schema.field("lowest"), broken), index)
    with pytest.raises(DamagedError, match="is damaged"):
        RegisterPlan.of(tmp_path / "tables")


def test_no_operations_have_an_empty_report_and_certificate(tmp_path: Path) -> None:
    stored(tmp_path, table({}))
    assert check_and_order(RegisterPlan.of(tmp_path / "tables"), in_sequence)[0] == RegisterReport()
    assert "0 operations on 0 registers" in verify_registers(certified(tmp_path), tmp_path)


def test_results_of_tasks_do_not_grow_with_operations(tmp_path: Path) -> None:
    """What the driver receives and reads: results of tasks, and the index."""
    received = []
    for rounds in (50, 500):
        run = tmp_path / str(rounds)
        history = [write(0, 0, 1)]
        for n in range(1, rounds):
            history += [write(n, 4 * n, 4 * n + 1), read(n, 4 * n + 2, 4 * n + 3)]
        stored(run, table({"k": history}))
        sizes: list[int] = []

        def spread(
            function: Callable[[Any], Any], tasks: Sequence[Any], _: Any = None, /, sizes: list[int] = sizes
        ) -> list[Any]:
            results = [function(task) for task in tasks]
            sizes.extend(len(repr(each)) for each in results)
            return results

        plan = RegisterPlan.of(run / "tables")
        report, parts = check_and_order(plan, spread, run / "certificate")
        assert report.ok
        directory = write_register_certificate(run / "certificate", run, plan, parts).parent
        assert verify_registers(directory, run, spread=spread)
        received.append(sizes)
    assert len(received[0]) == 2
    assert all(abs(small - large) < 20 for small, large in zip(*received, strict=True)), received
