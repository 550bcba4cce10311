"""From a stored run to its verdict: the evidence for a pass, a fail and an unknown."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import analysis.engines.replica
from analysis.evidence.run_directory import RunDirectoryError, events_by_node
from analysis.pipeline import analyze, write_tables
from analysis.report import render_run
from analysis.stored_verdict import standing_of
from analysis.verdict import Verdict, first_reasons
from analysis.verifiers.log import CertificateError, verify
from history.reader import read_run
from history.seal import seal
from tests.analysis_pipeline.stored_run import RECORDS, StoredRun


def judged(run: StoredRun, *, plots: bool = False) -> Verdict:
    return analyze(run.write(), engine="in-process", plots=plots)


def test_a_whole_run_without_contradiction_passes_with_a_certificate(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run"))
    assert (verdict.verdict, verdict.met, verdict.reasons) == ("pass", True, ())
    assert verdict.stats["acknowledged"] == RECORDS
    assert [fault["status"] for fault in verdict.faults] == ["confirmed"]
    assert "linearizable" in verify(tmp_path / "run" / "certificate", tmp_path / "run")
    assert Verdict.read(tmp_path / "run" / "verdict.json") == verdict


def test_the_certificate_of_another_history_is_refused(tmp_path: Path) -> None:
    judged(StoredRun(tmp_path / "run"))
    judged(StoredRun(tmp_path / "other", lost=5))
    with pytest.raises(CertificateError, match="another history"):
        verify(tmp_path / "run" / "certificate", tmp_path / "other")


def test_a_lost_acknowledged_write_fails_and_names_the_operations(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run", lost=7), plots=True)
    assert verdict.verdict == "fail"
    assert not verdict.met
    lost = next(a for a in verdict.anomalies if a.name == "lost-acknowledged-write")
    assert lost.promise == "AWL"
    assert lost.witness
    assert not (tmp_path / "run" / "certificate").exists()
    assert (tmp_path / "run" / "plots" / "anomaly-0.png").stat().st_size > 1_000


def test_a_diverging_replica_fails_and_is_drawn(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run", diverging="n3"), plots=True)
    assert verdict.verdict == "fail"
    assert "replica-divergence" in {anomaly.name for anomaly in verdict.anomalies}
    assert list((tmp_path / "run" / "plots").glob("anomaly-*.png"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"fault_status": "inconclusive"}, "fault f1 (kill) is inconclusive: no proof that it took effect"),
        ({"required": ("kill", "power-loss")}, "fault power-loss was required and never confirmed"),
        ({"min_ok": RECORDS + 1}, f"only {RECORDS} acknowledged appends, {RECORDS + 1} are needed"),
        ({"final_read": False}, "log-0 was not read to its end after healing"),
        ({"phases": ("setup", "main")}, "the run ended in phase main, not by its plan"),
        ({"phases": ()}, "the run never started"),
    ],
    ids=["unproven fault", "missing fault", "too few", "no final read", "killed", "no evidence"],
)
def test_any_missing_evidence_makes_a_run_unknown(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    verdict = judged(StoredRun(tmp_path / "run", **change))  # type: ignore[arg-type]
    assert verdict.verdict == "unknown"
    assert reason in verdict.reasons
    assert not verdict.met


def test_missing_evidence_does_not_mask_a_proven_contradiction(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run", lost=7, fault_status="mismatch", required=("pause",)))
    assert verdict.verdict == "fail"
    assert verdict.never_seen == ("fault pause",)


def test_a_failure_does_not_mask_missing_evidence(tmp_path: Path) -> None:
    """Missing evidence follows the proofs in full, with the doubts of checkers that found an anomaly."""
    run = StoredRun(tmp_path / "run", lost=7, fault_status="mismatch", required=("pause",), min_ok=RECORDS + 1).write()
    (run / "nodes" / "n2" / "data" / "log-0" / "leader-epoch-checkpoint").unlink()
    seal(run)
    verdict = analyze(run, engine="in-process", plots=False)
    assert verdict.verdict == "fail"
    assert verdict.reasons[0].startswith("lost-acknowledged-write: ")
    for doubt in (
        "fault pause was required and never confirmed",
        "fault f1 (kill) is mismatch: no proof that it took effect",
        f"only {RECORDS} acknowledged appends, {RECORDS + 1} are needed",
        "the log of log-0 on n2 has no leader-epoch-checkpoint",
        "faults: 1 fault, not all proven and healed",
    ):
        assert any(doubt in stated for stated in verdict.doubts), doubt
    proofs = len(verdict.reasons) - len(verdict.doubts)
    assert verdict.reasons[proofs:] == tuple(f"besides, undecided: {doubt}" for doubt in verdict.doubts)
    assert not any("undecided" in reason for reason in verdict.reasons[:proofs])


def test_the_doubts_of_an_unknown_run_are_its_reasons(tmp_path: Path) -> None:
    verdict = judged(StoredRun(tmp_path / "run", fault_status="mismatch"))
    assert verdict.verdict == "unknown"
    assert verdict.doubts == verdict.reasons != ()


def test_the_first_few_reasons_are_of_both_kinds() -> None:
    reasons = [*(f"lost {n}" for n in range(7)), *(f"besides, undecided: odd {n}" for n in range(3))]
    assert first_reasons(reasons, 2) == [
        "lost 0",
        "lost 1",
        "5 more",
        "besides, undecided: odd 0",
        "besides, undecided: odd 1",
        "besides, undecided: 1 more",
    ]
    assert first_reasons(reasons, 9) == reasons


def test_a_mutant_meets_its_expectation_only_by_the_anomaly_that_is_expected_of_it(tmp_path: Path) -> None:
    lost = {"verdict": "fail", "anomaly": "lost-acknowledged-write"}
    assert judged(StoredRun(tmp_path / "a", lost=7, expect=lost)).met
    assert not judged(StoredRun(tmp_path / "b", diverging="n3", expect=lost)).met
    assert not judged(StoredRun(tmp_path / "c", expect=lost)).met


def test_a_checker_that_crashes_is_unknown_never_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("out of ink")

    monkeypatch.setattr(analysis.engines.replica, "check_replicas", crash)
    verdict = judged(StoredRun(tmp_path / "run"))
    assert verdict.verdict == "unknown"
    assert any("the checker crashed: RuntimeError: out of ink" in reason for reason in verdict.reasons)


def test_an_event_of_a_node_with_a_wrong_clock_is_placed_at_its_observation(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run").write()
    event = {"event": "registered", "node": 1, "wall": 5, "seen": 7_000, "broker_epoch": 3}
    (run / "nodes" / "n1" / "events.jsonl").write_text(json.dumps(event) + "\n")
    write_tables(read_run(run), events_by_node(run), run)
    rows = pq.read_table(run / "tables" / "events.parquet", filters=[("event", "=", "registered")]).to_pylist()
    assert [(row["wall"], json.loads(row["fields"])) for row in rows] == [(7_000, {"node": 1, "broker_epoch": 3})]


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "x", "wall": null}',
        '{"event": "x", "wall": NaN}',
        '{"event": "x", "wall": 1e400}',
        f'{{"event": "x", "wall": {1 << 63}}}',
        '{"event": "x", "wall": 1, "seen": null}',
        '{"event": ["x"], "wall": 1}',
        '{"event": "\\ud800", "wall": 1}',
        '{"event": "x", "wall": 1, "topic": 5}',
        '{"event": "x", "wall": 1, "partition": "0"}',
        '{"event": "replica_progress", "wall": 1}',
        '{"event": "replica_progress", "wall": 1, "topic": "log", "partition": 0, "log_end_offset": "9"}',
        "[" * 100_000,
    ],
    ids=lambda line: str(line[:60]),
)
def test_an_event_that_cannot_be_shown_keeps_every_proof(tmp_path: Path, line: str) -> None:
    run = StoredRun(tmp_path / "run", lost=7).write()
    with (run / "nodes" / "n1" / "events.jsonl").open("a") as events:
        events.write("\n" + line + "\n")
    seal(run)
    verdict = analyze(run, engine="in-process", plots=False)
    assert verdict.verdict == "fail"
    assert verdict.anomalies[0].name == "lost-acknowledged-write"


def test_an_unobservable_outage_does_not_count_as_a_short_one(tmp_path: Path) -> None:
    """Without a writing client a budget for outages is undecided."""
    written, nothing = StoredRun(tmp_path / "run").write(), StoredRun(tmp_path / "bare", phases=("setup",)).write()
    stats = [analyze(run, engine="in-process", plots=False).stats for run in (written, nothing)]
    assert [each["longest_outage_s"] for each in stats] == [pytest.approx(0.053), None]


def test_a_directory_without_a_run_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"has no run\.toml"):
        analyze(tmp_path, engine="in-process")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"started = 0x{'f' * 5000}", "started has more than 64 bits"),
        (f"seed = {'9' * 5000}", "digits"),
        (f"settings.{'a.' * 200}b = 1", "nested deeper"),
    ],
    ids=["hexadecimal", "decimal", "deep"],
)
def test_a_run_toml_with_a_value_that_python_cannot_show_is_refused(tmp_path: Path, line: str, reason: str) -> None:
    run = StoredRun(tmp_path / "run").write()
    description = run / "run.toml"
    rest = [each for each in description.read_text().splitlines() if not each.startswith("seed")]
    description.write_text("\n".join([line, *rest, ""]))
    with pytest.raises(RunDirectoryError, match=reason):
        analyze(run, engine="in-process", plots=False)
    assert reason in standing_of(run).doubts[0]
    assert Verdict.read(run / "verdict.json").verdict == "unknown"


def test_a_second_analysis_of_a_run_has_the_same_result(tmp_path: Path) -> None:
    path = StoredRun(tmp_path / "run", diverging="n2").write()

    def content() -> dict[str, object]:
        analyze(path, engine="in-process", plots=False)
        text: dict[str, Any] = json.loads((path / "verdict.json").read_text())
        for check in text["checks"]:
            check["seconds"] = 0
        text["cost"] = {}
        return text

    assert content() == content()


def test_verdict_and_page_state_the_cost_of_the_analysis(tmp_path: Path) -> None:
    path = StoredRun(tmp_path / "run").write()
    cost = analyze(path, engine="in-process", plots=False).cost
    assert cost.tasks >= 2, "reading the clients' records and checking the log"
    assert cost.cpu_s > 0
    assert cost.wall_s > 0
    render_run(path)
    shown = f"used {cost.cpu_s:.1f} s of processor time in {cost.wall_s:.1f} s, for {cost.tasks} tasks"
    assert shown in " ".join((path / "report.html").read_text().split())
