"""Small histories for the tests of the log checker: written by hand, or random."""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from history.record.operation_tables import remove_tables, write_index, write_operations
from history.record.schemas import ACKS_ALL, APPEND, END, FAIL, INF, INFO, OK, OPERATIONS, READ, SENT_AGAIN
from history.record.shapes import LOG
from history.record.values import encode_value


@dataclass(frozen=True)
class Op:
    """One operation; every value is its own producer's, so that no order among producers' sequences is implied."""

    f: int
    inv: int
    ret: int
    type: int = OK
    process: int = 0
    value: int = -1
    offset: int = -1
    values: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    lo: int = -1
    hi: int = -1
    acks: int = ACKS_ALL
    final: bool = False
    session: int = 1
    error: str = ""


def v(name: int) -> int:
    return encode_value(1, name, 0)


def ok(name: int, inv: int, ret: int, offset: int, *, acks: int = ACKS_ALL, process: int = 0) -> Op:
    return Op(APPEND, inv, ret, value=v(name), offset=offset, acks=acks, process=process)


def fail(name: int, inv: int, ret: int) -> Op:
    return Op(APPEND, inv, ret, FAIL, value=v(name))


def info(name: int, inv: int) -> Op:
    return Op(APPEND, inv, INF, INFO, value=v(name))


def read(
    start: int, names: list[int], inv: int, ret: int, *, hi: int = -1, process: int = 1, final: bool = False
) -> Op:
    offsets = tuple(range(start, start + len(names)))
    lo = max(start + len(names) if names else -1, hi)
    values = tuple(v(name) for name in names)
    return Op(READ, inv, ret, OK, process, -1, start, values, offsets, lo, hi, final=final)


def empty(start: int, inv: int, ret: int, *, process: int = 1) -> Op:
    """A strict read that returned no record at `start`: the log ends there or before."""
    return Op(READ, inv, ret, OK, process, offset=start, hi=start)


def end(length: int, inv: int, ret: int, *, process: int = 2, final: bool = False) -> Op:
    return Op(END, inv, ret, OK, process, lo=length, hi=length, final=final)


def table(*histories: list[Op], topic: str = "log") -> pa.Table:
    """One partition per history."""
    rows: list[dict[str, Any]] = []
    for partition, operations in enumerate(histories):
        for op in operations:
            names = ("f", "inv", "ret", "type", "process", "session", "value", "offset")
            fields = {name: getattr(op, name) for name in names}
            fields |= {"lo": op.lo, "hi": op.hi, "acks": op.acks, "offsets": op.offsets, "values": op.values}
            fields |= {"topic": topic, "partition": partition, "client": f"client-{op.process}", "error": op.error}
            rows.append({**fields, "phase": "final" if op.final else "main"})
    columns = {each.name: [row[each.name] for row in rows] for each in OPERATIONS}
    arrays = [
        pa.array(values, pa.string()).dictionary_encode()
        if pa.types.is_dictionary(OPERATIONS.field(name).type)
        else pa.array(values, OPERATIONS.field(name).type)
        for name, values in columns.items()
    ]
    return pa.Table.from_arrays(arrays, schema=OPERATIONS)


def stored(run: Path, operations: pa.Table, rows_per_piece: int = 1 << 20) -> Path:
    """The operations as the tables of a run, in pieces of `rows_per_piece` rows. Returns its `tables/`."""
    tables = run / "tables"
    remove_tables(LOG, tables)
    groups = []
    for number, start in enumerate(range(0, operations.num_rows, rows_per_piece)):
        groups += write_operations(LOG, operations.slice(start, rows_per_piece), tables, f"client-1-{number}")
    write_index(LOG, groups, tables)
    return tables


def again(append: Op) -> Op:
    """An append whose record its client library may have sent more than once."""
    return replace(append, error=f"NOT_ENOUGH_REPLICAS; {SENT_AGAIN}" if append.type == INFO else SENT_AGAIN)


@dataclass
class Simulated:
    """A log that clients use one moment after another; each operation's interval surrounds its moment. `resends`: how
    probable it is that a client library sends a record again, before or after the attempt that it reports."""

    rng: random.Random
    resends: float = 0.0
    log: list[int] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    names: int = 0
    late: list[int] = field(default_factory=list)

    def interval(self, moment: int) -> tuple[int, int]:
        width = self.rng.choice([2, 5, 12, 30])
        return moment - self.rng.randint(0, width), moment + self.rng.randint(0, width)

    def append(self, moment: int) -> None:
        inv, ret = self.interval(moment)
        self.names += 1
        kind = self.rng.choices(["ok", "fail", "info", "acks1", "no offset"], [12, 1, 4, 2, 1])[0]
        resent = self.resends > 0 and self.rng.random() < self.resends
        if resent:
            copies = [self.names] * self.rng.choice([0, 1, 1, 2])
            (self.log if self.rng.random() < 0.5 else self.late).extend(copies)
        elif self.late:
            self.log.append(self.late.pop())
        op = ok(self.names, inv, ret, len(self.log), process=self.rng.randrange(3))
        stored = kind in ("ok", "no offset") or (kind != "fail" and self.rng.random() < 0.6)
        if kind == "fail":
            op = fail(self.names, inv, ret)
        elif kind == "info":
            op = info(self.names, inv)
        elif kind == "acks1":
            op = replace(op, acks=1)
        elif kind == "no offset":
            op = replace(op, offset=-1)
        if stored:
            self.log.append(self.names)
        self.ops.append(again(op) if resent and kind != "fail" else op)

    def read(self, moment: int) -> None:
        inv, ret = self.interval(moment)
        length, process = len(self.log), self.rng.randrange(3)
        start = self.rng.randint(0, length)
        if start == length and self.rng.random() < 0.5:
            self.ops.append(empty(start, inv, ret, process=process))
            return
        names = self.log[start : start + self.rng.randint(0 if self.rng.random() < 0.2 else 1, 4)]
        hi = length if self.rng.random() < 0.5 else -1
        self.ops.append(read(start, names, inv, ret, hi=hi, process=process))

    def finish(self, moment: int) -> None:
        """A complete final read."""
        self.ops.append(end(len(self.log), moment, moment + 5, final=True))
        cut = self.rng.randint(0, len(self.log))
        self.ops.append(read(0, self.log[:cut], moment + 10, moment + 20, process=3, final=True))
        self.ops.append(read(cut, self.log[cut:], moment + 10, moment + 20, process=3, final=True))


