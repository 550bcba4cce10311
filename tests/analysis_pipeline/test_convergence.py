"""Liveness as a verdict: the journal's lines about recovery, with a bound and without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from analysis.checker import Outcome
from analysis.checkers.convergence import CHECKER


def judged(journal: list[dict[str, Any]], converge_s: int | None = 60, time_scale: float = 1.0) -> Outcome:
    """The checker's outcome for a run with this journal and this bound, in a world with this time scale."""
    requirements = SimpleNamespace(converge_s=converge_s)
    described = SimpleNamespace(requirements=requirements, time_scale=time_scale)
    run = SimpleNamespace(history=SimpleNamespace(journal=journal), description=described)
    return CHECKER.check(run)  # type: ignore[arg-type]


CONVERGED = {"event": "converged", "t": 9, "seconds": 3.5}
NOT_CONVERGED = {"event": "not_converged", "t": 9, "bound_s": 60, "seen": "log-0 has no leader"}


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
    outcome = judged([NOT_CONVERGED])
    assert outcome.verdict == "fail"
    (anomaly,) = outcome.anomalies
    assert anomaly.name == "not-converged"
    assert "log-0 has no leader" in anomaly.sentence
    assert anomaly.witness[0]["bound_s"] == 60


@pytest.mark.parametrize(("bound", "verdict"), [(60, "unknown"), (None, "n/a")])
def test_a_run_without_a_line_about_convergence(bound: int | None, verdict: str) -> None:
    assert judged([], bound).verdict == verdict
