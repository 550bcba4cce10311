"""Observations during a shortage of the tester are undecided; proofs by older evidence stay."""

from types import SimpleNamespace
from typing import Any

import pytest

from analysis.checker import Outcome, without_the_testers
from analysis.checkers.services import CHECKER
from analysis.core.anomaly import Anomaly
from analysis.evidence.tester_shortages import Shortage, cause_of
from history.journal.service_events import fatal_lines, service_exits

SHORT = (Shortage(1_000, "the tester ran out of disk"),)
S = 1_000_000_000
STARTED = {"event": "run_started", "t": 0}
END = {"event": "note", "t": 100 * S, "text": "the run was not finished", "unfinished": True}
FULL = {"event": "tester_short", "t": 51 * S, "since": 50 * S, "resource": "disk", "seen": "/store has 0 bytes free"}


def anomaly(*rows: dict[str, Any]) -> Anomaly:
    return Anomaly("lost-write", "log", 0, "it is lost", rows)


@pytest.mark.parametrize(
    ("rows", "is_proven"),
    [
        ([{"inv": 10, "ret": 20}, {"inv": 30, "ret": 999}], True),
        ([{"inv": 10, "ret": 20}, {"inv": 30, "ret": 1_001}], False),
        ([{"inv": 10, "ret": None}], True),
        ([{"at": 1_000}], False),
        ([{"at": 5}, {"offset": 3}], False),
        ([], False),
    ],
)
def test_only_evidence_from_before_the_shortage_proves(rows: list[dict[str, Any]], is_proven: bool) -> None:
    assert bool(cause_of(anomaly(*rows), SHORT)) != is_proven
    assert not cause_of(anomaly(*rows), ())


def run_of(journal: list[dict[str, Any]]) -> Any:
    history = SimpleNamespace(
        journal=journal, phase_names=(), service_exits=service_exits(journal), fatal_lines=fatal_lines(journal)
    )
    return SimpleNamespace(history=history)


def judged(*lines: dict[str, Any]) -> Outcome:
    return CHECKER.check(run_of([STARTED, *lines]))


def ended(node: str, t: int) -> dict[str, Any]:
    return {"event": "service_exit", "t": t, "node": node, "exit_code": 70, "signal": None, "last_words": "no space"}


def test_a_process_that_ended_while_the_tester_was_short_is_a_doubt() -> None:
    outcome = judged(FULL, ended("n1", 52 * S), END)
    assert (outcome.verdict, outcome.anomalies) == ("unknown", ())
    assert "the tester ran out of disk (/store has 0 bytes free)" in outcome.doubts[0]


def test_a_process_that_ended_before_that_is_a_failure_also_if_it_ended_again() -> None:
    outcome = judged(ended("n1", 10 * S), FULL, ended("n1", 52 * S), ended("n2", 53 * S), END)
    assert outcome.verdict == "fail"
    assert [(each.witness[0]["node"], each.count) for each in outcome.anomalies] == [("n1", 1)]
    assert len(outcome.doubts) == 2


def test_a_fatal_line_has_the_same_verdict() -> None:
    line = {"event": "fatal_line", "t": 60 * S, "node": "n1", "pattern": "disk", "line": "the disk failed"}
    assert judged(FULL, line, END).verdict == "unknown"
    assert judged(line, END).verdict == "fail"


def test_only_the_last_seconds_of_a_lost_journal_are_undecided() -> None:
    later = {"event": "note", "t": 90 * S, "text": "going on"}
    assert judged(ended("n1", 89 * S), later).verdict == "unknown"
    assert judged(ended("n1", 60 * S), later).verdict == "fail"
    assert judged(ended("n1", 89 * S), later, END).verdict == "fail"


def test_any_checkers_anomaly_is_a_doubt_by_younger_evidence() -> None:
    old, young = anomaly({"inv": 1, "ret": 2}), anomaly({"inv": 1, "ret": 60 * S})
    run = run_of([STARTED, FULL, END])
    assert without_the_testers(Outcome("fail", "lost", (old,)), run) == Outcome("fail", "lost", (old,))
    both = without_the_testers(Outcome("fail", "lost", (old, young)), run)
    assert (both.verdict, both.anomalies, len(both.doubts)) == ("fail", (old,), 1)
    assert without_the_testers(Outcome("fail", "lost", (young,)), run).verdict == "unknown"
    healthy = run_of([STARTED, END])
    assert without_the_testers(Outcome("fail", "lost", (young,)), healthy).anomalies == (young,)
