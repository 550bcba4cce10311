"""Judges the operations of a workload of the user's own by a model that `check --model` knows.

A sequential model asks for an order of the operations of each key, and another function confirms the order that the
search finds. The promises of sets, queues, counters and banks need no search.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from analysis.core.model_search import WrongOrderError, require_order
from analysis.core.models import Model, ModelOperation
from analysis.core.object_judgement import judge_object, model_of
from analysis.core.registers import BUDGET
from analysis.core.workload_promises import WorkloadPromises, failing_anomalies
from analysis.engines.own_check import witness_of_call
from history.foreign.edn import form_of, form_of_json
from history.foreign.history import ForeignError
from history.record.operations import Operations
from history.record.schemas import FAIL, INF, OK, OUTCOMES
from history.strict_json import decode
from installation.counted import counted

_COLUMNS: Final = ("id", "process", "session", "client", "function", "key", "type", "argument", "result", "inv", "ret")
_REMEDY: Final = "; let fewer clients work on each key, or for less time"
_MORE: Final = ("phase", "error", "endpoint")
_OUTCOMES: Final = {code: name for name, code in OUTCOMES.items()}


@dataclass(frozen=True)
class ModelFinding:
    """A contradiction: the name of its anomaly, its sentence, the operations as rows of a witness, and the number of
    such cases."""

    anomaly: str
    sentence: str
    witness: tuple[dict[str, Any], ...]
    count: int = 1


@dataclass(frozen=True)
class ModelReport:
    """`size`: what was judged, as a phrase. `doubts`: why a pass cannot be concluded."""

    size: str
    findings: tuple[ModelFinding, ...] = ()
    doubts: tuple[str, ...] = ()


def functions_of(model: str) -> Collection[str]:
    """The functions that a model judges. Raises KeyError for an unknown model."""
    return model_of(model).functions.keys()


def initial_of(model: str, text: str) -> Hashable:
    """What each object has before the load. `text`: stated as EDN; empty if it is not stated. Raises KeyError for an
    unknown model, and ValueError for a value that the model does not have."""
    try:
        return model_of(model).initial(form_of(text) if text else None)
    except ForeignError as error:
        raise ValueError(f"{error}; state one value as EDN") from error


def judge_calls(
    name: str,
    calls: Operations,
    *,
    initial: str = "",
    allowed: Collection[str] = (),
    prohibited: Collection[str] = (),
) -> ModelReport:
    """Judge each key apart. `initial`: as `initial_of` takes it; `allowed`, `prohibited`: anomalies of a model of
    promises that do not fail it, or that do. Raises KeyError for an unknown model, ValueError for an unknown anomaly or
    initial value, and TablesError."""
    failing = failing_anomalies(name, allowed, prohibited)
    model, at_first, rows = model_of(name), initial_of(name, initial), dict[int, dict[str, Any]]()
    objects, doubts = dict[str, list[ModelOperation]](), list[str]()
    for part in calls.parts(*_COLUMNS, *_MORE):
        for row in part.to_pylist():
            if row["type"] == FAIL:
                continue
            operations, rows[row["id"]] = objects.setdefault(row["key"], []), row
            try:
                operations.append(_operation(model, row))
            except ValueError as error:
                doubts.append(f"{row['client']}: {row['function']}: {error}")
    size = counted(sum(map(len, objects.values())), "operation")
    size = f"{name}: {size}" + (f" on {counted(len(objects), 'key')}" if len(objects) > 1 else "")
    if doubts:  # without these operations, others may seem to contradict each other
        return ModelReport(size, doubts=(*doubts[:3], *([f"and {len(doubts) - 3:,} more"] if doubts[3:] else [])))
    findings = list[ModelFinding]()
    for key, operations in objects.items():
        place = f"{name} of {key}: " if key else f"{name}: "
        judgement = judge_object(model, at_first, operations, budget=BUDGET, failing=failing)
        doubts += [f"{place}{doubt}{_REMEDY if isinstance(model, Model) else ''}" for doubt in judgement.doubts]
        for case in judgement.contradictions:
            shown = tuple(witness_of_call(_call(rows[operation.id])) for operation in case.operations)
            findings.append(ModelFinding(case.anomaly, place + case.sentence, shown, case.count))
        if isinstance(model, Model) and not judgement.contradictions and not judgement.doubts:
            try:
                require_order(model, at_first, operations, judgement.order)
            except WrongOrderError as error:
                doubts.append(f"{place}the order that the search named is wrong: {error}")
        remarks = judgement.remarks if len(objects) == 1 else ()
        size += "".join(f"; {remark}" for remark in (*remarks, *judgement.allowed))
    return ModelReport(size, tuple(findings), tuple(doubts))


def _operation(model: Model | WorkloadPromises, row: dict[str, Any]) -> ModelOperation:
    """Raises ValueError for a function or a value that the model does not know."""
    f, is_answered = row["function"], row["type"] == OK
    if f not in model.functions:
        raise ValueError(f"the model has only the functions {', '.join(model.functions)}")
    answer = form_of_json(decode(row["result"])) if is_answered else None
    values = model.values(f, form_of_json(decode(row["argument"])), answer, is_answered=is_answered)
    return ModelOperation(row["id"], row["process"], f, *values, row["inv"], row["ret"])


def _call(row: dict[str, Any]) -> SimpleNamespace:
    values = {name: None if row[name] is None else decode(row[name]) for name in ("argument", "result")}
    ret = None if row["ret"] == INF else row["ret"]
    return SimpleNamespace(**(row | values | {"f": row["function"], "type": _OUTCOMES[row["type"]], "ret": ret}))
