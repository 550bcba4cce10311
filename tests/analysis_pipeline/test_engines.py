"""The in-process engine and Spark give the same results for a run. All comparisons with Spark are here, since the start
of a session costs more than all of them."""

import random
import threading
import time
from pathlib import Path

import pytest

from analysis.core.incomplete_clients import Owners
from analysis.core.offset_ranges import SPAN
from analysis.core.rows import DamagedError
from analysis.engines.log import LogPlan
from analysis.engines.register import RegisterPlan, check_and_order
from analysis.engines.replica import compare_store
from analysis.engines.row_groups import row_groups_of
from analysis.engines.spark import SparkHandle
from analysis.engines.task_map import HEAVY, TASKS_PER_CORE, in_sequence
from analysis.pipeline import analyze
from analysis.verifiers.register import verify_registers
from history.record.values import decode_value
from history.seal import seal
from orchestrator.search.exploring import RANDOM
from orchestrator.search.task import ExplorationTask, attempt, spread
from tests.analysis import register_histories
from tests.analysis.log_checks import check_log
from tests.analysis.log_histories import ok, random_history, stored, table, weak_history
from tests.analysis_pipeline import register_tables, test_remote_store
from tests.analysis_pipeline.judged_quorum import judged, replace
from tests.analysis_pipeline.replica_sets import ReplicaSet
from tests.analysis_pipeline.stored_quorum import StoredQuorum, mark
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import StoredRun
from tests.analysis_pipeline.test_replica_mutations import FAIL, LAWFUL, UNKNOWN, replicas_check
from tests.search.imagined import SHORT

pytestmark = pytest.mark.spark


def compacted(run: Path, seed: int, partitions: int, rows_per_file: int) -> Path:
    """Random histories, good and bad, as the Parquet files of a run; its `tables/`. Most appends to every fourth
    partition have acks=1."""
    rng = random.Random(seed)
    histories = [random_history(rng) if number % 4 else weak_history(rng) for number in range(partitions)]
    return stored(run, table(*histories), rows_per_file)


@pytest.mark.rotating(3, among="both engines")
@pytest.mark.parametrize("span", [SPAN, 2], ids=["whole partitions", "spread partitions"])
def test_spark_and_process_give_the_same_report(spark: SparkHandle, tmp_path: Path, span: int) -> None:
    tables = compacted(tmp_path, seed=7, partitions=40, rows_per_file=2)
    assert max(len(groups) for groups in row_groups_of(tables).values()) > 2
    expected = check_log(LogPlan.of(tables), upper_bound="strict")
    found = check_log(LogPlan.of(tables, span=span), spark.tasks(), upper_bound="strict")
    assert len({anomaly.name for anomaly in expected.anomalies}) >= 5
    assert found == expected


def sevens(value: int) -> bool:
    """As if the record of producers 1 to 3 were lost in part."""
    return value >= 0 and 1 <= decode_value(value).producer <= 3


@pytest.mark.rotating(3, among="both engines")
@pytest.mark.parametrize("span", [SPAN, 2], ids=["whole partitions", "spread partitions"])
def test_both_engines_leave_gaps_explained_by_a_lost_record_undecided(
    spark: SparkHandle, tmp_path: Path, span: int
) -> None:
    tables = compacted(tmp_path, seed=11, partitions=40, rows_per_file=2)
    owners = Owners(sevens, incomplete=True)
    expected = check_log(LogPlan.of(tables), upper_bound="session", owners=owners)
    assert any("is incomplete" in text for text in expected.undecided)
    plan = LogPlan.of(tables, span=span)
    assert check_log(plan, spark.tasks(), upper_bound="session", owners=owners) == expected


@pytest.mark.parametrize("span", [SPAN, 2], ids=["whole partitions", "spread partitions"])
def test_both_engines_report_damage_in_the_same_words(spark: SparkHandle, tmp_path: Path, span: int) -> None:
    histories = [[ok(1, 10, 20, 0), ok(2, 30, 40, 1)], [ok(1, 20, 10, 0), ok(2, 30, 40, 1)]]
    tables = stored(tmp_path, table(*histories), rows_per_piece=1)
    with pytest.raises(DamagedError) as in_process:
        check_log(LogPlan.of(tables), upper_bound="strict")
    with pytest.raises(DamagedError) as on_spark:
        check_log(LogPlan.of(tables, span=span), spark.tasks(), upper_bound="strict")
    assert str(in_process.value) == "an operation returned before its invocation: the history is damaged"
    assert str(on_spark.value) == str(in_process.value)


