"""Decides whether a history of transactions has an anomaly that a consistency model prohibits, or a serial order."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from analysis.core.consistency_models import NO_SERIAL_ORDER, PROHIBITED, SERIAL, has_process_order, has_real_time_order
from analysis.core.consistency_models import PROCESS as PROCESS_SUFFIX
from analysis.core.consistency_models import REALTIME as REALTIME_SUFFIX
from analysis.core.register_transactions import RegisterOrder, register_order
from analysis.core.transaction_graph import (
    PROCESS,
    REALTIME,
    RW,
    WW,
    Cycle,
    CycleSearch,
    Edge,
    Graph,
    dependency_graph,
    order_of_accesses,
    peeled,
)
from analysis.core.transactions import Bools, Finding, Observations, TransactionTable, VersionOrders
from history.record.schemas import OK
from installation.counted import counted

UNCOMMITTED: Final = "read-uncommitted"
READ_MODELS: Final = (UNCOMMITTED, "read-committed")
"""The models that say nothing about versions that a transaction did not read: any order of the versions that keeps the
known edges proves them."""
KEY_ORDERS: Final = ("linearizable", "sequential")
"""What a user may assume of the accesses of each register."""


MOST_NAMED: Final = 10
"""Transactions in a sentence."""


@dataclass(frozen=True)
class TransactionReport:
    """`prohibited`: the anomalies that the model prohibits; `allowed`: the others. `order`: the committed transactions
    in a serial order that explains all, if one was found. `doubts`: the reasons against a pass."""

    prohibited: tuple[Finding, ...]
    allowed: tuple[Finding, ...]
    order: tuple[int, ...] | None
    doubts: tuple[str, ...]
    unread: int
    """Acknowledged elements or values that no transaction read."""


def check_transactions(
    table: TransactionTable, model: str, names: Mapping[int, str], *, is_list: bool, key_order: str | None = None
) -> TransactionReport:
    """`key_order`: one of `KEY_ORDERS`, what is assumed of the accesses of each register; the model may say more."""
    process, real_time = has_process_order(model), has_real_time_order(model)
    observations = Observations(table, names, is_list=is_list, with_unknown=model != UNCOMMITTED)
    observations.find()
    orders = [(observations.orders(with_reads=model != UNCOMMITTED), 0)]
    if process and not is_list:
        orders.append((order_of_accesses(observations, real_time=real_time), REALTIME if real_time else PROCESS))
    if key_order is not None and not is_list:
        orders.append((order_of_accesses(observations, real_time=key_order == KEY_ORDERS[0]), 0))
        observations.doubts.extend(_contradiction(observations, orders[-1][0], key_order))
    graph = dependency_graph(observations, orders, process=process, real_time=real_time)
    order, is_missing = peeled(graph.nodes, *graph.ends())
    findings = [*observations.findings, *_cycles(observations, graph, is_missing, model)]
    prohibited = tuple(finding for finding in findings if finding.name in PROHIBITED[model])
    allowed = tuple(finding for finding in findings if finding.name not in PROHIBITED[model])
    serial: tuple[int, ...] | None = None
    if not findings and not is_missing.any() and not observations.doubts:
        if is_list:
            serial = tuple(node for node in order if node < graph.count and observations.is_committed[node])
        else:
            search = register_order(graph, observations, order)
            serial = search.order
            if search.blocked and model in SERIAL:
                suffix = REALTIME_SUFFIX if real_time else PROCESS_SUFFIX if process else ""
                prohibited = (_no_order(observations, search, NO_SERIAL_ORDER + suffix),)
    doubts = list(observations.doubts)
    if not len(observations.external):
        doubts.append("no transaction of type ok read a key before it wrote it: the history shows no state")
    elif not prohibited and not doubts and serial is None and not is_list and model not in READ_MODELS:
        doubt = "a serial order was not found either: answers do not show the whole order of the versions"
        doubts.append(f"no anomaly that {model} prohibits was found, but {doubt}")
    elif not prohibited and not doubts and serial is None and model in SERIAL:
        doubts.append("neither an anomaly nor a serial order was found")
    return TransactionReport(prohibited, allowed, serial, tuple(doubts), _unread(observations))


def _contradiction(observations: Observations, order: VersionOrders, key_order: str) -> Iterator[str]:
    """Why the registers are not as they are assumed, as a sentence."""
    for version in order.earlier[order.later >= len(observations.table.txn)][:1]:
        key, text = observations.version_key(version), observations.version_text(version)
        yield f"key {key}: its initial state was read after {text}, so that keys are not {key_order}; omit --keys"


def _no_order(observations: Observations, search: RegisterOrder, name: str) -> Finding:
    """The anomaly that no serial order exists, with the transactions at which the longest one stops."""
    shown = ", ".join(map(observations.transaction, search.blocked[:MOST_NAMED]))
    shown += ", ..." if len(search.blocked) > MOST_NAMED else ""
    sentence = (
        "no serial order explains all answers; the longest one stops before "
        f"{counted(len(search.blocked), 'transaction')} ({shown}): "
        "each reads a version that is not the current one, or overwrites one that is still read"
    )
    return Finding(name, search.blocked, sentence)


def _unread(observations: Observations) -> int:
    table = observations.table
    is_read = np.zeros(len(table.txn), np.bool_)
    is_read[observations.version[(observations.version >= 0) & (observations.version < len(table.txn))]] = True
    is_read |= observations.position >= 0
    return int((table.is_write & (table.outcome[table.txn] == OK) & ~is_read).sum())


def _cycles(observations: Observations, graph: Graph, is_missing: Bools, model: str) -> list[Finding]:
    """Cycles of dependencies; those that need an order of processes or of real time only if the model prohibits no
    other one of them."""
    if not is_missing.any():
        return []
    source, target, _, _ = graph.edges()
    is_inside = is_missing[source] & is_missing[target]
    _, is_remaining = peeled(graph.nodes, target[is_inside], source[is_inside])
    search = CycleSearch(graph, is_missing & is_remaining)
    levels = [0]
    if has_process_order(model):
        levels += [PROCESS, PROCESS | REALTIME] if has_real_time_order(model) else [PROCESS]
    findings: dict[str, Finding] = {}
    for level in levels:
        for cycle, count in search.cycles(level):
            transactions = tuple(edge.source for edge in cycle.edges)
            finding = Finding(cycle.name, transactions, _sentence(observations, cycle, count), count)
            findings.setdefault(cycle.name, finding)
        if findings.keys() & PROHIBITED[model]:
            break
    return list(findings.values())


def _sentence(observations: Observations, cycle: Cycle, count: int) -> str:
    """The cycle in words: each transaction, and why the next one must follow."""
    order = list(dict.fromkeys(edge.source for edge in cycle.edges))
    names = {number: f"T{place}" for place, number in enumerate(order, 1)}
    named = ", ".join(f"{name} is {observations.transaction(number)}" for number, name in names.items())
    clauses = [_clause(observations, edge, names[edge.source], names[edge.target]) for edge in cycle.edges]
    group_count = f" ({counted(count, 'group')} of transactions have such cycles)" if count > 1 else ""
    return f"{'; '.join(clauses)}: each must follow the one before, in a circle{group_count}. {named}"


def _clause(observations: Observations, edge: Edge, source: str, target: str) -> str:
    if edge.version < 0:
        if edge.kind == PROCESS:
            return f"{source} was before {target} in its process"
        return f"{source} returned before {target} was invoked"
    key, version = observations.version_key(edge.version), observations.version_text(edge.version)
    if edge.kind & RW:
        return f"{source} read {version} of key {key}, and {target} wrote a later version"
    if edge.kind & WW:
        return f"{source} wrote {version} to key {key}, and {target} wrote a later version"
    return f"{source} wrote {version} to key {key}, and {target} read it"
