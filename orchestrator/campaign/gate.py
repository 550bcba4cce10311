"""The gate: do these runs, each against what was expected of it, let the change through?

A run that met its expectation counts for it, whatever the verdict: a mutant that was caught is as good as a pass. One
run that came to another verdict than expected closes the gate for good; a run that could not be judged, or has no
verdict, leaves it undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import EXIT_OF_VERDICT


@dataclass(frozen=True)
class Decision:
    """`verdict`: pass, fail or unknown, over all runs; `reason` in a sentence."""

    verdict: str
    reason: str

    @property
    def exit_code(self) -> int:
        return EXIT_OF_VERDICT[self.verdict]


def decide(runs: Sequence[Mapping[str, Any]]) -> Decision:
    """Decide over entries of a campaign's summary (each with `run`, `verdict`, `expected`, `met`)."""
    if not runs:
        return Decision("unknown", "there are no runs to decide over")
    unmet = [run for run in runs if not run["met"]]
    wrong = [run for run in unmet if run["verdict"] != "unknown"]
    if wrong:
        return Decision("fail", f"{_count(wrong, runs)} did not come to what was expected: {_names(wrong)}")
    if unmet:
        return Decision("unknown", f"{_count(unmet, runs)} could not be judged: {_names(unmet)}")
    return Decision("pass", f"all {len(runs)} runs came to what was expected" if len(runs) > 1 else "as expected")


def _count(some: Sequence[object], runs: Sequence[object]) -> str:
    return f"{len(some)} of {len(runs)} run{'s' if len(runs) > 1 else ''}"


def _names(runs: Sequence[Mapping[str, Any]]) -> str:
    shown = [f"{run['run']} ({run['verdict']}, expected {run['expected']})" for run in runs[:5]]
    return ", ".join(shown) + (f" and {len(runs) - 5} more" if len(runs) > 5 else "")
