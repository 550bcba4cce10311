"""Judges the operations of a workload of the user's own by a model that `check --model` knows.

A sequential model asks for an order of the operations of each key, and another function confirms the order that the
search finds. The promises of sets, queues, counters and banks need no search. Transactions are judged together, as
`check` judges those of a file.
"""

import tempfile
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from analysis.core.consistency_models import STRICT_SERIALIZABLE
from analysis.core.model_search import WrongOrderError, require_order
from analysis.core.models import Model, ModelOperation
from analysis.core.object_judgement import judge_object, model_of
from analysis.core.registers import BUDGET
from analysis.core.workload_promises import WorkloadPromises, failing_anomalies
from analysis.engines.own_check import witness_of_call
from analysis.foreign.transaction_judgement import judge_transactions
from history.foreign.edn import form_of, form_of_json
from history.foreign.events import ForeignOperation
from history.foreign.history import ForeignError
from history.foreign.jepsen_events import AS_WRITTEN, with_named_steps
from history.foreign.kinds import TRANSACTION_NAMES
from history.foreign.transaction_rows import TRANSACTIONS_OF, written_transactions
from history.record.operations import Operations
from history.record.schemas import FAIL, INF, INFO, OK, OUTCOMES
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
    return TRANSACTIONS_OF[model].keys() if model in TRANSACTION_NAMES else model_of(model).functions.keys()


def initial_of(model: str, text: str) -> Hashable:
    """What each object has before the load. `text`: stated as EDN; empty if it is not stated. Raises KeyError for an
    unknown model, and ValueError for a value that the model does not have."""
    if model in TRANSACTION_NAMES:
        if text:
            raise ValueError(f"{text}: every key of the model {model} is empty at first; leave it out")
        return None
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
    consistency: str = "",
) -> ModelReport:
    """Judge each key apart. `initial`: as `initial_of` takes it; `allowed`, `prohibited`: anomalies of a model of
    promises that do not fail it, or that do; `consistency`: what transactions must obey. Raises KeyError for an unknown
    model, ValueError for an unknown anomaly or initial value, and TablesError."""
    if name in TRANSACTION_NAMES:
        return _judge_transactions(name, calls, consistency or STRICT_SERIALIZABLE)
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
    answer = _form(row["result"], f) if is_answered else None
    values = model.values(f, _form(row["argument"], f), answer, is_answered=is_answered)
    return ModelOperation(row["id"], row["process"], f, *values, row["inv"], row["ret"])


def _judge_transactions(name: str, calls: Operations, consistency: str) -> ModelReport:
    """Numbers the transactions in the order of their invocations, from 1 on."""
    rows = sorted((row for part in calls.parts(*_COLUMNS, *_MORE) for row in part.to_pylist()), key=itemgetter("inv"))
    size = f"{name}: {counted(len(rows), 'transaction')}"
    if strange := next((row for row in rows if row["function"] not in TRANSACTIONS_OF[name]), None):
        functions = ", ".join(TRANSACTIONS_OF[name])
        doubt = f"{strange['client']}: {strange['function']}: the model has only the functions {functions}"
        return ModelReport(size, doubts=(doubt,))
    if not rows:
        return ModelReport(size, doubts=(f"{name}: no transaction was recorded",))
    try:
        with tempfile.TemporaryDirectory() as directory:
            history = written_transactions(Path("transaction"), Path(directory), name, _transactions(rows, name))
            judgement = judge_transactions(history, consistency=consistency, title="transaction")
    except ForeignError as error:
        return ModelReport(size, doubts=(f"{name}: {error}".removesuffix(f"; {AS_WRITTEN}"),))
    findings = []
    for anomaly in judgement.anomalies:
        shown = tuple(
            witness_of_call(_call(rows[row["line"] - 1])) | {"text": f"transaction {row['line']}: {row['text']}"}
            for row in anomaly.witness
        )
        findings.append(ModelFinding(anomaly.name, f"{name}: {anomaly.sentence}", shown, anomaly.count))
    proof = f"; {judgement.certified}" if judgement.certified else ""
    doubts = tuple(f"{name}: {doubt}" for doubt in judgement.doubts)
    return ModelReport(f"{name}: {judgement.sentence}{proof}", tuple(findings), doubts)


def _transactions(rows: Sequence[dict[str, Any]], name: str) -> Iterator[ForeignOperation]:
    """The rows as operations of a file, with their numbers as lines. `name`: of the model."""
    for line, row in enumerate(rows, 1):
        outcome = row["type"]
        is_answered, ret = outcome == OK, INF if outcome == INFO else row["ret"]
        steps, answered_steps = (
            None if text is None else _form(text, row["function"], name)
            for text in (row["argument"], row["result"] if is_answered else None)
        )
        completed_in = line if is_answered else 0
        identity = line, completed_in, row["process"], row["function"], outcome
        yield ForeignOperation(*identity, row["inv"], ret, ret, steps, answered_steps, row["error"] or "")


def _form(text: str, f: str, model: str = "") -> Any:
    return with_named_steps(form_of_json(decode(text)), f, model)


def _call(row: dict[str, Any]) -> SimpleNamespace:
    values = {name: None if row[name] is None else decode(row[name]) for name in ("argument", "result")}
    ret = None if row["ret"] == INF else row["ret"]
    return SimpleNamespace(**(row | values | {"f": row["function"], "type": _OUTCOMES[row["type"]], "ret": ret}))
