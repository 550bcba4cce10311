"""Liveness after the last heal: the cluster becomes whole, and what it has acknowledged can be read.

A cluster that stands still is an anomaly only with positive evidence: every fault was healed and the heal confirmed,
every service was seen to run at the end of the wait, and this machine reached every node. A bound that the campaign
states (`[checks] converge_s`) applies as it is. Without one, the run waits for longer than the timeouts of the system
need (`analysis.checkers.progress.bound_s`). A final read stands still if two readers, one after the other, did not
advance for at least half of their time, while the place took a change. Whatever of this is missing leaves the run
unknown, with the reason.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analysis.checker import JOURNAL, PLAN, CheckedRun, Checker, Outcome, first_of
from analysis.checkers.faults import unproven_heals
from analysis.checkers.progress import bound_s as progress_bound_s
from analysis.checkers.replicas import RECOVERS
from analysis.core.anomaly import Anomaly, AnomalyKind
from analysis.doubt import Reason
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from history.journal.writer import CONVERGED, FINAL_READ_STALLED, NOT_CONVERGED

Line = Mapping[str, Any]

LIVENESS: Final = AnomalyKind(
    "not-converged",
    RECOVERS,
    "After all heals and the bound, some partition had no leader, lacked in-sync replicas or accepted no writes.",
)
STALLED: Final = AnomalyKind(
    "final-read-stalled",
    RECOVERS,
    "After all heals a place took writes, and two readers in turn did not reach its end: they got errors or nothing, "
    "while every service ran.",
)

NOT_SEEN: Final = Reason(
    "recovery-not-seen", "The campaign bounds the recovery, and the evidence of the recovery is missing."
)
UNPROVEN: Final = Reason(
    "standstill-unproven",
    "The cluster did not recover, or was not read to the end, and something else than the system may be the cause.",
)
READERS: Final = 2
LEAST_SHARE: Final = 0.5
"""The share of a reader's time for which it must not have advanced."""


def check(run: CheckedRun) -> Outcome:
    """The journal says either when the cluster had recovered or what it lacked at the bound, and which final read was
    given up."""
    lines = run.history.journal
    not_whole = [line for line in lines if line.get("event") == NOT_CONVERGED]
    stalled = [line for line in lines if line.get("event") == FINAL_READ_STALLED]
    reached = [line for line in lines if line.get("event") == CONVERGED]
    bound_s = run.description.checks.converge_s
    if not_whole:
        return _not_whole(run, not_whole[0])
    if stalled:
        return _stalled(run, stalled[0])
    if reached:
        event = reached[0]
        sentence = f"the cluster was whole {event['seconds']:g} s after everything was healed"
        limit_s = math.inf if bound_s is None else bound_s * run.description.time_scale
        if event["seconds"] <= limit_s:
            return Outcome(PASS, sentence)
        witness = {"op": CONVERGED, "at": event["t"], "bound_s": limit_s, "seconds": event["seconds"]}
        return _failed(LIVENESS, f"{sentence}, and the bound is {limit_s:g} s", witness)
    if bound_s is None:
        return Outcome(NOT_APPLICABLE, "the campaign states no bound on recovery")
    return Outcome(UNKNOWN, "it was not seen whether the cluster recovers", doubts=("no convergence is on record",))


def _not_whole(run: CheckedRun, event: Line) -> Outcome:
    sentence = f"{event['bound_s']:g} s after everything was healed the cluster was not whole: {event['seen']}"
    is_stated = run.description.checks.converge_s is not None
    causes = [*unproven_heals(run), *_unreached(run, event)] if is_stated else list(_other_causes(run, event))
    if not is_stated and event["bound_s"] < (least_s := progress_bound_s(run.description)):
        causes.append(f"the system's timeouts need up to {least_s:g} s")
    witness = {"op": NOT_CONVERGED, "at": event["t"], "bound_s": event["bound_s"], "seen": event["seen"]}
    return _unproven(sentence, causes) if causes else _failed(LIVENESS, sentence, witness)


def _stalled(run: CheckedRun, event: Line) -> Outcome:
    reads, bound_s = event["reads"], event["bound_s"]
    last = reads[-1]
    error = f"; the last error was: {last['error']}" if last["error"] else ""
    sentence = (
        f"{event['place']} was read to {last['read']} of {'?' if last['end'] < 0 else last['end']}, and the last "
        f"reader did not advance for {last['idle_s']:g} s{error}"
    )
    causes = list(_other_causes(run, event))
    causes += [f"client {name} had ended" for name in event["ended"]]
    if not event["takes_writes"]:
        causes.append("it took no write meanwhile")
    if len(reads) < READERS:
        causes.append("only one reader tried")
    causes += [
        f"reader {number} {'reached the end' if _is_complete(read) else 'advanced shortly before it was given up'}"
        for number, read in enumerate(reads, 1)
        if _is_complete(read) or read["idle_s"] < LEAST_SHARE * bound_s
    ]
    witness = {"op": FINAL_READ_STALLED, "at": event["t"], "bound_s": bound_s, "read": last["read"], "end": last["end"]}
    return _unproven(sentence, causes) if causes else _failed(STALLED, sentence, witness)


def _is_complete(read: Line) -> bool:
    """Whether a reader reached the end. A group's reader that was given up has read all, and the group has not."""
    return 0 <= read["end"] <= read["read"] and not read["error"]


def _other_causes(run: CheckedRun, event: Line) -> Iterator[str]:
    """What else than the system may have caused the standstill, each in a sentence."""
    yield from unproven_heals(run)
    ran = event.get("running", ())
    yield from (f"the service on {node} was not seen to run" for node in run.description.node_names if node not in ran)
    yield from _unreached(run, event)


def _unreached(run: CheckedRun, event: Line) -> Iterator[str]:
    """The nodes that did not answer this machine; a journal of earlier versions does not say it for a stated bound."""
    if "reached" in event or run.description.checks.converge_s is None:
        names = event.get("reached", ())
        yield from (f"{node} did not answer this machine" for node in run.description.node_names if node not in names)


def _unproven(sentence: str, causes: Sequence[str]) -> Outcome:
    return Outcome(UNKNOWN, sentence, doubts=(UNPROVEN.says(f"{sentence}; but {first_of(causes)}"),))


def _failed(kind: AnomalyKind, sentence: str, witness: dict[str, Any]) -> Outcome:
    return Outcome(FAIL, sentence, (Anomaly(kind.name, "", -1, sentence, (witness,), 1),))


CHECKER: Final = Checker(
    "convergence",
    "After all heals, did the cluster recover in time, and could everything be read?",
    35,
    (LIVENESS, STALLED),
    check,
    (NOT_SEEN, UNPROVEN),
    may_rest=lambda description: description.checks.converge_s is None,
    reads="|".join((PLAN, JOURNAL)),
)
