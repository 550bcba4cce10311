"""Checkers of a campaign's own: what they find fails the run, and one that cannot decide leaves it unknown."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from analysis.history_checker import RunHistory, load_checker
from analysis.pipeline import analyze
from analysis.report import render_run
from analysis.verdict import Verdict
from history.own_classes import OwnClassError
from orchestrator.gate.policy_file import KnownFailure
from tests.analysis_pipeline.stored_run import RECORDS, StoredRun

FILE = "pairs.py"
USE = f"{FILE}:Pairs"
HEAD = """\
import os, sys, time
from brownout_api import HistoryChecker

class Pairs(HistoryChecker):
    promise = "an append has a place in the log"
    anomalies = {"far": "An append is far behind.", "other": "Something else."}
    %s
    def check(self, history):
"""
"""Its last line is line 9 of the checker's file."""
FAR = """\
        for append in history.ok("append"):
            if append.offset >= 38:
                yield self.anomaly("far", f"{append.client}'s append is at offset {append.offset}", append)
"""
NOTHING = "        return ()\n"
CASES = {
    "crashes": ("        raise KeyError('x')\n", f"{FILE}:9: KeyError: 'x'"),
    "exits": ("        sys.exit(0)\n", f"{FILE}:9: SystemExit: 0"),
    "recurses without end": ("        return self.check(history)\n", f"{FILE}:9: RecursionError"),
    "asks for an unknown column": (
        "        return [each.offsett for each in history]\n",
        f"{FILE}:9: AttributeError: an operation has no column 'offsett'",
    ),
    "yields no anomaly": (
        "        yield 'far'\n",
        f"{FILE}:9: TypeError: check yielded 'far'; yield self.anomaly(name, sentence",
    ),
    "forgets to yield": (
        "        self.anomaly('far', 'x')\n",
        f"{FILE}: TypeError: check returned None; yield each contradiction",
    ),
    "returns its result": ("        return False\n", f"{FILE}: TypeError: check returned False; yield each"),
    "yields an undeclared name": (
        "        yield self.anomaly('near', 'x')\n",
        f"{FILE}:9: TypeError: check yielded 'near', which `anomalies`",
    ),
    "ends its process": ("        os._exit(0)\n", "its process ended with exit code 0"),
    "is killed": ("        os.kill(os.getpid(), 9)\n", "its process ended with exit code -9"),
}


def text(body: str, attributes: str = "") -> str:
    return HEAD % attributes + body


def judged(path: Path, body: str, attributes: str = "", *, plots: bool = False) -> Verdict:
    run = StoredRun(path / "run", use=(USE,), checkers={FILE: text(body, attributes)})
    return analyze(run.write(), engine="in-process", plots=plots)


def test_a_run_without_a_contradiction_passes(tmp_path: Path) -> None:
    verdict = judged(tmp_path, NOTHING, f"needs = {{'append': {RECORDS}}}")
    assert (verdict.verdict, verdict.doubts) == ("pass", ())
    (own,) = (check for check in verdict.checks if check.name == "own checks")
    assert own.verdict == "pass"
    assert "an append has a place in the log" in own.detail


def test_contradictions_of_a_name_are_one_anomaly_with_the_first_witness(tmp_path: Path) -> None:
    verdict = judged(tmp_path, FAR, plots=True)
    assert verdict.verdict == "fail"
    (anomaly,) = verdict.anomalies
    assert (anomaly.name, anomaly.promise, anomaly.count) == ("far", "OWN", 2)
    assert (anomaly.where, anomaly.sentence) == ("log-0", f"{USE}: producer-0's append is at offset 38")
    (row,) = anomaly.witness
    assert (row["op"], row["type"], row["offset"]) == ("append", "ok", 38)
    assert anomaly.sentence.replace("'", "&#39;") in render_run(tmp_path / "run").read_text()


@pytest.mark.parametrize("case", CASES)
def test_a_checker_that_fails_leaves_the_run_unknown_with_file_and_line(tmp_path: Path, case: str) -> None:
    body, reason = CASES[case]
    verdict = judged(tmp_path, body)
    assert (verdict.verdict, verdict.codes) == ("unknown", ("own-check-undecided",))
    assert reason in " ".join(verdict.doubts)


@pytest.mark.parametrize("ends", ["raise ValueError('late')", "os._exit(3)", "time.sleep(600)"])
def test_a_contradiction_stays_one_if_the_checker_fails_later(tmp_path: Path, ends: str) -> None:
    verdict = judged(tmp_path, f"{FAR}        {ends}\n", "limit_s = 1")
    assert verdict.verdict == "fail"
    assert [anomaly.name for anomaly in verdict.anomalies] == ["far"]
    assert verdict.codes == ("own-check-undecided",)


