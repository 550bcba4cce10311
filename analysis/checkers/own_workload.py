"""Whether a workload of a user's own was judged, and its final read answered; a model that judges it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.checker import OPERATIONS, PLAN, CheckedRun, Checker, Outcome
from analysis.core.anomaly import BROKEN, OWN, Anomaly, anomaly_count
from analysis.doubt import LOST_CALLS, OWN_UNDECIDED, Reason
from analysis.verdict import FAIL, PASS, UNKNOWN
from installation.counted import counted

if TYPE_CHECKING:
    from history.record.operations import Operations

NOT_JUDGED: Final = Reason("own-workload-unjudged", "No checker judges the operations of a workload of the user's own.")
NOT_ASKED: Final = Reason("own-final-read-missing", "No operation of the final read was answered.")


def check(run: CheckedRun) -> Outcome:
    """Judge the operations by the campaign's model, if it names one. The campaign's own checkers judge them, too
    (`analysis/checkers/own_checks.py`)."""
    from history.record.shapes import FREE

    operations, requirements = run.history.of(FREE), run.description.checks
    anomalies, doubts = list[Anomaly](), list[str]()
    finals = _answered_finals(operations)
    details = [counted(operations.size, "operation"), f"the final read has {counted(finals, 'answer')}"]
    if not requirements.use and not requirements.model:
        doubts.append(NOT_JUDGED.says("no checker judges the operations: [checks] use names none"))
    if not finals:
        doubts.append(NOT_ASKED.says("no operation of the final read was answered after healing"))
    if requirements.model:
        from analysis.engines.own_model import judge_calls

        report = judge_calls(
            requirements.model,
            operations,
            initial=requirements.initial,
            allowed=requirements.allow,
            prohibited=requirements.prohibit,
            consistency=requirements.consistency_model,
        )
        details.append(report.size)
        doubts += OWN_UNDECIDED.say(report.doubts)
        anomalies += (
            Anomaly(finding.anomaly, "", -1, finding.sentence, finding.witness, finding.count, OWN.code)
            for finding in report.findings
        )
    if anomalies and run.may_lack_writes:
        doubts += OWN_UNDECIDED.say(f"{anomaly.name}: {anomaly.sentence}: {LOST_CALLS}" for anomaly in anomalies)
        anomalies.clear()
    detail = "; ".join(details)
    if anomalies:
        return Outcome(FAIL, f"{anomaly_count(anomalies)}: {detail}", tuple(anomalies), tuple(doubts))
    return Outcome(UNKNOWN if doubts else PASS, detail, doubts=tuple(doubts))


def _answered_finals(operations: Operations) -> int:
    import pyarrow.compute as pc

    from history.record.schemas import OK, PHASE_FINAL

    count = 0
    for part in operations.parts("phase", "type"):
        is_final = pc.equal(part["phase"].cast("string"), PHASE_FINAL)
        count += int(pc.sum(pc.and_(is_final, pc.equal(part["type"], OK))).as_py())
    return count


CHECKER: Final = Checker(
    "own workload",
    "Are the operations of a workload of the user's own judged, also by the campaign's model, and was its final read "
    "answered?",
    13,
    (BROKEN,),
    check,
    (NOT_JUDGED, NOT_ASKED, OWN_UNDECIDED),
    judge="own",
    reads="|".join((PLAN, OPERATIONS)),
)
