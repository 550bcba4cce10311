"""Judges the operations on one object, by a sequential model or by the promises of its workload.

Objects are judged apart: linearizability is a local property (Herlihy and Wing 1990, theorem 1).
"""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from analysis.core.consistency_models import PROHIBITED
from analysis.core.model_search import search, witness
from analysis.core.models import MODELS, Model, ModelOperation
from analysis.core.register_operations import OutOfBudget
from analysis.core.workload_promises import PROMISES, Contradiction, WorkloadPromises
from history.foreign.kinds import TRANSACTION_NAMES
from installation.counted import counted

NOT_LINEARIZABLE: Final = "not-linearizable"
MOST_SHOWN: Final = 20
"""Operations of a witness."""


def anomalies_of(name: str, consistency: str) -> Collection[str]:
    """The names of the anomalies that a model can find. `consistency`: what transactions must obey. Raises KeyError for
    an unknown model."""
    if name in TRANSACTION_NAMES:
        return PROHIBITED[consistency]
    return (NOT_LINEARIZABLE,) if name in MODELS else PROMISES[name].anomalies


@dataclass(frozen=True)
class ObjectJudgement:
    """What the operations on one object prove."""

    contradictions: Sequence[Contradiction] = ()
    """Each with at most `MOST_SHOWN` operations."""
    doubts: Sequence[str] = ()
    """Why a pass cannot be concluded, as sentences."""
    remarks: Sequence[str] = ()
    """What else was counted, as phrases."""
    allowed: Sequence[str] = ()
    """The contradictions that do not fail it, as phrases."""
    order: Sequence[ModelOperation] = ()
    """Of a sequential model: an order that it allows."""


def model_of(name: str) -> Model | WorkloadPromises:
    """The model that `--model` calls so. Raises KeyError."""
    return MODELS[name] if name in MODELS else PROMISES[name]


def judge_object(
    model: Model | WorkloadPromises,
    initial: Hashable,
    operations: Sequence[ModelOperation],
    *,
    budget: int,
    failing: Collection[str] = (),
) -> ObjectJudgement:
    """`operations`: those that did not fail. `budget`: the configurations that a search may visit. `failing`: the
    anomalies of a workload's promises that fail it; doubts about others count for nothing."""
    if isinstance(model, WorkloadPromises):
        return _by_promises(model, initial, operations, failing)
    try:
        order = search(model, initial, operations, budget)
    except OutOfBudget:
        return ObjectJudgement(doubts=[f"the search visited {budget:,} configurations"])
    if order is None:
        return ObjectJudgement([_without_order(model, initial, operations)])
    return ObjectJudgement(order=order)


def _by_promises(
    promises: WorkloadPromises, initial: Hashable, operations: Sequence[ModelOperation], failing: Collection[str]
) -> ObjectJudgement:
    report = promises.check(initial, operations)
    contradictions, allowed = [], []
    for case in report.contradictions:
        if case.anomaly in failing:
            contradictions.append(Contradiction(case.anomaly, case.sentence, case.operations[:MOST_SHOWN], case.count))
        else:
            allowed.append(f"{case.anomaly}, which is allowed: {counted(case.count, 'case')}")
    doubts = [doubt for anomaly, doubt in report.doubts if not anomaly or anomaly in failing]
    return ObjectJudgement(contradictions, doubts, report.remarks, allowed)


def _without_order(model: Model, initial: Hashable, operations: Sequence[ModelOperation]) -> Contradiction:
    guilty, remaining = witness(model, initial, operations)
    latest = sorted(remaining, key=lambda operation: (operation.ret, operation.inv))[-MOST_SHOWN:]
    line = f" (line {guilty.line})" if guilty.line else ""
    company = f" together with {counted(len(remaining) - 1, 'operation')} invoked before it returned"
    hidden = f"; the last {MOST_SHOWN} are shown" if len(remaining) > MOST_SHOWN else ""
    sentence = f"no order explains {words(guilty)} of process {guilty.process}{line}"
    return Contradiction(NOT_LINEARIZABLE, f"{sentence}{company if len(remaining) > 1 else ''}{hidden}", tuple(latest))


def words(operation: ModelOperation) -> str:
    """An operation in words: its name, its argument, and its answer if it has one."""
    argument_text = "" if operation.argument is None else f" {_value(operation.argument)}"
    answer_text = "" if operation.answer is None else f" = {_value(operation.answer)}"
    return f"{operation.f}{argument_text}{answer_text}"


def _value(value: object) -> str:
    """A value of a model as text; the elements of a set in their order."""
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(str, value)))}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return str(value)
