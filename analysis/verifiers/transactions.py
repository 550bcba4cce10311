"""Verifies a serial order of transactions: it replays their steps, and knows nothing of dependencies.

Theory of operation. The steps of each key, in the order of the transactions, are one sequence. Each step shows the
writes before it: all of them for a list, the last one for a register. Columns are compared, so that a
million transactions take seconds.
"""

from collections.abc import Sequence

import numpy as np

from analysis.core.grouping import ranges
from analysis.core.transactions import Bools, TransactionTable
from analysis.verifiers.log import CertificateError
from history.record.schemas import FAIL, INF, OK
from history.value_runs import I64
from installation.counted import counted


def verify_serial_order(
    table: TransactionTable, order: Sequence[int] | I64, *, is_list: bool, process: bool, real_time: bool
) -> str:
    """What the order proves. Raises CertificateError unless it has each transaction of type ok once and none that
    failed, keeps the order of processes and of real time if these are asked for, and explains all answers."""
    txns = np.asarray(order, np.int64)
    rank = np.full(len(table.line), -1, np.int64)
    if len(txns) and not (txns.min() >= 0 and txns.max() < len(rank)):
        raise CertificateError("it has a transaction that the history does not have")
    rank[txns] = np.arange(len(txns))
    _refuse(table, (rank[txns] != np.arange(len(txns))), txns, "is in it twice")
    _refuse(table, (table.outcome == OK) & (rank < 0), np.arange(len(rank)), "is missing")
    _refuse(table, table.outcome[txns] == FAIL, txns, "failed")
    if real_time:
        latest = np.maximum.accumulate(table.inv[txns])
        _refuse(table, table.ret[txns[1:]] < latest[:-1], txns[1:], "returned before an earlier one was invoked")
    if process:
        by_process = txns[np.argsort(table.process[txns], kind="stable")]
        place = np.empty(len(table.line), np.int64)
        place[np.lexsort((table.inv, table.process))] = np.arange(len(table.line))  # by process, then by invocation
        is_back = place[by_process[1:]] < np.maximum.accumulate(place[by_process])[:-1]
        has_returned = table.ret[by_process[1:]] < INF
        _refuse(table, is_back & has_returned, by_process[1:], "is behind a later one of its process")
    _replay(table, rank, is_list=is_list)
    answers = int((~table.is_write & (table.outcome[table.txn] == OK)).sum())
    time_order = "real time" if real_time else "the order of each process" if process else "no order of time"
    size = f"{counted(len(txns), 'transaction')} and {counted(answers, 'answer')}"
    return f"{size} have a serial order, which keeps {time_order}"


def _refuse(table: TransactionTable, is_wrong: Bools, txns: I64, reason: str) -> None:
    if is_wrong.any():
        raise CertificateError(f"{table.name(int(txns[is_wrong][0]))} {reason}")


def _replay(table: TransactionTable, rank: I64, *, is_list: bool) -> None:
    steps = np.flatnonzero(rank[table.txn] >= 0)
    steps = steps[np.lexsort((steps, rank[table.txn[steps]], table.key[steps]))]
    is_write = table.is_write[steps]
    log = table.last[steps[is_write]]
    writes_before: I64 = np.cumsum(is_write) - is_write
    first = np.zeros(len(table.keys) + 1, np.int64)
    first[1:] = np.cumsum(np.bincount(table.key[steps[is_write]], minlength=len(table.keys)))
    start = np.full(len(table.txn), -1, np.int64)
    start[steps] = first[table.key[steps]]
    expected = np.zeros(len(table.txn), np.int64)
    expected[steps] = writes_before - start[steps]
    """The number of writes to the key before each step."""
    is_answer = (start >= 0) & ~table.is_write & (table.outcome[table.txn] == OK)
    answers = np.flatnonzero(is_answer)
    if not is_list:
        has_value = np.minimum(expected[answers], 1)
        _refuse_answer(table, answers[table.length[answers] != has_value])
        shown = answers[has_value > 0]
        _refuse_answer(table, shown[table.last[shown] != log[start[shown] + expected[shown] - 1]])
        return
    _refuse_answer(table, answers[table.length[answers] != expected[answers]])
    for number, ends, elements in table.parts():
        here = answers[np.searchsorted(answers, number) : np.searchsorted(answers, number + len(ends) - 1)]
        size = table.length[here]
        is_other = elements[ranges(ends[here - number], size)] != log[ranges(start[here], size)]
        _refuse_answer(table, np.repeat(here, size)[is_other])


def _refuse_answer(table: TransactionTable, steps: I64) -> None:
    if len(steps):
        raise CertificateError(f"it does not explain an answer of {table.name(int(table.txn[steps[0]]))}")
