"""Whether a workload of a user's own was judged, and its final read answered."""

from __future__ import annotations

from typing import Final

from analysis.checker import OPERATIONS, PLAN, CheckedRun, Checker, Outcome
from analysis.doubt import Reason
from analysis.verdict import PASS, UNKNOWN
from installation.counted import counted

NOT_JUDGED: Final = Reason("own-workload-unjudged", "No checker judges the operations of a workload of the user's own.")
NOT_ASKED: Final = Reason("own-final-read-missing", "No operation of the final read was answered.")


def check(run: CheckedRun) -> Outcome:
    """The operations are judged by the checkers of the campaign's own (`analysis/checkers/own_checks.py`)."""
    import pyarrow.compute as pc

    from history.record.schemas import OK, PHASE_FINAL
    from history.record.shapes import FREE

    operations = run.history.of(FREE)
    finals = sum(
        int(pc.sum(pc.and_(pc.equal(part["phase"].cast("string"), PHASE_FINAL), pc.equal(part["type"], OK))).as_py())
        for part in operations.parts("phase", "type")
    )
    doubts = []
    if not run.description.requirements.use:
        doubts.append(NOT_JUDGED.says("no checker judges the operations: [checks] use names none"))
    if not finals:
        doubts.append(NOT_ASKED.says("no operation of the final read was answered after healing"))
    detail = f"{counted(operations.size, 'operation')}; the final read has {counted(finals, 'answer')}"
    return Outcome(UNKNOWN if doubts else PASS, detail, doubts=tuple(doubts))


CHECKER: Final = Checker(
    "own workload",
    "Are the operations of a workload of the user's own judged, and was its final read answered?",
    13,
    (),
    check,
    (NOT_JUDGED, NOT_ASKED),
    judge="own",
    reads="|".join((PLAN, OPERATIONS)),
)
