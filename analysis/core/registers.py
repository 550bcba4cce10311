"""The register checker: decides whether one atomic register per key could have given all recorded answers.

Keys are independent (locality), so each is checked alone. A value that was read but never written is a phantom,
reported before any search. A key with only reads and writes of distinct values is decided by its zones, in O(n log n).
Compare-and-sets need a search within a budget, which ends in "undecided", never in a guess. Both return the order that
explains the history; `shrink` finds the few operations that contradict each other.

Registers with reads and writes of distinct values, decided by zones (Gibbons and Korach, 1997), in O(n log n).

The operations on one value form a cluster: its write and the reads that saw it. Let low be the earliest return and high
the latest invocation in it. In any explanation the register holds the value during one stretch of time that starts no
later than low and ends no earlier than high. So a cluster must precede another if its low is before the other's high.
If two clusters must precede each other, no order exists. Otherwise ordering clusters by low + high respects every such
pair, and within a cluster the write comes first, then the reads by invocation.

With compare-and-sets, which belong to the cluster of the expected value and to that of the written one, the condition
is necessary but no longer sufficient: a violation needs no search.

The general search for an order that explains a register's operations, compare-and-sets included.

After Wing and Gong (1993) and Lowe (2017), but a configuration is not the set of all operations that took effect. It is
(next return that is not yet satisfied, which of the operations open then took effect, state). Its size follows the
concurrency, not the length of the history. What keeps the search narrow, and why each is sound:

- A legal read or mismatch takes effect at once: it changes nothing, and later it may be illegal.
- An operation that may have happened is never forced. Among those with the same effect the earliest comes first; a
  configuration that used a subset of another's, all else equal, has every future that the other has.
- A value that no operation saw or expected is like any other such value. Unless a mismatch needs it to be visible, its
  write can take effect just before the next write that does, so all open ones do so together.
- A value written once never returns. So the state leaves it only when every operation that saw it was open by then, and
  only by the one compare-and-set that took it if there is one. The state does not enter it after an operation must have
  seen it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from analysis.core.anomaly import Anomaly
from analysis.core.register_operations import (
    OutOfBudget,
    RegisterOperation,
    by_key,
    counts,
    is_pure,
    is_sure,
    seen_values,
    written,
)
from analysis.core.register_witness import contradiction, phantom, shrink
from history.record.schemas import CAS, FAIL, INF, INFO, OK, PHASE_FINAL, READ, WRITE
from installation.counted import counted

_NIL: Final = 0
_UNSEEN: Final = 1


def search(operations: Sequence[RegisterOperation], budget: int) -> list[RegisterOperation] | None:
    """An order of the operations that explains them; None if no order does.

    `operations` are those that happened, that may have happened (no reads among them), and mismatches. Raises
    OutOfBudget after `budget` configurations.
    """
    return _Search(_Problem(_useful(operations)), budget).run()


def _useful(operations: Sequence[RegisterOperation]) -> list[RegisterOperation]:
    """The operations without those that may have happened and that no other operation depends on."""
    remaining = sorted(operations, key=lambda operation: (operation.inv, operation.id))
    while not any(is_sure(operation) for operation in remaining):
        observed_values = seen_values(remaining)
        useful = [
            operation for operation in remaining if operation.type != INFO or written(operation) in observed_values
        ]
        if len(useful) == len(remaining):
            break
        remaining = useful
    return remaining


class _Problem:
    """A key's operations as numbers: the order of their returns, the open ones at each return, and the states they
    need."""

    def __init__(self, operations: list[RegisterOperation]) -> None:
        self.operations = operations
        observed_values = seen_values(operations)
        codes: dict[int | None, int] = {None: _NIL}
        for value in observed_values:
            codes.setdefault(value, len(codes) + 1)
        self.writes = [codes.get(written(operation), _UNSEEN) for operation in operations]
        self.wants = [-1 if operation.f == WRITE else codes[_awaited(operation)] for operation in operations]
        self.hides_unseen = not any(is_sure(operation) for operation in operations)
        self.returns: list[int] = []
        self.bit = [0] * len(operations)
        self.returned = [0] * len(operations)  # the index in `returns`
        self.since = [0] * len(operations)  # how many returns were before its invocation
        self.pure: list[list[int]] = []
        self.changing: list[list[int]] = []
        self._lay_out()
        self.infos = [at for at, operation in enumerate(operations) if operation.type == INFO]
        self._bounds(len(codes) + 1)
        self._link_infos()

    def _lay_out(self) -> None:
        """Gives each returning operation a slot while it is open, and notes the open operations at each return."""
        events = []
        for at, operation in enumerate(self.operations):
            events.append((operation.inv, 0, at))
            if operation.type != INFO:
                events.append((operation.ret, 1, at))
        free: list[int] = []
        slots = 0
        open_now: dict[int, None] = {}
        for _, is_return, at in sorted(events):
            self_open = self.operations[at].type != INFO
            if is_return:
                self.returned[at] = len(self.returns)
                self.returns.append(at)
                self.pure.append([position for position in open_now if is_pure(self.operations[position])])
                self.changing.append([position for position in open_now if not is_pure(self.operations[position])])
                del open_now[at]
                free.append(self.bit[at])
                continue
            self.since[at] = len(self.returns)
            if self_open:
                if not free:
                    free.append(1 << slots)
                    slots += 1
                self.bit[at] = free.pop()
                open_now[at] = None

    def _bounds(self, states: int) -> None:
        """For each state that cannot return: from which return on and by which operation it may be left, and the last
        return before which it may be entered."""
        end = len(self.returns)
        self.leave_from = [0] * states
        self.taker = [-1] * states
        self.enter_until = [end] * states
        self.contradicted = False
        writers = [0] * states
        self.writer = [-1] * states
        for at, operation in enumerate(self.operations):
            if not is_pure(operation):
                writers[self.writes[at]] += 1
                self.writer[self.writes[at]] = at
        for at, operation in enumerate(self.operations):
            state = self.wants[at]
            if operation.type != OK or state < 0 or writers[state] > 1:
                continue
            self.enter_until[state] = min(self.enter_until[state], self.returned[at])
            if operation.f == CAS:
                self.contradicted |= self.taker[state] >= 0
                self.taker[state] = at
            else:
                self.leave_from[state] = max(self.leave_from[state], self.since[at])

    def _link_infos(self) -> None:
        """Gives each operation that may have happened its own bit, and the previous one with the same effect."""
        self.same_before = [0] * len(self.operations)
        last_bits: dict[tuple[int, int, int], int] = {}
        for number, at in enumerate(self.infos):
            effect = (self.operations[at].f, self.wants[at], self.writes[at])
            self.same_before[at] = last_bits.get(effect, 0)
            self.bit[at] = last_bits[effect] = 1 << number


def _awaited(operation: RegisterOperation) -> int | None:
    return operation.expected if operation.f == CAS else operation.value


@dataclass
class _Frame:
    """A configuration on the current path: `mark` is how long the order was before the step that led to it."""

    index: int
    mask: int
    used: int
    state: int
    steps: Iterator[int]
    mark: int


@dataclass
class _Search:
    problem: _Problem
    budget: int
    visited: int = 0
    order: list[int] = field(default_factory=list)
    known: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    absorbed: dict[tuple[int, int], tuple[int, list[int]]] = field(default_factory=dict)

    def run(self) -> list[RegisterOperation] | None:
        problem, end = self.problem, len(self.problem.returns)
        if problem.contradicted:
            return None
        index, mask = self._advance(0, 0, _NIL)
        path = [self._frame(index, mask, 0, _NIL, 0)] if index < end else []
        while path:
            frame = path[-1]
            at = next(frame.steps, -1)
            if at < 0:
                path.pop()
                del self.order[frame.mark :]
                continue
            mark = len(self.order)
            reached = self._step(frame, at)
            if reached is not None:
                index, mask, used, state = reached
                if index == end:
                    break
                if self._is_new(index, mask, used, state):
                    path.append(self._frame(index, mask, used, state, mark))
                    continue
            del self.order[mark:]
        return [problem.operations[at] for at in self.order] if index == end else None

    def _frame(self, index: int, mask: int, used: int, state: int, mark: int) -> _Frame:
        return _Frame(index, mask, used, state, iter(self._steps(index, mask, used, state)), mark)

    def _steps(self, index: int, mask: int, used: int, state: int) -> list[int]:
        """The operations that may take effect next, the most likely first."""
        problem = self.problem
        if index < problem.leave_from[state]:
            return []
        taker = problem.taker[state]
        if taker >= 0:
            return [taker] if taker in problem.changing[index] and not mask & problem.bit[taker] else []
        due = problem.returns[index]
        likely = due if problem.wants[due] < 0 else problem.writer[problem.wants[due]]
        steps = []
        unseen = False
        for at in problem.changing[index]:
            if mask & problem.bit[at] or not self._may(at, index, state):
                continue
            if problem.hides_unseen and problem.writes[at] == _UNSEEN and problem.wants[at] < 0:
                # All of them take effect together; any of them represents the step.
                if unseen:
                    continue
                unseen = True
            steps.append(at)
        for at in problem.infos:
            if problem.since[at] > index:
                break
            previous_bit = problem.same_before[at]
            if not used & problem.bit[at] and (not previous_bit or used & previous_bit) and self._may(at, index, state):
                steps.append(at)
        return sorted(steps, key=lambda at: at not in (due, likely))

    def _may(self, at: int, index: int, state: int) -> bool:
        problem = self.problem
        wants, into = problem.wants[at], problem.writes[at]
        return (wants < 0 or wants == state) and index <= problem.enter_until[into]

    def _step(self, frame: _Frame, at: int) -> tuple[int, int, int, int] | None:
        """The configuration after an operation took effect."""
        problem = self.problem
        mask, used = frame.mask, frame.used
        if problem.hides_unseen and problem.wants[at] < 0:
            for position in problem.changing[frame.index]:
                hidden = problem.writes[position] == _UNSEEN and problem.wants[position] < 0
                if hidden and position != at and not mask & problem.bit[position]:
                    mask |= problem.bit[position]
                    self.order.append(position)
        if problem.operations[at].type == INFO:
            used |= problem.bit[at]
        else:
            mask |= problem.bit[at]
        self.order.append(at)
        state = problem.writes[at]
        index, mask = self._advance(frame.index, mask, state)
        return index, mask, used, state

    def _advance(self, index: int, mask: int, state: int) -> tuple[int, int]:
        """Applies every legal read and mismatch, and passes the returns that are satisfied."""
        problem = self.problem
        while index < len(problem.returns):
            bits, legal = self._legal(index, state)
            if bits & ~mask:
                self.order += [at for at in legal if not mask & problem.bit[at]]
                mask |= bits
            due = problem.bit[problem.returns[index]]
            if not mask & due:
                break
            mask ^= due
            index += 1
        return index, mask

    def _legal(self, index: int, state: int) -> tuple[int, list[int]]:
        entry = self.absorbed.get((index, state))
        if entry is None:
            problem = self.problem
            legal = [
                at for at in problem.pure[index] if (problem.wants[at] != state) == is_sure(problem.operations[at])
            ]
            bits = 0
            for at in legal:
                bits |= problem.bit[at]
            entry = self.absorbed[index, state] = (bits, legal)
        return entry

    def _is_new(self, index: int, mask: int, used: int, state: int) -> bool:
        """Whether no visited configuration has every future of this one. Raises OutOfBudget."""
        used_sets = self.known.setdefault((index, mask, state), [])
        if any(used_set & used == used_set for used_set in used_sets):
            return False
        used_sets[:] = [used_set for used_set in used_sets if used_set & used != used]
        used_sets.append(used)
        self.visited += 1
        if self.visited > self.budget:
            raise OutOfBudget
        return True


def has_zones(operations: Sequence[RegisterOperation]) -> bool:
    """Whether zones decide these operations: only reads and writes, no value written twice."""
    if any(operation.f not in (READ, WRITE) for operation in operations):
        return False
    values = [operation.value for operation in operations if operation.f == WRITE]
    return len(set(values)) == len(values) and None not in values


def by_zones(operations: Sequence[RegisterOperation]) -> list[RegisterOperation] | None:
    """The operations in an order that explains them; None if no order does.

    Writes that may have happened and whose value was not read are left out, as the definition allows. Every value read
    must be nil or written by one of the operations.
    """
    clusters: dict[int | None, list[RegisterOperation]] = {}
    for operation in sorted(operations, key=lambda operation: (operation.f != WRITE, operation.inv, operation.id)):
        clusters.setdefault(operation.value, []).append(operation)
    keyed = []
    for value, cluster in clusters.items():
        write = cluster[0]
        if value is None:
            low = -INF
        elif write.f != WRITE:
            return None
        elif len(cluster) == 1 and write.type != OK:
            continue
        else:
            low = min(operation.ret for operation in cluster)
        keyed.append((low + max(operation.inv for operation in cluster), cluster))
    keyed.sort(key=lambda pair: pair[0])
    order = [operation for _, cluster in keyed for operation in cluster]
    now = -1
    for operation in order:
        now = max(now, operation.inv)
        if now > operation.ret:
            return None
    return order


def contradicted(operations: Sequence[RegisterOperation]) -> bool:
    """Whether two clusters must precede each other, or a value was seen before its write was invoked.

    Never true if an order explains the operations. Values that are written twice, or never, are ignored.
    """
    writers: dict[int | None, list[RegisterOperation]] = {}
    clusters: dict[int | None, list[RegisterOperation]] = {}
    for operation in operations:
        if not is_pure(operation):
            writers.setdefault(written(operation), []).append(operation)
        if operation.type == OK and operation.f in (READ, CAS):
            clusters.setdefault(operation.value if operation.f == READ else operation.expected, []).append(operation)
    forward: list[tuple[int, int]] = []
    backward: list[tuple[int, int]] = []
    for value, writing in [(None, []), *writers.items()]:
        cluster = [*writing, *clusters.get(value, [])]
        if not cluster or len(writing) > 1 or (len(cluster) == 1 and cluster[0].type == INFO):
            continue
        low = min(operation.ret for operation in cluster) if writing else -INF
        high = max(operation.inv for operation in cluster)
        if writing and low < writing[0].inv:
            return True
        (forward if low < high else backward).append((low, high))
    forward.sort()
    if any(after[0] < before[1] for before, after in pairwise(forward)):
        return True
    lows = [low for low, _ in forward]
    for low, high in backward:
        preceding = bisect_left(lows, high) - 1
        if preceding >= 0 and low < forward[preceding][1]:
            return True
    return False


BUDGET: Final = 400_000
"""Configurations that the search of one key may visit: some seconds."""

NO_PARTITION: Final = -1


@dataclass(frozen=True)
class RegisterReport:
    """The result for a history's keys, or for some of them.

    `anomalies` is empty iff every key that is not named in `undecided` is linearizable. `keys`: for each key the number
    of operations by outcome. `orders`: for each linearizable key the ids of its operations in an order that explains
    it; empty if the report is of tasks, which leave the orders to the certificate.
    """

    anomalies: tuple[Anomaly, ...] = ()
    undecided: tuple[str, ...] = ()
    keys: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    orders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.anomalies

    @property
    def stats(self) -> dict[str, int]:
        """Totals over the keys."""
        total = {"keys": len(self.keys), **_counts(())}
        for of_key in self.keys.values():
            for name, count in of_key.items():
                total[name] = total.get(name, 0) + count
        return total

    @classmethod
    def union(cls, reports: Sequence["RegisterReport"]) -> "RegisterReport":
        """The result for the keys of all reports, ordered by key. Raises ValueError when two have the same key."""
        keys = {key: counted for report in reports for key, counted in report.keys.items()}
        if len(keys) < sum(len(report.keys) for report in reports):
            raise ValueError("reports cannot be joined: two of them cover one key")
        anomalies = [anomaly for report in reports for anomaly in report.anomalies]
        return cls(
            tuple(sorted(anomalies, key=lambda anomaly: (anomaly.topic, anomaly.name))),
            tuple(sorted(reason for report in reports for reason in report.undecided)),
            dict(sorted(keys.items())),
            {key: order for report in reports for key, order in sorted(report.orders.items())},
        )


def check(table: pa.Table, *, budget: int = BUDGET) -> RegisterReport:
    """Checks a table with the schema `history.REGISTERS`. It must hold whole keys."""
    return check_keys(by_key(table), budget=budget)


def check_keys(keys: Mapping[str, Sequence[RegisterOperation]], *, budget: int = BUDGET) -> RegisterReport:
    """Checks all operations of some keys, those of each in order of invocation."""
    return RegisterReport.union([_judge(key, operations, budget) for key, operations in keys.items()])


def explain_order(operations: Sequence[RegisterOperation], *, budget: int = BUDGET) -> list[RegisterOperation] | None:
    """An order of one key's operations that explains them; None if no order does. Raises OutOfBudget.

    It contains all operations that happened, and those that may have happened only where needed.
    """
    relevant = [operation for operation in operations if counts(operation)]
    if has_zones(relevant):
        return by_zones(relevant)
    return None if contradicted(relevant) else search(relevant, budget)


def _judge(key: str, operations: Sequence[RegisterOperation], budget: int) -> RegisterReport:
    keys = {key: _counts(operations)}
    if (anomaly := _phantoms(key, operations)) is not None:
        return RegisterReport((anomaly,), keys=keys)
    try:
        order = explain_order(operations, budget=budget)
    except OutOfBudget:
        size = counted(len(operations), "operation")
        reason = f"register {key} could not be decided: {budget:,} configurations of its {size} were not enough"
        return RegisterReport(undecided=(reason,), keys=keys)
    if order is not None:
        return RegisterReport(keys=keys, orders={key: tuple(operation.id for operation in order)})
    guilty = shrink(operations, lambda subset: _is_refuted(subset, budget))
    name, sentence = contradiction(key, guilty)
    return RegisterReport((Anomaly(name, key, NO_PARTITION, sentence, _shown(key, guilty)),), keys=keys)


def _is_refuted(operations: Sequence[RegisterOperation], budget: int) -> bool:
    try:
        return explain_order(operations, budget=budget) is None
    except OutOfBudget:
        return False


def _phantoms(key: str, operations: Sequence[RegisterOperation]) -> Anomaly | None:
    """Values that were read but never written, or written only by a refused operation."""
    possible = {written(operation) for operation in operations if operation.type != FAIL}
    phantoms = []
    for operation in operations:
        value = operation.value if operation.f == READ else operation.expected
        if operation.type == OK and operation.f in (READ, CAS) and value is not None and value not in possible:
            phantoms.append(operation)
    if not phantoms:
        return None
    first = min(phantoms, key=lambda operation: (operation.ret, operation.id))
    value = first.value if first.f == READ else first.expected
    refusals = (operation for operation in operations if operation.type == FAIL and written(operation) == value)
    refused = next(refusals, None)
    guilty = [first] if refused is None else [refused, first]
    return Anomaly(
        "register-phantom", key, NO_PARTITION, phantom(key, first, refused), _shown(key, guilty), len(phantoms)
    )


def _counts(operations: Iterable[RegisterOperation]) -> dict[str, int]:
    """Operations by outcome; `acknowledged`, `failed` and `indeterminate` are writes and compare-and-sets.

    `final_reads`: reads answered in the run's final phase.
    """
    counted = {
        "operations": 0, "acknowledged": 0, "mismatched": 0, "failed": 0, "indeterminate": 0, "reads": 0,
        "final_reads": 0,
    }  # fmt: skip
    for operation in operations:
        counted["operations"] += 1
        if operation.f == READ:
            counted["reads"] += operation.type == OK
            counted["final_reads"] += operation.type == OK and operation.phase == PHASE_FINAL
        else:
            counted["acknowledged"] += operation.type == OK
            counted["mismatched"] += is_sure(operation)
            counted["failed"] += operation.type == FAIL and not is_sure(operation)
            counted["indeterminate"] += operation.type == INFO
    return counted


def _shown(key: str, operations: Iterable[RegisterOperation]) -> tuple[dict[str, Any], ...]:
    return tuple(operation.shown(key) for operation in operations)
