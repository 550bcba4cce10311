"""junit.xml: valid whatever is in it, and for every kind of answer."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.gate import reports
from tests.orchestrator.junit_schema import suite_of

EVERYTHING = "".join(map(chr, range(0x300))) + "\u2028\u202e\ud800\udfff\udcff\ufffe\uffff\U0001f600 ]]> <!-- & ' \""


def run(name: str, verdict: str, **changes: Any) -> dict[str, Any]:
    entry = {"run": name, "cell": "main", "seed": 3, "verdict": verdict, "expected": "pass", "met": verdict == "pass"}
    return {**entry, "reasons": [], "duration_s": 1.5, "started": "2026-01-02T03:04:05+02:00", "replay": "x", **changes}


def written(tmp_path: Path, **summary: Any) -> Any:
    return suite_of(reports.write_junit(tmp_path, {"campaign": "c", "runs": [], **summary}))


@pytest.mark.parametrize("field", ["campaign", "reason", "run", "cell", "doubt", "finding"])
def test_the_report_is_well_formed_for_any_printed_bytes(tmp_path: Path, field: str) -> None:
    runs = [run("r1", "pass"), run("r2", "fail", reasons=[EVERYTHING])]
    if field in ("run", "cell"):
        runs[0][field] = EVERYTHING
    suite = written(
        tmp_path,
        campaign=EVERYTHING if field == "campaign" else "c",
        runs=runs,
        doubts=[EVERYTHING] if field == "doubt" else [],
        findings=[{"demand": EVERYTHING, "verdict": "unknown", "sentence": EVERYTHING}] if field == "finding" else [],
    )
    assert "]]>" in (suite.findtext("testcase/failure") or "")


def test_huge_texts_are_bounded(tmp_path: Path) -> None:
    suite = written(tmp_path, runs=[run(f"r{n}", "unknown", reasons=["x" * 10_000_000]) for n in range(10)])
    assert "characters left out" in (suite.findtext("testcase/error") or "")


def test_each_thing_that_closes_the_gate_is_a_failure_or_an_error(tmp_path: Path) -> None:
    suite = written(
        tmp_path,
        runs=[
            run("good", "pass"),
            run("alarm", "fail"),
            run("survived", "pass", expected="fail (duplicate)", met=False),
            run("killed", "fail", expected="fail (duplicate)", met=True, reasons=["duplicate: two of one"]),
            run("open", "unknown"),
            run("known", "fail", reasons=["stale-read: known"]),
            run("loose", "fail", reasons=["stale-read: known", "besides, undecided: no end was read"]),
        ],
        doubts=["a plan is damaged"],
        findings=[
            {"demand": d, "verdict": v, "sentence": d} for d, v in (("a", "pass"), ("b", "fail"), ("c", "unknown"))
        ],
        signatures={"excused": {"known": "fixed soon", "loose": "fixed soon"}},
    )
    cases = {
        case.get("name", "").rsplit("(", 1)[-1].rstrip(")"): [wrong.tag for wrong in case]
        for case in suite.iter("testcase")
    }
    assert cases == {
        "good": [],
        "alarm": ["failure"],
        "survived": ["failure"],
        "killed": [],
        "open": ["error"],
        "known": [],
        "loose": ["error"],
        "the plan: a plan is damaged": ["error"],
        "a: a": [],
        "b: b": ["failure"],
        "c: c": ["error"],
    }
    assert suite.get("timestamp") == "2026-01-02T01:04:05"
    assert "duplicate: two of one" in (suite.findtext("system-out") or "")


def test_no_run_is_an_error(tmp_path: Path) -> None:
    assert written(tmp_path).get("errors") == "1"
