"""The results of checkers other than the log's for a stored run: the replicas in each format, the processes of the
system."""

from pathlib import Path
from typing import Any

import pytest

from analysis.pipeline import analyze
from analysis.report import render_run
from analysis.verdict import Check, Verdict
from tests.analysis_pipeline.stored_run import RECORDS, StoredRun


def judged(run: StoredRun) -> Verdict:
    return analyze(run.write(), engine="in-process", plots=False)


def check(verdict: Verdict, name: str) -> Check:
    return next(each for each in verdict.checks if each.name == name)


def names(verdict: Verdict) -> set[str]:
    return {anomaly.name for anomaly in verdict.anomalies}


@pytest.mark.parametrize("magic", [0, 1])
def test_replicas_without_leader_epochs_pass_and_the_report_names_the_omitted_checks(
    tmp_path: Path, magic: int
) -> None:
    verdict = judged(StoredRun(tmp_path / "run", magic=magic, replica_format="kafka"))
    assert (verdict.verdict, verdict.reasons) == ("pass", ())
    said = check(verdict, "replicas").detail
    assert f"{3 * RECORDS} records compared" in said
    assert said.endswith(f"leader epochs do not exist in message format {magic}: D2-D4 not checked in log-0")


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_compacted_replicas_pass_and_the_report_names_the_omitted_checks(tmp_path: Path, policy: str) -> None:
    verdict = judged(StoredRun(tmp_path / "run", settings={"log.cleanup.policy": policy}))
    assert (verdict.verdict, verdict.reasons) == ("pass", ())
    said = check(verdict, "replicas").detail
    limit = "the log is compacted: D5 and D6 do not apply to records that all replicas lack"
    assert (limit in said) == ("compact" in policy)


