"""The register checker: decides whether one atomic register per key could have given all recorded answers.

Keys are independent (locality), so each is checked alone. A value that was read but never written is a phantom,
reported before any search. A key with only reads and writes of distinct values is decided by its zones
(`register_zones`), in O(n log n). Compare-and-sets need a search (`register_search`) within a budget, which ends in
"undecided", never in a guess. Both return the order that explains the history; `shrink` finds the few operations that
contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from analysis.core.anomaly import Anomaly
from analysis.core.register_operations import Operation, OutOfBudget, by_key, counts, is_sure, written
from analysis.core.register_search import search
from analysis.core.register_witness import contradiction, phantom, shrink
from analysis.core.register_zones import by_zones, contradicted, has_zones
from history.schemas import CAS, FAIL, INFO, OK, PHASE_FINAL, READ
from installation.counted import counted

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
