"""The checkers of a campaign's own (`[checks] use`), as `analysis/history_checker.py` defines them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from analysis.checker import OPERATIONS, PLAN, CheckedRun, Checker, Outcome
from analysis.core.anomaly import BROKEN, OWN, Anomaly, anomaly_count
from analysis.doubt import LOST_CALLS, OWN_UNDECIDED
from analysis.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN
from installation.counted import counted

if TYPE_CHECKING:
    from analysis.engines.own_check import OwnCheck

OUTPUT: Final = "own-checks.log"
"""What the checkers print, below `tables/`."""


def check(run: CheckedRun) -> Outcome:
    """Run each checker in a process of its own."""
    from analysis.engines.own_check import run_own_check

    uses = run.description.checks.use
    if not uses:
        return Outcome(NOT_APPLICABLE, "the campaign has no checker of its own")
    output = run.tables / OUTPUT
    output.unlink(missing_ok=True)
    anomalies, doubts, promises = list[Anomaly](), list[str](), list[str]()
    for use in uses:
        text = run.description.checkers.get(use.rpartition(":")[0])
        if text is None:
            doubts.append(f"{use}: run.toml does not have the text of its file; make the run again")
            continue
        result = run_own_check(use, text, run.description.workload.own, run.tables, output)
        anomalies += _anomalies(use, result)
        doubts += (f"{use}: {reason}" for reason in _lacking(result))
        promise = f"not checked: {result.promise}" if result.failure else result.promise
        promises.append(f"{promise} ({counted(sum(result.answered.values()), 'answered operation')})")
    detail = "; ".join(promises)
    if anomalies and run.description.workload.judge == "own" and run.may_lack_writes:
        doubts += (f"{anomaly.name}: {anomaly.sentence}: {LOST_CALLS}" for anomaly in anomalies)
        anomalies.clear()
    if anomalies:
        return Outcome(FAIL, f"{anomaly_count(anomalies)}: {detail}", tuple(anomalies), tuple(doubts))
    return Outcome(UNKNOWN if doubts else PASS, detail, doubts=tuple(doubts))


def _anomalies(use: str, result: OwnCheck) -> Iterator[Anomaly]:
    for name, contradiction in result.contradictions.items():
        witness: tuple[dict[str, Any], ...] = tuple(contradiction["witness"])
        topics = {row.get("topic", "" if "argument" in row else row.get("key", "")) for row in witness}
        partitions = {row.get("partition", -1) for row in witness}
        topic = topics.pop() if len(topics) == len(partitions) == 1 else ""
        partition = partitions.pop() if topic else -1
        sentence = f"{use}: {contradiction['sentence']}"
        yield Anomaly(name, topic, partition, sentence, witness, result.counts[name], OWN.code)


def _lacking(result: OwnCheck) -> Iterator[str]:
    """Why the check does not pass, though it found nothing."""
    if result.failure:
        yield result.failure
        return
    if not result.answered:
        yield "no operation was answered"
    for function, needed in result.needs.items():
        answered = result.answered.get(function, 0)
        if answered < needed:
            yield f"{answered} of at least {counted(needed, 'operation')} {function} were answered"


CHECKER: Final = Checker(
    "own checks",
    "Do the checkers of the campaign's own find no contradiction?",
    14,
    (BROKEN,),
    check,
    (OWN_UNDECIDED,),
    may_rest=lambda description: not description.checks.use,
    reads="|".join((PLAN, OPERATIONS)),
)