def test_a_planned_group_without_evidence_is_unknown(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run", kind="group"))
    assert (verdict.verdict, verdict.anomalies) == ("unknown", ())
    assert "no commit was acknowledged of partitions 0" in verdict.reasons


FORGETTING = {"log.retention.ms": "1"}


@pytest.mark.parametrize("settings", [FORGETTING, {"log.cleanup.policy": "compact"}], ids=["deletes", "compacts"])
def test_records_that_retention_may_have_deleted_are_not_lost(tmp_path: Path, settings: dict[str, str]) -> None:
    verdict = judged(StoredRun(tmp_path / "run", shown_from=3, has_group=True, settings=settings))
    assert (verdict.verdict, verdict.anomalies) == ("unknown", ())
    ((name, value),) = settings.items()
    for anomaly, checker in (("poll-skip", "partition logs"), ("skipped-record", "consumer groups")):
        assert check(verdict, checker).verdict == "unknown"
        assert any(each.startswith(f"{anomaly}: ") and f"{name} = {value}" in each for each in verdict.doubts)


@pytest.mark.parametrize(
    "settings",
    [FORGETTING | {"n3": {"log.retention.ms": "-1"}}, {"log.retention.ms": "-1", "n1": FORGETTING, "n3": {"x": "y"}}],
    ids=["all but one", "one alone"],
)
def test_retention_may_differ_between_nodes(tmp_path: Path, settings: dict[str, Any]) -> None:
    """A node's own settings apply to that node only."""
    verdict = judged(StoredRun(tmp_path / "run", shown_from=3, settings=settings))
    assert (verdict.verdict, verdict.anomalies) == ("unknown", ())
    assert any(each.startswith("poll-skip: ") and "log.retention.ms = 1" in each for each in verdict.doubts)


@pytest.mark.parametrize("settings", [{}, {"log.retention.ms": "-1"}, {"log.retention.check.interval.ms": "1"}])
def test_a_record_missing_without_retention_is_a_failure(tmp_path: Path, settings: dict[str, str]) -> None:
    verdict = judged(StoredRun(tmp_path / "run", shown_from=3, has_group=True, settings=settings))
    assert verdict.verdict == "fail"
    assert names(verdict) == {"poll-skip", "skipped-record"}


def test_a_log_with_producer_expiry_may_not_lose_records(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run", lost=7, settings=FORGETTING))
    assert verdict.verdict == "fail"
    assert "lost-acknowledged-write" in names(verdict)


def test_replicas_without_leader_epochs_that_differ_fail(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run", magic=1, diverging="n3"))
    assert verdict.verdict == "fail"
    assert "replica-divergence" in names(verdict)


@pytest.mark.parametrize("diverging", [None, "n3"])
def test_a_system_without_a_replica_reader_is_checked_by_its_clients_alone(
    tmp_path: Path, diverging: str | None
) -> None:
    verdict = judged(StoredRun(tmp_path / "run", replica_format="none", diverging=diverging))
    assert (verdict.verdict, verdict.reasons) == ("pass", ())
    said = check(verdict, "replicas")
    assert (said.verdict, said.detail) == ("n/a", "this system's replicas are not read")
    assert judged(StoredRun(tmp_path / "lost", replica_format="none", lost=7)).verdict == "fail"


def test_an_unknown_replica_format_is_undecided(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run", replica_format="etcd-wal", diverging="n3"))
    assert verdict.verdict == "unknown"
    assert verdict.anomalies == ()
    assert "replicas: replicas of the format 'etcd-wal' cannot be read; known are kafka, none" in verdict.reasons


@pytest.mark.parametrize("magic", [1, 2])
def test_an_unknown_message_format_is_undecided(tmp_path: Path, magic: int) -> None:
    verdict = judged(StoredRun(tmp_path / "run", magic=magic, unknown_format_on="n2"))
    assert verdict.verdict == "unknown"
    assert verdict.anomalies == ()
    assert check(verdict, "replicas").verdict == "unknown"
    assert any("on n2 could not be read to its end" in r and "message format 7" in r for r in verdict.reasons)


def test_a_workload_without_a_checker_is_unknown(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run", judge="telepathy"))
    assert verdict.verdict == "unknown"
    assert verdict.reasons == ("no checker judges what clients did: the workload asks for 'telepathy'",)
    assert "partition logs" not in {each.name for each in verdict.checks}
    assert judged(StoredRun(tmp_path / "log", judge="log")).verdict == "pass"


def test_an_unexpected_exit_fails_the_run(tmp_path: Path) -> None:
    exits = (
        ("n2", 1, None, "starting\nFATAL log truncation is not allowed\n"),
        ("n2", None, 11, ""),
        ("n3", None, 9, ""),
        ("n1", None, None, ""),
    )
    run = StoredRun(tmp_path / "run", exits=exits)
    verdict = judged(run)
    assert verdict.verdict == "fail"
    assert [(a.name, a.promise, a.count) for a in verdict.anomalies] == [
        ("unexpected-exit", "UEX", 1),
        ("unexpected-exit", "UEX", 2),
        ("unexpected-exit", "UEX", 1),
    ]
    unseen, twice, killed = verdict.anomalies
    assert twice.sentence == (
        "the process on n2 ended with exit code 1, though nothing was done to it; "
        "its last words: FATAL log truncation is not allowed"
    )
    assert [row["ended"] for row in twice.witness] == ["with exit code 1", "by signal 11 (SIGSEGV)"]
    assert "by signal 9 (SIGKILL)" in killed.sentence
    assert "in a way that was not seen" in unseen.sentence
    page = render_run(run.path).read_text()
    assert "The last lines of its log:" in page
    assert "log truncation is not allowed" in page


def test_a_line_that_the_system_declares_fatal_fails_the_run(tmp_path: Path) -> None:
    lines = (("n1", "^FATAL", "FATAL disk is gone"), ("n1", "^FATAL", "FATAL still gone"))
    verdict = judged(StoredRun(tmp_path / "run", fatal_lines=lines))
    assert verdict.verdict == "fail"
    (anomaly,) = verdict.anomalies
    assert (anomaly.name, anomaly.promise, anomaly.count) == ("fatal-log-line", "FTL", 2)
    assert "(^FATAL): FATAL disk is gone" in anomaly.sentence
    assert [row["line"] for row in anomaly.witness] == ["FATAL disk is gone", "FATAL still gone"]


def test_processes_that_stay_up_pass(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run"))
    assert check(verdict, "services").verdict == "pass"