def test_both_engines_name_a_file_that_disappears(spark: SparkHandle, tmp_path: Path) -> None:
    plan = LogPlan.of(stored(tmp_path, table([ok(1, 10, 20, 0)], [ok(1, 10, 20, 0)])))
    gone = next((tmp_path / "tables").rglob("partition=1/*.parquet"))
    gone.unlink()
    for tasks in (in_sequence, spark.tasks()):
        with pytest.raises((DamagedError, RuntimeError), match=f"{gone.name} .*No such file"):
            check_log(plan, tasks, upper_bound="strict")


def test_both_engines_check_an_empty_run(spark: SparkHandle, tmp_path: Path) -> None:
    report = check_log(LogPlan.of(tmp_path), spark.tasks(), upper_bound="strict")
    assert report == check_log(LogPlan.of(tmp_path), upper_bound="strict")
    assert report.ok


@pytest.mark.rotating(3, among="both engines")
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"magic": 1},
        {"magic": 1, "diverging": "n3"},
        {"lost": 7, "exits": (("n1", 1, None, "bye"),)},
        {"unknown_format_on": "n2"},
        {"replica_format": "none"},
        {"replica_format": "etcd-wal"},
    ],
    ids=["formats 2", "format 1", "diverging", "lost", "unknown format", "not read", "no reader"],
)
def test_both_engines_give_the_same_anomalies(spark: SparkHandle, tmp_path: Path, change: dict[str, object]) -> None:
    run = StoredRun(tmp_path / "run", **change).write()  # type: ignore[arg-type]
    here = analyze(run, engine="in-process", plots=False)
    there = analyze(run, session=spark, engine="spark", plots=False)
    assert there.anomalies == here.anomalies
    assert (there.verdict, there.reasons) == (here.verdict, here.reasons)
    assert [(c.name, c.verdict, c.detail) for c in there.checks] == [(c.name, c.verdict, c.detail) for c in here.checks]


@pytest.mark.rotating(3, among="both engines")
@pytest.mark.parametrize(
    "name",
    [
        "as they were",
        "a node's files are gone",
        "a record's byte flipped",
        "an unknown message format on all",
        "an unplanned partition",
        "torn high watermarks",
        "a byte of a value changed on all",
        "a segment in the middle missing",
        "the first segment missing",
        "a committed record changed since",
    ],
)
def test_both_engines_give_the_same_anomalies_of_replicas(spark: SparkHandle, tmp_path: Path, name: str) -> None:
    change = LAWFUL.get(name) or {**UNKNOWN, **FAIL}[name][0]
    run = StoredRun(tmp_path / "run").write()
    change(ReplicaSet(run))
    seal(run)
    here = analyze(run, engine="in-process", plots=False)
    there = analyze(run, session=spark, engine="spark", plots=False)
    assert (there.verdict, there.reasons, there.anomalies) == (here.verdict, here.reasons, here.anomalies)
    assert replicas_check(there).detail == replicas_check(here).detail


