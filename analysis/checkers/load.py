"""Checks that a run had at least the load that its plan requires; otherwise its pass means too little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from analysis.checker import CheckedRun, Checker, Outcome
from analysis.doubt import Reason
from analysis.verdict import PASS, UNKNOWN
from history.journal.timeline import INJECTED
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.evidence.load import MeasuredLoad

FEW_CHANGES: Final = Reason("too-few-changes", "Fewer changes were acknowledged than min_ok requires.")
FEW_QUERIES: Final = Reason("too-few-queries", "Fewer queries were answered under load than min_queries requires.")
SMALL_SHARE: Final = Reason("too-small-share", "Less than min_share of the planned changes was acknowledged.")
NO_LOAD: Final = Reason("faults-met-no-load", "No operation was in progress at the first fault or after it.")
SHORT_LOAD: Final = Reason("load-too-short", "The load lasted for less time than planned.")
LOAD: Final = "main"
AFTER_LOAD: Final = "heal"
"""The phases in which the load runs, and the next one."""
_WORDS: Final = {
    "log": ("append", "query of logs' ends", "queries of logs' ends"),
    "register": ("write", "read", "reads"),
    "own": ("call", "query", "queries"),
}
"""What changes and queries are called, by the judge: a change, a query, queries."""


def check(run: CheckedRun) -> Outcome:
    """Compare the achieved load with the plan and with the campaign's requirements."""
    from analysis.evidence.load import load_of

    needs, load = run.description.checks, load_of(run.history)
    change, query, queries = _WORDS.get(run.description.workload.judge, ("change", "query", "queries"))
    doubts = []
    if load.changes < needs.min_ok:
        text = f"only {counted(load.changes, f'acknowledged {change}')}, {needs.min_ok} are needed{load.weak_words}"
        doubts.append(FEW_CHANGES.says(text))
    if load.queries_under_load < needs.min_queries:
        answered = counted(load.queries_under_load, f"answered {query}", f"answered {queries}")
        text = f"only {answered} under load, {needs.min_queries} are needed"
        doubts.append(FEW_QUERIES.says(text))
    planned = run.description.plan.changes
    if load.changes_under_load < needs.min_share * planned:
        share = (
            f"{load.changes_under_load / planned:.0%} of the {counted(planned, f'planned {change}')} were acknowledged"
        )
        text = (
            f"only {share} under load, {needs.min_share:.0%} are needed (min_share of [checks])"
            f"{load.weak_words_under_load}"
        )
        doubts.append(SMALL_SHARE.says(text))
    doubts += [*SHORT_LOAD.say(_too_short(run)), *NO_LOAD.say(_of_faults(run))]
    counts = f"{counted(load.changes, f'acknowledged {change}')}, {counted(load.queries_under_load, query, queries)}"
    detail = f"{counts}{_of_plan(run, load)}{load.weak_words}"
    return Outcome(UNKNOWN if doubts else PASS, detail, doubts=tuple(doubts))


def _too_short(run: CheckedRun) -> Iterator[str]:
    """The load ends with the phase after it. A run that was not finished has its own doubt."""
    starts = {phase.name: phase.start for phase in run.history.phases}
    planned_s = run.description.planned_load_s
    if LOAD in starts and AFTER_LOAD in starts and (lasted_s := (starts[AFTER_LOAD] - starts[LOAD]) / 1e9) < planned_s:
        yield f"the load lasted {lasted_s:.1f} s by the journal, {planned_s:g} s were planned"


def _of_faults(run: CheckedRun) -> Iterator[str]:
    """A load that ended before the first fault, for example of programs that hang, met no fault."""
    from analysis.evidence.load import goes_on

    moments = [fault.line(INJECTED)["t"] for fault in run.history.faults if INJECTED in fault.lines]
    planned = run.description.plan.changes or run.description.plan.queries
    if planned and moments and not goes_on(run.history, min(moments)):
        logs = [path for path in (run.directory / "clients").glob("*.log") if path.stat().st_size]
        yield (
            "no operation was under way at the first fault, and none was invoked after it under load: the faults met "
            f"no load; {'what clients printed is in clients/' if logs else 'the clients printed nothing'}"
        )


def _of_plan(run: CheckedRun, load: MeasuredLoad) -> str:
    planned = run.description.plan.changes
    if not planned:
        return "; no load was planned by rate"
    return f"; under load {load.changes_under_load / planned:.0%} of {counted(planned, 'planned change')}"


CHECKER: Final = Checker(
    "load", "Was there enough load?", 15, (), check, (FEW_CHANGES, FEW_QUERIES, SMALL_SHARE, SHORT_LOAD, NO_LOAD)
)
