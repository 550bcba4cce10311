"""Decides linearizability of a small log history by trying every order. The checker's twin: slow and obvious.

A record that its client library may have sent again may be appended any number of times since its invocation. Its
acknowledgement bounds the time of the copy at the acknowledged offset; without an offset it says only that one exists.
"""

from history.record.schemas import ACKS_ALL, APPEND, FAIL, INF, INFO, OK, SENT_AGAIN
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


def _again(op: Op) -> bool:
    """There may be several copies of its record."""
    return op.f == APPEND and op.error.endswith(SENT_AGAIN)


def _orderable(ops: list[Op], upper_bound: str) -> bool:
    ret = [INF if _weak(op) or (_again(op) and op.offset < 0) else op.ret for op in ops]
    longest = max((max(op.lo, op.offset + 1, *(each + 1 for each in op.offsets), 0) for op in ops), default=0)
    again = [op for op in ops if _again(op)]
    shown: dict[int, set[int]] = {}
    for op in ops:
        bound = ((op.offset, op.value),) if op.f == APPEND and not _weak(op) and op.offset >= 0 else ()
        for offset, value in (*bound, *zip(op.offsets, op.values, strict=True)):
            shown.setdefault(offset, set()).add(value)
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
        here = shown.get(len(log))
        copies = (op.value for op in again if op.inv <= first_return and (here is None or op.value in here))
        return len(log) < longest and any(search(done, (*log, value)) for value in copies)

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
