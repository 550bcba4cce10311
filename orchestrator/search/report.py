"""The content of an exploration's report, its JSON and its final output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.verdict import FAIL, PASS, UNKNOWN
from installation.counted import counted
from orchestrator.search.coverage import DEEP
from orchestrator.search.exploration_store import Head
from orchestrator.search.exploring import GUIDED, RANDOM, Arm, cheapest, found_in
from orchestrator.search.task import Attempted

MOST_UNKNOWN = 20
"""The most unknown runs that are listed; the report has their total."""


def report_content(head: Head, arms: Sequence[Arm], runs_kept: Mapping[str, str], ended: str) -> dict[str, Any]:
    """All of it. `runs_kept`: by anomaly, the run in the store that shows it, as `campaign/run`."""
    runs = [attempted for arm in arms for attempted in arm.made]
    unknown = [run for run in runs if run.verdict == UNKNOWN]
    verdict = FAIL if any(run.verdict == FAIL for run in runs) else UNKNOWN if unknown or not runs else PASS
    return {
        "campaign": head.campaign,
        "cell": head.cell,
        "verdict": verdict,
        "ended": ended,
        "summary": f"{counted(len(runs), 'run')}, from seed {head.first}; {len(unknown)} of them unknown; {ended}",
        "found": [_found(arms, anomaly, count, runs_kept) for anomaly, count in sorted(found_in(runs).items())],
        "undecided": len(unknown),
        "unknown": [_unknown(run) for run in unknown[:MOST_UNKNOWN]],
        "arms": [_arm(arm) for arm in arms],
        "deep": [{"state": state, "runs": [_first_in(arm, state) for arm in arms]} for state in DEEP],
        "comparison": comparison(arms),
    }


def _found(arms: Sequence[Arm], anomaly: str, count: int, runs_kept: Mapping[str, str]) -> dict[str, Any]:
    attempts = [attempted for arm in arms for attempted in arm.made]
    best, run = cheapest(attempts, anomaly), runs_kept.get(anomaly, "")
    first = min(number for arm in arms for number, attempt in enumerate(arm.made, 1) if anomaly in attempt.anomalies)
    return {
        "anomaly": anomaly,
        "runs": count,
        "first": first,
        "seed": best.seed,
        "varied": best.parent >= 0,
        "steps": best.steps,
        "kept": run,
        "link": f"../../../{run}/report.html" if run else "",
    }


def _unknown(attempted: Attempted) -> dict[str, Any]:
    schedule = "the seed's own" if attempted.parent < 0 else f"a variation of run {attempted.parent + 1}"
    return {"seed": attempted.seed, "schedule": schedule, "reason": attempted.reason}


def _arm(arm: Arm) -> dict[str, Any]:
    return {
        "name": arm.name,
        "runs": len(arm.made),
        "states": arm.states,
        "failed": sum(bool(run.anomalies) for run in arm.made),
        "simulated_s": round(sum(run.simulated_s for run in arm.made), 1),
        "cpu_s": round(sum(run.cpu_s for run in arm.made), 1),
        "curve": arm.curve,
        "hits": [number for number, run in enumerate(arm.made, 1) if run.anomalies],
    }


def _first_in(arm: Arm, state: str) -> int | None:
    """The number of the run, from 1, that first reached a deep state."""
    return next((number for number, run in enumerate(arm.made, 1) if state in run.deep), None)


def comparison(arms: Sequence[Arm]) -> str:
    """One sentence that compares guided and random choice on the same number of runs, with measured figures only."""
    by_name = {arm.name: arm for arm in arms}
    if set(by_name) < {GUIDED, RANDOM} or not all(arm.made for arm in arms):
        return "Only one way of choosing runs was measured; --compare also measures random choice with as many runs."
    runs = min(len(arm.made) for arm in arms)
    guided, plain = (by_name[name].curve[runs - 1] for name in (GUIDED, RANDOM))
    needed = next((number for number, states in enumerate(by_name[GUIDED].curve, 1) if states >= plain), None)
    share = f"had reached as many as random after {counted(needed, 'run')}" if needed else "never reached as many"
    return (
        f"After {counted(runs, 'run')} each, guided had seen {counted(guided, 'different state')} and random "
        f"{plain:,}; guided {share}. "
        "One start of each is one sample."
    )
