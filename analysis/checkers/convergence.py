"""Liveness: checks the journal's recovery of the cluster against the campaign's bound.

A time bound is meaningful only if the machine is fast enough; the campaign that states one (`[checks] converge_s`)
knows that. Without a bound, a cluster that does not recover leaves the run unfinished, and unknown.
"""

from __future__ import annotations

import math
from typing import Any, Final

from analysis.checker import JOURNAL, PLAN, CheckedRun, Checker, Outcome
from analysis.checkers.replicas import RECOVERS
from analysis.core.anomaly import Anomaly, AnomalyKind
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.journal import CONVERGED, NOT_CONVERGED

LIVENESS: Final = AnomalyKind(
    "not-converged",
    RECOVERS,
    "After all heals and the bound, some partition had no leader, lacked in-sync replicas or accepted no writes.",
)

NOT_SEEN: Final = Reason(
    "recovery-not-seen", "The campaign bounds the recovery, and the evidence of the recovery is missing."
)


def check(run: CheckedRun) -> Outcome:
    """The journal says either when the cluster had recovered or what it lacked at the bound."""
    lines = run.history.journal
    failed = [line for line in lines if line.get("event") == NOT_CONVERGED]
    reached = [line for line in lines if line.get("event") == CONVERGED]
    bound_s = run.description.requirements.converge_s
    if failed:
        event = failed[0]
        sentence = f"{event['bound_s']:g} s after everything was healed the cluster was not whole: {event['seen']}"
        witness = {"op": NOT_CONVERGED, "at": event["t"], "bound_s": event["bound_s"], "seen": event["seen"]}
        return _failed(sentence, witness)
    if reached:
        event = reached[0]
        sentence = f"the cluster was whole {event['seconds']:g} s after everything was healed"
        limit_s = math.inf if bound_s is None else bound_s * run.description.time_scale
        if event["seconds"] <= limit_s:
            return Outcome(PASS, sentence)
        witness = {"op": CONVERGED, "at": event["t"], "bound_s": limit_s, "seconds": event["seconds"]}
        return _failed(f"{sentence}, and the bound is {limit_s:g} s", witness)
    if bound_s is None:
        return Outcome(NOT_APPLICABLE, "the campaign states no bound on recovery")
    return Outcome(UNKNOWN, "it was not seen whether the cluster recovers", doubts=("no convergence is on record",))


def _failed(sentence: str, witness: dict[str, Any]) -> Outcome:
    return Outcome(FAIL, sentence, (Anomaly(LIVENESS.name, "", -1, sentence, (witness,), 1),))


CHECKER: Final = Checker(
    "convergence",
    "After all heals, did the cluster recover within the campaign's bound?",
    35,
    (LIVENESS,),
    check,
    (NOT_SEEN,),
    may_rest=lambda description: description.requirements.converge_s is None,
    reads="|".join((PLAN, JOURNAL)),
)
