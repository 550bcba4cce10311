"""The expectation of a cell: a reason for *unknown*; beside an expected failure, the promises that hold."""

from pathlib import Path
from typing import Any

import pytest

from analysis.checker_registry import CLASSES, REASONS
from analysis.expectation import DEMANDS
from analysis.pipeline import analyze
from analysis.stored_verdict import standing_of
from analysis.verdict import Verdict
from tests.analysis_pipeline.stored_registers import StoredRegisters
from tests.analysis_pipeline.stored_run import RECORDS, StoredRun

LOST = "lost-acknowledged-write"
FAULT_BEHIND = RECORDS // 2


def judged(path: Path, expect: dict[str, Any], **changes: Any) -> Verdict:
    """The verdict, whose own words about its expectation are believed."""
    run = StoredRun(path, expect=expect, **changes).write()
    verdict = analyze(run, engine="in-process", plots=False)
    assert standing_of(run).doubts == ()
    assert verdict.met == (verdict.unmet == ())
    return verdict


def failing(*must_hold: str, anomaly: str = LOST) -> dict[str, Any]:
    return {"verdict": "fail", "anomaly": anomaly, "must_hold": list(must_hold)}


def unknown(*codes: str) -> dict[str, Any]:
    return {"verdict": "unknown", "reason": list(codes)}


@pytest.mark.parametrize(
    ("codes", "changes", "unmet"),
    [
        (["too-few-changes"], {"min_ok": RECORDS + 1}, ""),
        (["fault-not-confirmed"], {"fault_status": "mismatch"}, ""),
        (
            ["fault-not-confirmed"],
            {"min_ok": RECORDS + 1},
            "none of the expected reasons; its reasons are too-few-changes",
        ),
        (
            ["too-few-changes"],
            {"min_ok": RECORDS + 1, "fault_status": "mismatch"},
            "also unknown for other reasons: fault-not-confirmed",
        ),
        (["too-few-changes", "fault-not-confirmed"], {"min_ok": RECORDS + 1, "fault_status": "mismatch"}, ""),
        (["too-few-changes", "fault-not-confirmed"], {"min_ok": RECORDS + 1}, ""),
        (["final-read-missing"], {"final_read": False}, "also unknown for other reasons"),
        ([], {"min_ok": RECORDS + 1}, "its expectation names no accepted reason"),
        (["too-few-changes"], {}, "the verdict is pass, but unknown (too-few-changes) was expected"),
    ],
)
def test_an_expected_unknown_is_met_by_its_reasons_and_no_other(
    tmp_path: Path, codes: list[str], changes: dict[str, Any], unmet: str
) -> None:
    verdict = judged(tmp_path / "run", unknown(*codes), **changes)
    assert bool(unmet) == bool(verdict.unmet), verdict.unmet
    assert unmet in "".join(verdict.unmet)


def test_every_unknown_has_known_codes(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "run", unknown("x"), min_ok=RECORDS + 1, final_read=False, phases=("setup", "main"))
    assert set(verdict.codes) <= REASONS.keys()
    assert {"run-not-finished", "final-read-missing", "too-few-changes"} <= set(verdict.codes)


