"""The operations of a log anomaly's witness contradict each other, and each of them belongs to the contradiction."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from analysis.core.anomaly import Anomaly
from history.record.schemas import ACKS_ALL, APPEND, END, INF, INFO, READ
from tests.analysis.exhaustive import allowed
from tests.analysis.log_checks import check
from tests.analysis.log_histories import Op, empty, end, fail, info, ok, random_history, read, table, v, weak_history

KINDS = {"append": APPEND, "read": READ, "end": END}
HISTORIES = 600
SKIPPING = replace(read(0, [1, 2, 3], 70, 80), values=(v(1), v(3)), offsets=(0, 2))
BACKWARDS = replace(read(1, [2, 3], 70, 80), offset=2)

MINIMAL: dict[str, list[Op]] = {
    "two acknowledged": [ok(1, 10, 20, 0), ok(2, 11, 21, 0)],
    "two read": [info(1, 10), info(2, 11), read(0, [1], 20, 30), read(0, [2], 40, 50)],
    "replaced by a record of unknown outcome": [ok(1, 10, 20, 0), info(2, 9), read(0, [2], 40, 50)],
    "beyond the end": [ok(1, 10, 20, 0), ok(2, 30, 40, 1), end(1, 100, 110, final=True)],
    "lost beside a send of unknown outcome": [
        *(ok(1, 10, 20, 0), replace(info(2, 11), offset=0), read(0, [1], 22, 24), read(0, [2], 30, 40)),
        end(0, 100, 110, final=True),
    ],
    "read, and absent in the end": [info(1, 9), info(2, 11), read(0, [1, 2], 30, 40), end(0, 100, 110, final=True)],
    "read, and replaced": [
        *(ok(1, 10, 20, 0), ok(2, 30, 40, 1), read(0, [1, 2], 50, 60), ok(3, 70, 80, 1)),
        *(end(2, 100, 110, final=True), read(0, [1, 3], 120, 130, final=True)),
    ],
    "refused, and read": [fail(1, 10, 20), read(0, [1], 30, 40)],
    "at two offsets": [info(1, 10), read(0, [1], 20, 30), read(1, [1], 40, 50)],
    "acknowledged elsewhere": [ok(1, 10, 20, 0), ok(2, 11, 21, 1), read(1, [1], 30, 40)],
    "an acknowledgement of the leader alone elsewhere": [
        *(replace(ok(1, 10, 20, 1), acks=1), info(2, 5), read(0, [1], 30, 40), read(0, [1, 1], 50, 60)),
    ],
    "reordered": [ok(1, 10, 20, 1), ok(2, 30, 40, 0)],
    "reordered, located by a read": [ok(1, 10, 20, 1), info(2, 30), read(0, [2], 40, 50)],
    "read before it was sent": [read(0, [1], 10, 20), ok(1, 30, 40, 0)],
    "ended before it was sent, located by a read": [end(1, 10, 20), info(1, 30), read(0, [1], 40, 50)],
    "stale": [ok(1, 10, 20, 0), empty(0, 30, 40)],
    "stale, located by a read": [
        *(ok(1, 5, 6, 0), ok(2, 10, 20, -1), read(1, [2], 50, 60), end(1, 30, 40)),
    ],
    "a shorter log": [info(1, 5), end(1, 10, 20, process=1), end(0, 30, 40, process=2)],
    "a shorter log for one client": [info(1, 5), end(1, 10, 20, process=1), end(0, 30, 40, process=1)],
    "backwards": [ok(1, 10, 20, 0), ok(2, 30, 40, 1), ok(3, 50, 60, 2), BACKWARDS],
}


def shown(anomaly: Anomaly, history: Sequence[Op]) -> list[Op]:
    """The operations of a witness, in the history's order."""
    wanted = [(KINDS[row["op"]], row["process"], row["session"], row["inv"]) for row in anomaly.witness]
    found = [op for op in history if (op.f, op.process, op.session, op.inv) in wanted]
    assert len(found) == len(wanted), "a witness shows an operation once"
    return found


def contradictory(operations: Sequence[Op]) -> bool:
    """Whether no log explains the operations, if clients whose operations are not shown may have sent any record."""
    sent = {op.value for op in operations if op.f == APPEND}
    values = sorted({value for op in operations for value in op.values} - sent)
    longest = max((max(op.lo, op.offset + 1) for op in operations), default=0)
    values += [v(900 + number) for number in range(longest - len(values))]
    return not allowed([*operations, *(Op(APPEND, 0, INF, INFO, value=value) for value in values)])


def has_superfluous(operations: Sequence[Op]) -> bool:
    return any(contradictory([*operations[:at], *operations[at + 1 :]]) for at in range(len(operations)))


@pytest.mark.parametrize("history", MINIMAL.values(), ids=MINIMAL)
def test_each_operation_of_a_witness_belongs_to_the_contradiction(history: list[Op]) -> None:
    anomalies = check(table(history)).anomalies
    assert anomalies
    for anomaly in anomalies:
        operations = shown(anomaly, history)
        assert contradictory(operations), anomaly
        # Several losses are several contradictions, which share the query that shows them.
        assert anomaly.count > 1 or not has_superfluous(operations), anomaly


def test_witness_of_truncated_records_has_no_send_of_unknown_outcome() -> None:
    """Such a send contradicts nothing: the record may never have been stored."""
    for name in ("lost beside a send of unknown outcome", "read, and absent in the end"):
        for anomaly in check(table(MINIMAL[name])).anomalies:
            assert all((row["op"], row["type"]) != ("append", "info") for row in anomaly.witness), anomaly


def test_skipped_record_is_shown_beside_the_read_that_skips_it() -> None:
    """The read alone shows that it skipped an offset; the append shows that a record is there."""
    history = [ok(1, 10, 20, 0), ok(2, 30, 40, 1), ok(3, 50, 60, 2), SKIPPING]
    (anomaly,) = check(table(history)).anomalies
    assert shown(anomaly, history) == [history[1], SKIPPING]


def rests_on_the_whole_history(anomaly: Anomaly, operations: Sequence[Op]) -> bool:
    """Whether a few operations cannot show the contradiction: no operation sent the record, no read of the complete
    final read shows it, or an append without an offset can only be the record of an offset that no read shows."""
    shown_values = {value for op in operations for value in op.values}
    is_unplaced = any(
        op.f == APPEND and (op.offset < 0 or op.acks != ACKS_ALL) and op.value not in shown_values for op in operations
    )
    return anomaly.name in ("gap", "phantom") or (
        anomaly.name in ("lost-acknowledged-write", "append-reorder") and is_unplaced
    )


@pytest.mark.parametrize("make", [random_history, weak_history])
def test_witnesses_of_random_histories_contradict_alone(make: Callable[[random.Random], list[Op]]) -> None:
    rng = random.Random(11)
    histories = [make(rng) for _ in range(HISTORIES)]
    witnesses = [(each, shown(each, histories[each.partition])) for each in check(table(*histories)).anomalies]
    alone = [(each, operations) for each, operations in witnesses if not rests_on_the_whole_history(each, operations)]
    assert [each for each, operations in alone if not contradictory(operations)] == []
    assert len(alone) > HISTORIES // 10