def test_registers_have_the_same_report_certificate_and_verification(tmp_path: Path, spark: SparkHandle) -> None:
    outcomes: list[tuple[object, ...]] = []
    for name, is_wrong in (("right", False), ("wrong", True)):
        histories = register_tables.many_keys(random.Random("spark"), 12, hot=60, wrong=is_wrong)
        register_tables.stored(
            tmp_path / name, register_histories.table(histories), pieces=3, least_rows=1, most_rows=5
        )
    for tasks in (in_sequence, spark.tasks()):
        plans = [RegisterPlan.of(tmp_path / name / "tables", task_rows=30) for name in ("right", "wrong")]
        reports = [repr(check_and_order(plan, tasks)[0]) for plan in plans]
        directory = register_tables.certified(tmp_path / "right", task_rows=30, spread=tasks)
        files = {path.name: path.read_bytes() for path in directory.iterdir()}
        outcomes.append((reports, files, verify_registers(directory, tmp_path / "right", spread=tasks)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.rotating(3, among="both engines")
@pytest.mark.parametrize("stale", [False, True])
def test_both_engines_say_the_same_of_registers(spark: SparkHandle, tmp_path: Path, stale: bool) -> None:
    run = StoredRegisters(tmp_path / "run", stale=stale).write()
    here = analyze(run, engine="in-process", plots=False)
    there = analyze(run, session=spark, engine="spark", plots=False)
    assert here.verdict == ("fail" if stale else "pass")
    assert (there.verdict, there.reasons, there.anomalies) == (here.verdict, here.reasons, here.anomalies)
    assert there.certificate == here.certificate


@pytest.mark.rotating(3, among="both engines")
def test_runs_spread_over_workers_are_those_of_this_process(spark: SparkHandle, tmp_path: Path) -> None:
    campaign = tmp_path / "short.toml"
    campaign.write_text(SHORT)
    tasks = [ExplorationTask(number, RANDOM, SHORT, str(campaign), "fixed", number + 1) for number in range(2)]
    spread_out = spread(spark.tasks(), tmp_path / "there", tasks)
    here = [attempt(task, tmp_path / "here") for task in tasks]
    assert all(it.digest for it in here)
    assert [(it.number, it.digest, it.states) for it in spread_out] == [
        (it.number, it.digest, it.states) for it in here
    ]


def test_remote_storage_has_the_same_findings(spark: SparkHandle, tmp_path: Path) -> None:
    tasks = test_remote_store.all_of(tmp_path)
    assert compare_store(tasks, spark.tasks()) == compare_store(tasks, in_sequence)


def test_a_worker_reads_the_logs_of_the_metadata_quorum(
    spark: SparkHandle, quorum: StoredQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(quorum, "n3", mark(5, 1), mark(5, 1) | {"digest": 7})
    run = quorum.write()
    expected, context = judged(run), spark.tasks()
    monkeypatch.delattr("analysis.replicafiles.kraft.read_metadata")  # in this process, not in the worker
    assert [anomaly.name for anomaly in expected.anomalies] == ["applied-metadata-mismatch"]
    assert judged(run, context) == expected


def test_the_error_of_a_task_is_named_without_the_frames_of_java(spark: SparkHandle) -> None:
    with pytest.raises(RuntimeError) as raised:
        spark.tasks()(int, ["1", "two"])
    assert str(raised.value) == "a task on Spark failed: ValueError: invalid literal for int() with base 10: 'two'"


def _partition(_: int) -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    number: int = context.partitionId()
    return number


@pytest.mark.parametrize("count", [3, 300])
def test_a_heavy_task_is_one_of_spark_and_light_ones_share(spark: SparkHandle, count: int) -> None:
    partitions = spark.tasks()(_partition, range(count), [HEAVY] * count)
    assert sorted(partitions) == list(range(count))
    assert len({*spark.tasks()(_partition, range(count))}) <= TASKS_PER_CORE * spark.tasks().cores


def _wait(marker: Path) -> None:
    marker.touch()
    time.sleep(600)


def test_work_that_is_cancelled_ends(spark: SparkHandle, tmp_path: Path) -> None:
    """As after Ctrl-C. The session lives on."""
    ended: list[BaseException] = []

    def work() -> None:
        try:
            spark.tasks()(_wait, [tmp_path / "begun"])
        except RuntimeError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not (tmp_path / "begun").exists():
        assert thread.is_alive()
        thread.join(0.05)
    spark.tasks().cancel()
    thread.join(300)
    assert len(ended) == 1
    assert spark.tasks()(abs, [-1]) == [1]


def test_the_processor_time_of_spark_is_in_the_cost_of_the_analysis(spark: SparkHandle, tmp_path: Path) -> None:
    spark.tasks()
    spark.new_cpu_s()
    run = StoredRun(tmp_path / "run").write()
    here = analyze(run, engine="in-process", plots=False).cost
    there = analyze(run, session=spark, engine="spark", plots=False).cost
    assert there.tasks == here.tasks
    assert there.cpu_s > 0
    assert 0 <= spark.new_cpu_s() < there.cpu_s, "what one analysis used is not in the next one's cost"
