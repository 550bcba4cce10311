"""The operations of a register anomaly's witness contradict each other, and each belongs to the contradiction."""

import random
from collections.abc import Sequence

import pytest

from analysis.core.anomaly import Anomaly
from analysis.core.registers import check
from history.record.schemas import FAIL, INF, INFO, MISMATCH, OK, READ, WRITE
from tests.analysis.register_histories import Op, cas, explicable, mismatch, read, refused, spoilt, table, true_history
from tests.analysis.register_histories import write as written

HISTORIES = 1_500
OTHER = -1
"""A value that no operation has."""

MINIMAL: dict[str, tuple[list[Op], list[int]]] = {
    "a write of unknown outcome that was read": (
        [written(1, 0, 10), written(2, 20), read(2, 30, 40), read(1, 50, 60)],
        [0, 2, 3],
    ),
    "a write that was acknowledged and not read": ([written(1, 0, 10), written(2, 20, 30), read(1, 50, 60)], [0, 1, 2]),
    "an absent key": ([written(1, 0, 10), written(2, 20), read(2, 30, 40), read(None, 50, 60)], [2, 3]),
    "read before it was written": ([read(1, 0, 10), written(1, 20, 30), written(2, 40, 50)], [0, 1]),
    "refused, and read": ([refused(written(1, 0, 10)), written(2, 20, 30), read(1, 50, 60)], [0, 2]),
    "two swaps of one value": ([written(1, 0, 10), cas(1, 2, 20, 30), cas(1, 3, 40, 50)], [1, 2]),
    "two swaps of one value, of which one may have happened": (
        [written(1, 0, 10), cas(1, 2, 20), read(2, 25, 30), cas(1, 3, 40, 50), written(4, 60)],
        [0, 2, 3],
    ),
    "a mismatch though nothing else was there": ([written(5, 0, 1), written(1, 2, 3), mismatch(1, 2, 4, 5)], [1, 2]),
}


def shown(anomaly: Anomaly, history: Sequence[Op]) -> list[Op]:
    """The operations of a witness, in the history's order."""
    return [history[at] for at in sorted(row["id"] for row in anomaly.witness)]


def contradictory(operations: Sequence[Op], all_shown: Sequence[Op], *others: int) -> bool:
    """Whether no order explains some of the operations that are shown, if clients whose operations are not shown may
    have written each value that is seen, or that a shown operation wrote, and that nobody writes or was refused.
    `others`: further values that they may have written; these explain mismatches."""
    own = {effect(op) for op in operations if op.f != READ}
    seen = {op.value if op.f == READ else op.expected for op in all_shown if op.type == OK or is_mismatch(op)}
    seen |= {effect(op) for op in all_shown if op.f != READ}
    values = {value for value in seen - own if value is not None}.union(others)
    return not explicable([*operations, *(Op(WRITE, 0, INF, value, type=INFO) for value in values)])


def effect(op: Op) -> int | None:
    return op.value if op.f == WRITE else op.new


def is_mismatch(op: Op) -> bool:
    return op.type == FAIL and op.error == MISMATCH


def superfluous(shown: Sequence[Op]) -> list[Op]:
    """The operations without which the others still contradict each other. Where a mismatch is wrong because nobody
    wrote another value, the contradiction rests on the whole history: then nobody did."""
    others = [OTHER] if contradictory(shown, shown, OTHER) else []
    return [op for at, op in enumerate(shown) if contradictory([*shown[:at], *shown[at + 1 :]], shown, *others)]


@pytest.mark.parametrize(("history", "witness"), MINIMAL.values(), ids=MINIMAL)
def test_each_operation_of_a_witness_belongs_to_the_contradiction(history: list[Op], witness: list[int]) -> None:
    (anomaly,) = check(table({"k": history})).anomalies
    assert [row["id"] for row in anomaly.witness] == witness
    operations = shown(anomaly, history)
    assert contradictory(operations, operations)
    assert superfluous(operations) == []


@pytest.mark.parametrize("swaps", [False, True], ids=["reads and writes", "compare-and-sets too"])
def test_each_operation_of_a_random_historys_witness_belongs_to_the_contradiction(swaps: bool) -> None:
    rng = random.Random(f"register witnesses {swaps}")
    drawn: dict[str, list[Op]] = {}
    for number in range(HISTORIES):
        history = true_history(rng, rng.randint(3, 9), rng.randint(1, 4), swaps=swaps, infos=rng.choice([0, 0.3, 0.6]))
        drawn[f"k{number:05d}"] = spoilt(rng, history)
    found = check(table(drawn)).anomalies
    first = {key: sum(len(drawn[other]) for other in drawn if other < key) for key in drawn}
    count = 0
    for anomaly in found:
        history = drawn[anomaly.topic]
        operations = [history[row["id"] - first[anomaly.topic]] for row in anomaly.witness]
        if anomaly.name == "register-phantom":
            continue  # that nobody else wrote a value rests on the whole history
        assert contradictory(operations, operations), (anomaly, history)
        assert superfluous(operations) == [], (anomaly, history)
        count += 1
    assert count > HISTORIES / 10
