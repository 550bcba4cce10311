"""Liveness as a verdict: the journal's lines about recovery, with a bound and without one."""

from types import SimpleNamespace
from typing import Any

import pytest

from analysis.checker import Outcome
from analysis.checkers.convergence import CHECKER
from history.journal.timeline import fault_spans

NODES = ("n1", "n2", "n3")


def judged(journal: list[dict[str, Any]], converge_s: int | None = 60, time_scale: float = 1.0) -> Outcome:
    """The checker's outcome for a run with this journal and this bound, in a world with this time scale."""
    requirements = SimpleNamespace(converge_s=converge_s, progress_s=None)
    described = SimpleNamespace(checks=requirements, time_scale=time_scale, setting_layers=(), node_names=NODES)
    plan = SimpleNamespace(nodes=NODES)
    history = SimpleNamespace(journal=journal, faults=fault_spans(journal))
    run = SimpleNamespace(history=history, description=described, plan=plan, changed={})
    return CHECKER.judged(run)  # type: ignore[arg-type]


HEALED = {"event": "heal_all", "t": 5, "status": "confirmed"}
HEALED["evidence"] = {"services": {node: {"port": "open"} for node in NODES}}
CONVERGED = {"event": "converged", "t": 9, "seconds": 3.5}
WAITED = {"event": "not_converged", "t": 9, "bound_s": 90, "seen": "log-0 has no leader"}
NOT_CONVERGED = WAITED | {"running": list(NODES), "reached": list(NODES)}
READ = {"read": 0, "end": 227, "idle_s": 60.0, "error": "OFFSET_MOVED_TO_TIERED_STORAGE"}
STALLED = {
    "event": "final_read_stalled",
    "t": 9,
    "place": "partition 0",
    "bound_s": 60.0,
    "reads": [READ, READ],
    "takes_writes": True,
    "ended": [],
    "running": list(NODES),
    "reached": list(NODES),
}
INVOKED = {"event": "fault_invoked", "t": 1, "id": "f1", "kind": "kill", "targets": ["n1"]}
SHORT = {"event": "tester_short", "t": 8, "since": 4, "resource": "disk", "seen": "it is full"}
BEHIND = [READ, READ | {"idle_s": 3.0, "read": 200}]
CAUSES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "a fault without a heal": ([INVOKED, HEALED], {}, "never healed"),
    "no heal of everything": ([], {}, "heal_all is not on record"),
    "an unconfirmed heal": ([HEALED | {"status": "mismatch"}], {}, "was mismatch"),
    "a service that ended": ([HEALED], {"running": ["n1", "n2"]}, "the service on n3 was not seen to run"),
    "a node out of reach": ([HEALED], {"reached": ["n2", "n3"]}, "n1 did not answer this machine"),
    "a short tester": ([HEALED, SHORT], {}, "the tester ran out of disk"),
}
"""Journals before a standstill, changes of its line, and a part of the doubt."""
OF_READS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "a client that ended": ([HEALED], {"ended": ["consumer-1"]}, "client consumer-1 had ended"),
    "no writes": ([HEALED], {"takes_writes": False}, "it took no write"),
    "a slow reader": ([HEALED], {"reads": BEHIND}, "reader 2 advanced shortly before"),
    "a reader that succeeds": ([HEALED], {"reads": [READ, READ | {"read": 227, "error": ""}]}, "reader 2 reached"),
    "one reader": ([HEALED], {"reads": [READ]}, "only one reader tried"),
}


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (NOT_CONVERGED, "not-converged"),
        (STALLED, "final-read-stalled"),
        (STALLED | {"reads": [READ | {"end": -1, "error": ""}] * 2}, "final-read-stalled"),  # no query was answered
    ],
)
def test_a_standstill_with_positive_evidence_fails_without_a_stated_bound(event: dict[str, Any], name: str) -> None:
    outcome = judged([HEALED, event], None)
    assert outcome.verdict == "fail"
    assert [anomaly.name for anomaly in outcome.anomalies] == [name]


@pytest.mark.parametrize(
    ("event", "cause"),
    [*((NOT_CONVERGED, cause) for cause in CAUSES), *((STALLED, cause) for cause in (*CAUSES, *OF_READS))],
)
def test_a_standstill_with_another_possible_cause_stays_unknown(event: dict[str, Any], cause: str) -> None:
    before, changes, text = (CAUSES | OF_READS)[cause]
    outcome = judged([*before, event | changes], None)
    assert (outcome.verdict, outcome.anomalies) == ("unknown", ())
    assert text in " ".join(map(str, outcome.doubts))


def test_a_standstill_within_the_timeouts_of_the_system_stays_unknown() -> None:
    outcome = judged([HEALED, NOT_CONVERGED | {"bound_s": 80}], None)
    assert outcome.verdict == "unknown"
    assert "the system's timeouts need up to 88 s" in str(outcome.doubts[0])


def test_an_earlier_journal_without_the_evidence_of_nodes_stays_unknown() -> None:
    assert judged([HEALED, WAITED], None).verdict == "unknown"
    assert judged([HEALED, WAITED], 60).verdict == "fail", "the campaign states the bound"
    assert judged([HEALED, NOT_CONVERGED | {"reached": ["n1"]}], 60).verdict == "unknown"


def test_a_cluster_that_converged_in_time_passes() -> None:
    outcome = judged([{"event": "phase", "t": 1, "name": "quiesce"}, CONVERGED])
    assert (outcome.verdict, outcome.detail) == ("pass", "the cluster was whole 3.5 s after everything was healed")


@pytest.mark.parametrize(
    ("seconds", "bound_s", "time_scale", "verdict"),
    [(60.0, 60, 1.0, "pass"), (60.1, 60, 1.0, "fail"), (110.0, 60, 2.0, "pass"), (121.0, 60, 2.0, "fail"),
     (500.0, None, 1.0, "pass")],
)  # fmt: skip
def test_a_cluster_that_recovered_late_has_not_converged(
    seconds: float, bound_s: int | None, time_scale: float, verdict: str
) -> None:
    outcome = judged([CONVERGED | {"seconds": seconds}], bound_s, time_scale)
    assert outcome.verdict == verdict
    assert [anomaly.name for anomaly in outcome.anomalies] == (["not-converged"] if verdict == "fail" else [])
    if bound_s is not None and verdict == "fail":
        assert f"the bound is {bound_s * time_scale:g} s" in outcome.detail


def test_a_cluster_that_did_not_converge_is_an_anomaly_with_its_last_state() -> None:
    outcome = judged([HEALED, NOT_CONVERGED])
    assert outcome.verdict == "fail"
    (anomaly,) = outcome.anomalies
    assert anomaly.name == "not-converged"
    assert "log-0 has no leader" in anomaly.sentence
    assert anomaly.witness[0]["bound_s"] == 90


@pytest.mark.parametrize(("bound", "verdict"), [(60, "unknown"), (None, "n/a")])
def test_a_run_without_a_line_about_convergence(bound: int | None, verdict: str) -> None:
    assert judged([], bound).verdict == verdict
