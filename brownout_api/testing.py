"""Tests of a user's own workloads, clients, checkers and faults, without a system: for pytest, or any other way to run
a test. Each function refuses what a campaign would refuse, so a test shows it first.

    from brownout_api import RunHistory, TargetNode, testing

    history = testing.play(Bank(accounts=2), InMemoryBank())
    assert not testing.contradictions(Balance(), history)
    assert testing.evidence_of(FlipBit(), TargetNode.of(tmp_path))
"""

import inspect
import json
from collections.abc import Collection
from random import Random
from typing import Any

from analysis.history_checker import BrokenPromise, HistoryChecker, RunHistory, contradictions_of, declaration_problem
from nemeses.own_kind import FaultKind, TargetNode, fault_problem
from workloads.api import Client, Refused
from workloads.contract import json_text
from workloads.loaded_workload import DrawnOperations, parameters_of
from workloads.own_workload import Operation, OwnWorkload

__all__ = ["contradictions", "evidence_of", "play"]


def play(workload: OwnWorkload, client: Client, *, seed: int = 1, count: int = 100) -> RunHistory:
    """The history of one client that invokes the first `count` operations of a workload, and at most as many of its
    final read.
    `client` needs no system: a class with the same methods that keeps the data in memory will do. Outcomes are those of
    a run: what returns is `ok`, `Refused` is `fail`, another exception is `fail` for a query and otherwise `info`. A
    final operation is invoked once. Raises `OwnClassError` for an operation that a run would refuse, with its line, and
    ValueError for a result that is not a JSON value."""
    workload.client = workload.client or "client-1"  # type: ignore[misc]  # of this object
    file, rows = inspect.getfile(type(workload)), list[dict[str, Any]]()
    load = DrawnOperations(file, workload.operations, lambda: workload.operations(Random(seed)), type(client))
    final = DrawnOperations(file, workload.final, workload.final, type(client))
    for phase, drawn in (("main", load), ("final", final)):
        result = None
        while drawn.count < count and (operation := drawn.next(result)) is not None:
            row = _outcome(client, operation, workload.queries)
            result = row.get("result")
            rows.append({**row, "client": workload.client, "phase": phase})
    values = {name: getattr(workload, name) for name in parameters_of(type(workload))}
    return RunHistory.of(*rows, workload=values)


def _outcome(client: Client, operation: Operation, queries: Collection[str]) -> dict[str, Any]:
    """An operation with its outcome, as `RunHistory.of` takes it."""
    row = {"f": operation.function, "key": operation.key, "argument": operation.argument}
    try:
        result = getattr(client, operation.function)(operation)
    except Exception as error:
        is_without_effect = isinstance(error, Refused) or operation.function in queries
        return {**row, "type": "fail" if is_without_effect else "info", "error": str(error)}
    return {**row, "result": json.loads(json_text(result))}


def contradictions(checker: HistoryChecker, history: RunHistory) -> list[BrokenPromise]:
    """What the checker finds in a history of `play` or `RunHistory.of`; each with its `name`, `sentence` and
    `operations`. Raises TypeError for a wrong declaration of the class, and for an anomaly that it does not
    declare."""
    if problem := declaration_problem(type(checker)):
        raise TypeError(f"{type(checker).__name__}.{problem}")
    return list(contradictions_of(checker, history))


def evidence_of(fault: FaultKind, node: TargetNode) -> str:
    """The evidence of a fault that is injected into a healthy node and healed again. Raises TypeError for a wrong
    declaration of the class, and AssertionError if the evidence does not show the fault exactly while it is in
    force."""
    if problem := fault_problem(type(fault), ()):
        raise TypeError(f"{type(fault).__name__}.{problem}")
    fault.heal(node)
    assert not (text := fault.evidence(node)), f"evidence() shows the fault before inject(): {text}"
    fault.inject(node)
    evidence = fault.evidence(node)
    assert evidence, "evidence() shows nothing of the fault after inject()"
    fault.heal(node)
    assert not (text := fault.evidence(node)), f"after heal() there still is evidence: {text}"
    return evidence
