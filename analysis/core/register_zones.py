"""Registers with reads and writes of distinct values, decided by zones (Gibbons and Korach, 1997), in O(n log n).

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
from collections.abc import Sequence
from itertools import pairwise

from analysis.core.register_operations import Operation, is_pure, written
from history.schemas import CAS, INF, INFO, OK, READ, WRITE


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