def random_history(rng: random.Random, *, resends: float = 0.0) -> list[Op]:
    """A few operations on one log, more often than not with something wrong. `resends`: as in `Simulated`."""
    log = Simulated(rng, resends)
    moment = 100
    for _ in range(rng.randint(3, 8)):
        moment += 10
        kind = rng.random()
        if kind < 0.5:
            log.append(moment)
        elif kind < 0.85:
            log.read(moment)
        else:
            log.ops.append(end(len(log.log), *log.interval(moment), process=rng.randrange(3)))
    if rng.random() < 0.35:
        log.finish(moment + rng.choice([0, 20, 100]))
    ops = in_sessions(log.ops, rng)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at = rng.randrange(len(ops))
        ops[at] = damaged(ops[at], rng, log.names)
    return with_distinct_times(ops)


def weak_history(rng: random.Random) -> list[Op]:
    """A random history in which most appends were acknowledged by the leader alone."""
    return [
        replace(op, acks=1) if op.f == APPEND and op.type == OK and op.offset >= 0 and rng.random() < 0.8 else op
        for op in random_history(rng)
    ]


def in_sessions(ops: list[Op], rng: random.Random) -> list[Op]:
    """Some clients reconnect in the middle of the history."""
    if rng.random() < 0.6:
        return ops
    times = {process: rng.randint(100, 200) for process in range(3)}
    return [replace(op, session=1 + (op.inv > times.get(op.process, INF))) for op in ops]


def damaged(op: Op, rng: random.Random, names: int) -> Op:
    """The operation with something about it changed."""
    shift = rng.randint(-30, 30)
    op = replace(op, inv=op.inv + shift, ret=op.ret if op.ret >= INF else op.ret + shift)
    change = rng.random()
    if op.f == APPEND and op.type == OK:
        if change < 0.3:
            return replace(op, offset=max(0, op.offset + rng.choice([-1, 1])))
        if change < 0.4:
            return replace(op, type=FAIL, offset=-1)
        if change < 0.6:
            return replace(op, type=INFO, offset=-1, ret=INF)
        if change < 0.7:
            return replace(op, acks=1)
    elif op.f == READ and op.values:
        values = list(op.values)
        if change < 0.2:
            rng.shuffle(values)
        elif change < 0.4:
            values[rng.randrange(len(values))] = v(rng.randint(1, max(1, names)))
        elif change < 0.5 and len(values) > 1:
            removed = rng.randrange(len(values))
            kept = tuple(offset for i, offset in enumerate(op.offsets) if i != removed)
            lo = max(kept[-1] + 1, op.hi)
            return replace(op, values=tuple(values[:removed] + values[removed + 1 :]), offsets=kept, lo=lo)
        elif change < 0.55:
            return replace(op, offset=max(0, op.offset + rng.choice([-1, 1])))  # the answer starts elsewhere
        elif change < 0.65 and op.hi >= 0:
            hi = max(0, op.hi + rng.choice([-1, 1]))
            return replace(op, hi=hi, lo=max(hi, op.offsets[-1] + 1))
        return replace(op, values=tuple(values))
    elif op.f == READ and op.hi >= 0 and change < 0.4:
        return replace(op, hi=max(0, op.hi + rng.choice([-1, 1])))  # a poll that found another end
    elif op.f == END and change < 0.5:
        length = max(0, op.lo + rng.choice([-1, 1]))
        return replace(op, lo=length, hi=length)
    return op


def with_distinct_times(ops: list[Op]) -> list[Op]:
    """The same order of events, each at a time of its own: 1, 2, 3, ..."""
    events = sorted([(op.inv, 0, i) for i, op in enumerate(ops)] + [(op.ret, 1, i) for i, op in enumerate(ops)])
    times = {(i, edge): t + 1 for t, (_, edge, i) in enumerate(events)}
    return [replace(op, inv=times[i, 0], ret=op.ret if op.ret >= INF else times[i, 1]) for i, op in enumerate(ops)]