@pytest.mark.parametrize(
    ("must_hold", "changes", "unmet"),
    [
        # The record was acknowledged under the fault: that loss is the expected one.
        (["before-faults"], {"lost": FAULT_BEHIND + 5}, ""),
        # The same anomaly, of a record that no fault can have destroyed: another bug.
        (["before-faults"], {"lost": 7}, "the log lacks 1 record acknowledged before the first fault"),
        ([], {"lost": 7}, ""),
        (
            ["before-faults"],
            {"lost": FAULT_BEHIND + 5, "final_read": False},
            "the final reads of the log are incomplete",
        ),
        (["no-replica-divergence"], {"lost": FAULT_BEHIND + 5}, ""),
        (["no-replica-divergence"], {"lost": FAULT_BEHIND + 5, "diverging": "n3"}, "replica-divergence was found"),
        (["DIV"], {"lost": FAULT_BEHIND + 5, "diverging": "n3"}, "DIV must hold, but "),
        (["no-other-anomaly"], {"lost": RECORDS - 1, "diverging": "n3"}, "no-other-anomaly must hold, but "),
        # An unsent record, as on the diverging replica, is not a consequence of a loss.
        ([], {"lost": FAULT_BEHIND + 5, "diverging": "n3"}, "phantom-on-replica was found, which is not a consequence"),
        (["no-replica-divergence"], {"lost": FAULT_BEHIND + 5, "unknown_format_on": "n3"}, "replicas could not decide"),
        (["above-uploads"], {"lost": 5, "uploaded": 9}, ""),
        (["above-uploads"], {"lost": 5, "uploaded": 9, "shown_from": 9}, ""),  # the log starts above the lost record
        (
            ["above-uploads"],
            {"lost": 20, "uploaded": 9},
            "above-uploads must hold, but the log lacks 1 record acknowledged above remote storage",
        ),
        (["above-uploads"], {"lost": 5}, "above-uploads must hold, but the final reads of the log or the remote "),
        (["above-uploads"], {"lost": 5, "uploaded": 9, "shown_from": 15}, "final reads of the log or the remote "),
        (
            ["above-uploads"],
            {"lost": 5, "uploaded": RECORDS - 1},
            "above-uploads must hold, but no record above remote storage was acknowledged",
        ),
        (["no-such-thing"], {"lost": FAULT_BEHIND + 5}, "no-such-thing is not a known demand"),
    ],
)
def test_other_promises_hold_beside_an_expected_loss(
    tmp_path: Path, must_hold: list[str], changes: dict[str, Any], unmet: str
) -> None:
    verdict = judged(tmp_path / "run", failing(*must_hold), **changes)
    assert verdict.verdict == "fail"
    assert bool(unmet) == bool(verdict.unmet), verdict.unmet
    assert unmet in "".join(verdict.unmet)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"exits": (("n3", 1, None, "panic: index out of range"),)}, "unexpected-exit"),
        ({"fatal_lines": (("n3", "FATAL", "FATAL: lost"),)}, "fatal-log-line"),
        ({"corrupt": "n3"}, "corrupt-record"),
    ],
)
def test_anomalies_that_a_loss_cannot_cause_are_not_tolerated_beside_one(
    tmp_path: Path, changes: dict[str, Any], name: str
) -> None:
    verdict = judged(tmp_path / "run", failing(), lost=FAULT_BEHIND + 5, **changes)
    assert verdict.unmet == (f"{name} was found, which is not a consequence of {LOST}",)
    allowed = failing() | {"may_show": [name]}
    assert judged(tmp_path / "allowed", allowed, lost=FAULT_BEHIND + 5, **changes).met


def test_a_single_anomaly_can_be_expected(tmp_path: Path) -> None:
    exits = (("n3", 1, None, "panic: index out of range"),)
    assert judged(tmp_path / "a", failing(anomaly="unexpected-exit"), exits=exits).met
    assert judged(tmp_path / "b", failing("no-other-anomaly", anomaly="unexpected-exit"), exits=exits).met
    both = judged(tmp_path / "c", failing("AWL", anomaly="unexpected-exit"), exits=exits, lost=7)
    assert both.unmet == (f"AWL must hold, but {LOST} was found",)


def test_a_run_may_show_exceptions_from_no_other_anomaly(tmp_path: Path) -> None:
    found = {"lost": FAULT_BEHIND + 5, "diverging": "n3"}
    seen = {each.name for each in judged(tmp_path / "a", failing(), **found).anomalies} - {LOST}
    assert seen
    allowed = failing("no-other-anomaly") | {"may_show": sorted(seen)}
    assert judged(tmp_path / "b", allowed, **found).met
    for name in seen:
        fewer = failing("no-other-anomaly") | {"may_show": sorted(seen - {name})}
        unmet = judged(tmp_path / name, fewer, **found).unmet
        assert f"no-other-anomaly must hold, but {name} was found" in unmet


def test_losses_before_faults_are_not_counted_for_registers(tmp_path: Path) -> None:
    verdict = analyze(StoredRegisters(tmp_path / "run").write(), engine="in-process", plots=False)
    assert "lost_before_faults" not in verdict.stats


def test_each_anomaly_and_each_class_has_a_name() -> None:
    words = {"before-faults", "above-uploads", "no-other-anomaly"}
    assert {f"no-{name}" for name in CLASSES} | set(CLASSES.values()) | words == set(DEMANDS)
