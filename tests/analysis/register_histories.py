"""Small histories of one register, fixed and random, and an exhaustive checker of them."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from history.record.schemas import CAS, FAIL, INF, INFO, MISMATCH, OK, READ, WRITE
from history.record.shapes import REGISTER


@dataclass(frozen=True)
class Op:
    """One operation on one key; `value` is read or written, None is nil."""

    f: int
    inv: int
    ret: int
    value: int | None = None
    expected: int | None = None
    new: int | None = None
    type: int = OK
    error: str = ""
    client: str = "c"


def read(value: int | None, inv: int, ret: int, client: str = "reader") -> Op:
    return Op(READ, inv, ret, value, client=client)


def write(value: int, inv: int, ret: int = INF, client: str = "writer") -> Op:
    return Op(WRITE, inv, ret, value, type=INFO if ret == INF else OK, client=client)


def cas(expected: int | None, new: int, inv: int, ret: int = INF, client: str = "swapper") -> Op:
    return Op(CAS, inv, ret, None, expected, new, INFO if ret == INF else OK, client=client)


def mismatch(expected: int | None, new: int, inv: int, ret: int, client: str = "swapper") -> Op:
    return Op(CAS, inv, ret, None, expected, new, FAIL, MISMATCH, client)


def refused(op: Op, error: str = "not authorized") -> Op:
    return replace(op, type=FAIL, error=error)


def table(histories: Mapping[str, Iterable[Op]]) -> pa.Table:
    """Histories by key as `read_run` would give them."""
    rows: list[tuple[Any, ...]] = []
    for key, history in histories.items():
        for op in history:
            values = (op.value, op.expected, op.new)
            rows.append((len(rows), 0, op.client, op.f, key, op.type, op.inv, op.ret, *values, "main", op.error, ""))
    return REGISTER.table(rows)


def step(state: int | None, op: Op) -> tuple[bool, int | None]:
    """What the definition of a register says of one operation: is it legal here, and the state after it."""
    if op.f == READ:
        return state == op.value, state
    if op.f == WRITE:
        return True, op.value
    if op.type == FAIL:
        return state != op.expected, state
    return state == op.expected, op.new


def explicable(history: Sequence[Op]) -> bool:
    """Whether some order explains the history, by trying all of them."""
    ops = [op for op in history if op.type == OK or op.error == MISMATCH or (op.type == INFO and op.f != READ)]
    due = sum(1 << at for at, op in enumerate(ops) if op.type != INFO)
    tried: set[tuple[int, int | None]] = set()
    left: list[tuple[int, int | None]] = [(0, None)]
    while left:
        done, state = left.pop()
        if done & due == due:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        first = min((op.ret for at, op in enumerate(ops) if not done >> at & 1), default=INF)
        for at, op in enumerate(ops):
            if not done >> at & 1 and op.inv <= first:
                legal, after = step(state, op)
                if legal:
                    left.append((done | 1 << at, after))
    return False


def true_history(rng: random.Random, count: int, clients: int, *, swaps: bool, infos: float = 0.1) -> list[Op]:
    """What `clients` clients could have recorded of a register that works."""
    free = [0] * clients
    state: int | None = None
    past: list[int | None] = [None]
    ops: list[tuple[int, Op]] = []
    for number in range(1, count + 1):
        who = rng.randrange(clients)
        inv = free[who] + rng.randint(1, 6)
        ret = inv + rng.randint(0, 12)
        free[who] = ret
        ops.append(
            (rng.randint(inv, ret), Op(rng.choice([READ, READ, WRITE, CAS if swaps else READ]), inv, ret, number))
        )
    history = []
    for _, op in sorted(ops, key=lambda each: each[0]):
        unsure = rng.random() < infos
        number = op.value or 0
        if op.f == READ:
            history.append(replace(op, value=state))
            continue
        if op.f == WRITE:
            done = replace(op, value=number)
        else:
            expected = state if rng.random() < 0.6 else rng.choice(past)
            done = Op(CAS, op.inv, op.ret, None, expected, number)
        happens = not unsure or rng.random() < 0.5
        legal, after = step(state, done)
        if unsure:
            done = replace(done, ret=INF, type=INFO)
        elif not legal:
            done = replace(done, type=FAIL, error=MISMATCH)
        if happens and legal:
            state = after
            past.append(after)
        history.append(done)
    return history


def spoilt(rng: random.Random, history: list[Op]) -> list[Op]:
    """The same history with something changed that may, or may not, contradict the rest."""
    spoilt = list(history)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(spoilt))
        op = spoilt[at]
        values = [None, *(each.value if each.f == WRITE else each.new for each in spoilt if each.f != READ)]
        if op.f == READ:
            spoilt[at] = replace(op, value=rng.choice(values))
        elif op.type == INFO:
            spoilt[at] = replace(op, type=OK, ret=op.inv + rng.randint(0, 12))
        elif op.f == CAS and rng.random() < 0.5:
            flipped = FAIL if op.type == OK else OK
            spoilt[at] = replace(op, type=flipped, error=MISMATCH if flipped == FAIL else "")
        else:
            length = op.ret - op.inv
            start = max(0, op.inv + rng.randint(-15, 15))
            spoilt[at] = replace(op, inv=start, ret=start + length // 2)
    return spoilt