def test_a_checker_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    body = (
        "        import subprocess\n        child = subprocess.Popen(['sleep', '600'])\n"
        f"        open({str(child)!r}, 'w').write(str(child.pid))\n        time.sleep(600)\n"
    )
    verdict = judged(tmp_path, body, "limit_s = 1")
    assert verdict.verdict == "unknown"
    assert "it has not ended after 1 s" in verdict.doubts[0]
    assert not is_running(int(child.read_text()))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("needs", "is_enough"), [({"append": RECORDS}, True), ({"append": RECORDS + 1}, False), ({"write": 1}, False)]
)
def test_needed_operations_must_be_answered(tmp_path: Path, needs: dict[str, int], is_enough: bool) -> None:
    verdict = judged(tmp_path, NOTHING, f"needs = {needs}")
    assert verdict.verdict == ("pass" if is_enough else "unknown")


def test_a_missing_text_of_a_checker_leaves_the_run_unknown(tmp_path: Path) -> None:
    verdict = analyze(StoredRun(tmp_path / "run", use=(USE,)).write(), engine="in-process", plots=False)
    assert (verdict.verdict, verdict.codes) == ("unknown", ("own-check-undecided",))


def test_output_of_a_checker_is_in_a_file_and_no_part_of_its_result(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "        print('{\"sentence\": 1}')\n        os.write(1, b'more')\n        return ()\n")
    assert verdict.verdict == "pass"
    assert (tmp_path / "run" / "tables" / "own-checks.log").read_text().splitlines() == ['{"sentence": 1}', "more"]


def test_a_checker_sees_faults_and_phases(tmp_path: Path) -> None:
    body = (
        "        (fault,) = history.faults\n        assert (fault['kind'], fault['targets']) == ('kill', ['n2'])\n"
        "        assert any(each.phase == 'final' for each in history)\n"
        "        assert [each.inv for each in history] == sorted(each.inv for each in history)\n        return ()\n"
    )
    verdict = judged(tmp_path, body)
    assert verdict.doubts == ()


WRONG = {
    "a syntax error": ("class Pairs(:\n", f"{FILE}:1: "),
    "an error at import": ("\nimport does_not_exist\n", f"{FILE}:2: ModuleNotFoundError"),
    "an exit at import": ("import sys\nsys.exit(0)\n", f"{FILE}:2: SystemExit"),
    "no such class": ("x = 1\n", "has no Pairs"),
    "another thing of the name": ("Pairs = 1\n", "has another thing of the name Pairs"),
    "no promise": (text(NOTHING, "promise = ''"), "Pairs.promise"),
    "no anomaly": (text(NOTHING, "anomalies = {}"), "Pairs.anomalies"),
    "needs without a number": (text(NOTHING, "needs = {'append': 0}"), "Pairs.needs"),
    "a limit of no time": (text(NOTHING, "limit_s = 0"), "Pairs.limit_s"),
    "a class without a check": (text(NOTHING).replace("def check", "def chek"), "cannot be made"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_checker_is_refused_when_it_is_loaded(wrong: str) -> None:
    source, message = WRONG[wrong]
    with pytest.raises(OwnClassError) as refused:
        load_checker(USE, source)
    assert message in str(refused.value)


def test_a_checker_is_tested_without_a_run() -> None:
    checker = load_checker(USE, text(FAR))
    found = list(
        checker.check(RunHistory.of({"f": "append", "offset": 3}, {"f": "append", "offset": 40}, {"f": "read"}))
    )
    assert [(broken.name, broken.operations[0].offset) for broken in found] == [("far", 40)]


FAR_AND_OTHER = f"{FAR}        yield self.anomaly('other', 'something')\n"
EXPECTED: dict[str, tuple[dict[str, Any], str]] = {
    "its name": ({"anomaly": "far"}, ""),
    "any of its kind": ({"anomaly": "own-promise-broken"}, ""),
    "another name": ({"anomaly": "near"}, "the expected anomaly near was not found"),
    "no other": ({"anomaly": "far", "must_hold": ["no-other-anomaly"]}, "must hold, but other was found"),
    "the other may be there": ({"anomaly": "far", "must_hold": ["no-other-anomaly"], "may_show": ["other"]}, ""),
    "no other kind": ({"anomaly": "own-promise-broken", "must_hold": ["no-other-anomaly"]}, ""),
    "none of its class": ({"anomaly": "lost-acknowledged-write", "must_hold": ["OWN"]}, "was not found"),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_a_cell_names_own_anomalies_in_its_expectation(tmp_path: Path, case: str) -> None:
    expect, unmet = EXPECTED[case]
    source = {FILE: text(FAR_AND_OTHER)}
    run = StoredRun(tmp_path / "run", use=(USE,), checkers=source, expect={"verdict": "fail", **expect})
    verdict = analyze(run.write(), engine="in-process", plots=False)
    assert [anomaly.name for anomaly in verdict.anomalies] == ["far", "other"]
    assert {anomaly.kind for anomaly in verdict.anomalies} == {"own-promise-broken"}
    assert verdict.met == (not unmet)
    assert unmet in "".join(verdict.unmet)


def test_a_known_failure_of_a_gate_may_be_any_own_anomaly() -> None:
    known = KnownFailure("own-promise-broken", "it is known", date(2030, 1, 1))
    assert known.fits("far", "", "main")
    assert not known.fits("not-converged", "", "main")
