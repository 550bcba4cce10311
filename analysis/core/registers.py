"""The register checker: decides whether one atomic register per key could have given all recorded answers.

Keys are independent (locality), so each is checked alone. A value that was read but never written is a phantom,
reported before any search. A key with only reads and writes of distinct values is decided by its zones
(`register_zones`), in O(n log n). Compare-and-sets need a search (`register_search`) within a budget, which ends in
"undecided", never in a guess. Both return the order that explains the history; `shrink` finds the few operations that
contradict each other.

Registers with reads and writes of distinct values, decided by zones (Gibbons and Korach, 1997), in O(n log n).

The operations on one value form a cluster: its write and the reads that saw it. Let low be the earliest return and high
the latest invocation in it. In any explanation the register holds the value during one stretch of time that starts no
later than low and ends no earlier than high. So a cluster must precede another if its low is before the other's high.
If two clusters must precede each other, no order exists. Otherwise ordering clusters by low + high respects every such
pair, and within a cluster the write comes first, then the reads by invocation.

With compare-and-sets, which belong to the cluster of the expected value and to that of the written one, the condition
is necessary but no longer sufficient: a violation needs no search.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from analysis.core.anomaly import Anomaly
from analysis.core.register_operations import Operation, OutOfBudget, by_key, counts, is_pure, is_sure, written
from analysis.core.register_search import search
from analysis.core.register_witness import contradiction, phantom, shrink
from history.schemas import CAS, FAIL, INF, INFO, OK, PHASE_FINAL, READ, WRITE
from installation.counted import counted


def has_zones(operations: Sequence[Operation]) -> bool:
    """Whether zones decide these operations: only reads and writes, no value written twice."""
    if any(each.f not in (READ, WRITE) for each in operations):
        return False
    values = [each.value for each in operations if each.f == WRITE]
    return len(set(values)) == len(values) and None not in values


def by_zones(operations: Sequence[Operation]) -> list[Operation] | None:
    """The operations in an order that explains them; None if no order does.

    Writes that may have happened and whose value was not read are left out, as the definition allows. Every value read
    must be nil or written by one of the operations.
    """
    clusters: dict[int | None, list[Operation]] = {}
    for each in sorted(operations, key=lambda each: (each.f != WRITE, each.inv, each.id)):
        clusters.setdefault(each.value, []).append(each)
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
            low = min(each.ret for each in cluster)
        keyed.append((low + max(each.inv for each in cluster), cluster))
    keyed.sort(key=lambda each: each[0])
    order = [each for _, cluster in keyed for each in cluster]
    now = -1
    for each in order:
        now = max(now, each.inv)
        if now > each.ret:
            return None
    return order


def contradicted(operations: Sequence[Operation]) -> bool:
    """Whether two clusters must precede each other, or a value was seen before its write was invoked.

    Never true if an order explains the operations. Values that are written twice, or never, are ignored.
    """
    writers: dict[int | None, list[Operation]] = {}
    clusters: dict[int | None, list[Operation]] = {}
    for each in operations:
        if not is_pure(each):
            writers.setdefault(written(each), []).append(each)
        if each.type == OK and each.f in (READ, CAS):
            clusters.setdefault(each.value if each.f == READ else each.expected, []).append(each)
    forward: list[tuple[int, int]] = []
    backward: list[tuple[int, int]] = []
    for value, writing in [(None, []), *writers.items()]:
        cluster = [*writing, *clusters.get(value, [])]
        if not cluster or len(writing) > 1 or (len(cluster) == 1 and cluster[0].type == INFO):
            continue
        low = min(each.ret for each in cluster) if writing else -INF
        high = max(each.inv for each in cluster)
        if writing and low < writing[0].inv:
            return True
        (forward if low < high else backward).append((low, high))
    forward.sort()
    if any(after[0] < before[1] for before, after in pairwise(forward)):
        return True
    lows = [low for low, _ in forward]
    for low, high in backward:
        before = bisect_left(lows, high) - 1
        if before >= 0 and low < forward[before][1]:
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
    def union(cls, reports: Sequence[RegisterReport]) -> RegisterReport:
        """The result for the keys of all reports, ordered by key. Raises ValueError when two have the same key."""
        keys = {key: counted for each in reports for key, counted in each.keys.items()}
        if len(keys) < sum(len(each.keys) for each in reports):
            raise ValueError("reports cannot be joined: two of them cover one key")
        anomalies = [anomaly for each in reports for anomaly in each.anomalies]
        return cls(
            tuple(sorted(anomalies, key=lambda each: (each.topic, each.name))),
            tuple(sorted(reason for each in reports for reason in each.undecided)),
            dict(sorted(keys.items())),
            {key: order for each in reports for key, order in sorted(each.orders.items())},
        )


def check(table: pa.Table, *, budget: int = BUDGET) -> RegisterReport:
    """Checks a table with the schema `history.REGISTERS`. It must hold whole keys."""
    return check_keys(by_key(table), budget=budget)


def check_keys(keys: Mapping[str, Sequence[Operation]], *, budget: int = BUDGET) -> RegisterReport:
    """Checks all operations of some keys, those of each in order of invocation."""
    return RegisterReport.union([_judge(key, operations, budget) for key, operations in keys.items()])


def explain_order(operations: Sequence[Operation], *, budget: int = BUDGET) -> list[Operation] | None:
    """An order of one key's operations that explains them; None if no order does. Raises OutOfBudget.

    It contains all operations that happened, and those that may have happened only where needed.
    """
    relevant = [each for each in operations if counts(each)]
    if has_zones(relevant):
        return by_zones(relevant)
    return None if contradicted(relevant) else search(relevant, budget)


def _judge(key: str, operations: Sequence[Operation], budget: int) -> RegisterReport:
    keys = {key: _counts(operations)}
    if (found := _phantoms(key, operations)) is not None:
        return RegisterReport((found,), keys=keys)
    try:
        order = explain_order(operations, budget=budget)
    except OutOfBudget:
        size = counted(len(operations), "operation")
        reason = f"register {key} could not be decided: {budget:,} configurations of its {size} were not enough"
        return RegisterReport(undecided=(reason,), keys=keys)
    if order is not None:
        return RegisterReport(keys=keys, orders={key: tuple(each.id for each in order)})
    guilty = shrink(operations, lambda some: _is_refuted(some, budget))
    name, sentence = contradiction(key, guilty)
    return RegisterReport((Anomaly(name, key, NO_PARTITION, sentence, _shown(key, guilty)),), keys=keys)


def _is_refuted(operations: Sequence[Operation], budget: int) -> bool:
    try:
        return explain_order(operations, budget=budget) is None
    except OutOfBudget:
        return False


def _phantoms(key: str, operations: Sequence[Operation]) -> Anomaly | None:
    """Values that were read but never written, or written only by a refused operation."""
    possible = {written(each) for each in operations if each.type != FAIL}
    found = []
    for each in operations:
        seen = each.value if each.f == READ else each.expected
        if each.type == OK and each.f in (READ, CAS) and seen is not None and seen not in possible:
            found.append(each)
    if not found:
        return None
    first = min(found, key=lambda each: (each.ret, each.id))
    seen = first.value if first.f == READ else first.expected
    refused = next((each for each in operations if each.type == FAIL and written(each) == seen), None)
    guilty = [first] if refused is None else [refused, first]
    return Anomaly("register-phantom", key, NO_PARTITION, phantom(key, first, refused), _shown(key, guilty), len(found))


def _counts(operations: Iterable[Operation]) -> dict[str, int]:
    """Operations by outcome; `acknowledged`, `failed` and `indeterminate` are writes and compare-and-sets.

    `final_reads`: reads answered in the run's final phase.
    """
    counted = {
        "operations": 0, "acknowledged": 0, "mismatched": 0, "failed": 0, "indeterminate": 0, "reads": 0,
        "final_reads": 0,
    }  # fmt: skip
    for each in operations:
        counted["operations"] += 1
        if each.f == READ:
            counted["reads"] += each.type == OK
            counted["final_reads"] += each.type == OK and each.phase == PHASE_FINAL
        else:
            counted["acknowledged"] += each.type == OK
            counted["mismatched"] += is_sure(each)
            counted["failed"] += each.type == FAIL and not is_sure(each)
            counted["indeterminate"] += each.type == INFO
    return counted


def _shown(key: str, operations: Iterable[Operation]) -> tuple[dict[str, Any], ...]:
    return tuple(each.shown(key) for each in operations)
