"""Liveness as a verdict: what the journal says of recovery, with a bound and without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from analysis.checkers.convergence import CHECKER
from analysis.checking import Outcome


def judged(journal: list[dict[str, Any]], converge_s: int | None = 60) -> Outcome:
    """The checker's word on a run with this journal and this bound."""
    requirements = SimpleNamespace(converge_s=converge_s)
    run = SimpleNamespace(
        history=SimpleNamespace(journal=journal), description=SimpleNamespace(requirements=requirements)
    )
    return CHECKER.check(run)  # type: ignore[arg-type]


CONVERGED = {"event": "converged", "t": 9, "seconds": 3.5}
NOT_CONVERGED = {"event": "not_converged", "t": 9, "bound_s": 60, "seen": "log-0 has no leader"}


def test_a_cluster_that_came_back_in_time_passes() -> None:
    outcome = judged([{"event": "phase", "t": 1, "name": "quiesce"}, CONVERGED])
    assert (outcome.verdict, outcome.detail) == ("pass", "the cluster was whole 3.5 s after everything was healed")


def test_a_cluster_that_did_not_is_an_anomaly_with_what_it_lacked() -> None:
    outcome = judged([NOT_CONVERGED])
    assert outcome.verdict == "fail"
    (anomaly,) = outcome.anomalies
    assert anomaly.name == "not-converged"
    assert "log-0 has no leader" in anomaly.sentence
    assert anomaly.witness[0]["bound_s"] == 60


@pytest.mark.parametrize(("bound", "verdict"), [(60, "unknown"), (None, "n/a")])
def test_a_run_that_says_nothing_of_it(bound: int | None, verdict: str) -> None:
    assert judged([], bound).verdict == verdict
