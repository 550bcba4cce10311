"""Decides linearizability of a small log history by trying every order. The checker's twin: slow and obvious."""

from __future__ import annotations

from history.schemas import ACKS_ALL, APPEND, FAIL, INF, INFO, OK
from tests.analysis.log_histories import Op

Log = tuple[int, ...]


def allowed(ops: list[Op], upper_bound: str = "strict") -> bool:
    """Whether some order of the operations, each within its interval, explains all that was seen."""
    if upper_bound == "session" and not _sessions_hold(ops):
        return False
    return _orderable([op for op in ops if not (op.f == APPEND and op.type == FAIL)], upper_bound)


def _weak(op: Op) -> bool:
    """May have happened, or never: a timeout, or an acknowledgement that does not promise durability."""
    return op.f == APPEND and (op.type == INFO or op.acks != ACKS_ALL)


def _orderable(ops: list[Op], upper_bound: str) -> bool:
    ret = [INF if _weak(op) else op.ret for op in ops]
    musts = sum(1 << i for i, op in enumerate(ops) if not _weak(op))
    tried: set[tuple[int, Log]] = set()

    def search(done: int, log: Log) -> bool:
        if done & musts == musts:
            return True
        if (done, log) in tried:
            return False
        tried.add((done, log))
        first_return = min(ret[i] for i in range(len(ops)) if not done >> i & 1)
        for i, op in enumerate(ops):
            if done >> i & 1 or op.inv > first_return:
                continue
            after = _applied(op, log, upper_bound)
            if after is not None and search(done | 1 << i, after):
                return True
        return False

    return search(0, ())


def _applied(op: Op, log: Log, upper_bound: str) -> Log | None:
    """The log after the operation, or None when the operation cannot happen on this log."""
    if op.f == APPEND:
        bound = not _weak(op) and op.offset >= 0
        return None if bound and op.offset != len(log) else (*log, op.value)
    n = len(op.values)
    if op.offsets != tuple(range(op.offset, op.offset + n)) and n:
        return None
    if n and log[op.offset : op.offset + n] != op.values:
        return None
    binding = op.hi >= 0 and (upper_bound == "strict" or op.final)
    contradicts_itself = op.hi >= 0 and op.lo > op.hi and (upper_bound == "session" or binding)
    if len(log) < op.lo or (binding and len(log) > op.hi) or contradicts_itself:
        return None
    return log


def _sessions_hold(ops: list[Op]) -> bool:
    """Whether each session only saw logs at least as long as those that it had seen or written before."""
    for before in ops:
        if before.type != OK or (before.f == APPEND and before.acks != ACKS_ALL):
            continue
        shown = before.offset + 1 if before.f == APPEND else max(before.lo, *(each + 1 for each in before.offsets), -1)
        for after in ops:
            same = (after.process, after.session) == (before.process, before.session)
            if same and before.ret < after.inv and 0 <= after.hi < shown and not after.final:
                return False
    return True
