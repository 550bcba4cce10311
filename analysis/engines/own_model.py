"""Judges the operations of a workload of the user's own by a model that `check --model` knows.

A sequential model asks for an order of the operations of each key, and another function confirms the order that the
search finds. The promises of sets, queues, counters and banks need no search.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from analysis.core.model_search import WrongOrderError, require_order, search, witness
from analysis.core.models import MODELS, Model, ModelOperation
from analysis.core.register_operations import OutOfBudget
from analysis.core.registers import BUDGET
from analysis.core.workload_promises import PROMISES, WorkloadPromises, failing_anomalies
from analysis.engines.own_check import MOST_OPERATIONS, witness_of_call
from history.foreign.edn import form_of_json
from history.record.operations import Operations
from history.record.schemas import FAIL, INF, OK, OUTCOMES
from history.strict_json import decode
from installation.counted import counted

_COLUMNS: Final = ("id", "process", "session", "client", "function", "key", "type", "argument", "result", "inv", "ret")
_MORE: Final = ("phase", "error", "endpoint")
_OUTCOMES: Final = {code: name for name, code in OUTCOMES.items()}


@dataclass(frozen=True)
class ModelFinding:
    """A contradiction: its sentence, the operations as rows of a witness, and the number of such cases."""

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
    return _named(model).functions.keys()


def judge_calls(
    name: str, calls: Operations, *, allowed: Collection[str] = (), prohibited: Collection[str] = ()
) -> ModelReport:
    """Judge each key apart. `allowed`, `prohibited`: anomalies of a model of promises that do not fail it, or that do.
    Raises KeyError for an unknown model, ValueError for an unknown anomaly, and TablesError."""
    failing = failing_anomalies(name, allowed, prohibited)
    model, rows = _named(name), dict[int, dict[str, Any]]()
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
        judge = (
            _by_promises(model, operations, failing)
            if isinstance(model, WorkloadPromises)
            else _by_order(model, operations)
        )
        for result in judge:
            if isinstance(result, str):
                doubts.append(place + result)
            else:
                sentence, contradicting, count = result
                shown = tuple(witness_of_call(_call(rows[each.id])) for each in contradicting[-MOST_OPERATIONS:])
                findings.append(ModelFinding(place + sentence, shown, count))
    return ModelReport(size, tuple(findings), tuple(doubts))


def _named(name: str) -> Model | WorkloadPromises:
    return MODELS[name] if name in MODELS else PROMISES[name]


def _operation(model: Model | WorkloadPromises, row: dict[str, Any]) -> ModelOperation:
    """Raises ValueError for a function or a value that the model does not know."""
    f, is_answered = row["function"], row["type"] == OK
    if f not in model.functions:
        raise ValueError(f"the model has only the functions {', '.join(model.functions)}")
    answer = form_of_json(decode(row["result"])) if is_answered else None
    values = model.values(f, form_of_json(decode(row["argument"])), answer, is_answered=is_answered)
    return ModelOperation(row["id"], row["process"], f, *values, row["inv"], row["ret"])


_Result = str | tuple[str, list[ModelOperation], int]
"""A doubt, or a sentence with the operations that contradict each other, and the number of cases."""


def _by_order(model: Model, operations: list[ModelOperation]) -> Iterator[_Result]:
    initial = model.initial(None)
    try:
        order = search(model, initial, operations, BUDGET)
    except OutOfBudget:
        yield f"the search visited {BUDGET:,} configurations; let fewer clients work on each key, or for less time"
        return
    if order is None:
        guilty, remaining = witness(model, initial, operations)
        latest = sorted(remaining, key=lambda operation: (operation.ret, operation.inv))
        yield f"no order of {counted(len(remaining), 'operation')} explains the last answer of {guilty.f}", latest, 1
        return
    try:
        require_order(model, initial, operations, order)
    except WrongOrderError as error:
        yield f"the order that the search named is wrong: {error}"


def _by_promises(
    promises: WorkloadPromises, operations: list[ModelOperation], failing: Collection[str]
) -> Iterator[_Result]:
    report = promises.check(promises.initial(None), operations)
    for case in report.contradictions:
        if case.anomaly in failing:
            yield f"{case.anomaly}: {case.sentence}", list(case.operations), case.count
    yield from (doubt for anomaly, doubt in report.doubts if not anomaly or anomaly in failing)


def _call(row: dict[str, Any]) -> SimpleNamespace:
    values = {name: None if row[name] is None else decode(row[name]) for name in ("argument", "result")}
    ret = None if row["ret"] == INF else row["ret"]
    return SimpleNamespace(**(row | values | {"f": row["function"], "type": _OUTCOMES[row["type"]], "ret": ret}))
