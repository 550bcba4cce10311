"""A history that loses is called so, whatever else it shows, and every value that it lost is named."""

import random

import pytest

from history.record.schemas import ACKS_ALL, APPEND, END, OK
from history.upper_bounds import UPPER_BOUNDS
from tests.analysis.log_checks import check
from tests.analysis.log_histories import (
    Op,
    Simulated,
    damaged,
    end,
    random_history,
    table,
    with_distinct_times,
)

LOST = "lost-acknowledged-write"
PARTS = 4
HISTORIES = 2_000
"""Of each part."""


def acknowledged(history: list[Op]) -> list[Op]:
    return [op for op in history if op.f == APPEND and op.type == OK and op.acks == ACKS_ALL]


def lost(history: list[Op]) -> set[int] | None:
    """The truth: what was acknowledged and the final reads lack, None when those do not go through the whole log."""
    final = [op for op in history if op.final]
    last = max((op.ret for op in acknowledged(history)), default=-1)
    ends = [op.lo for op in final if op.f == END and op.inv > last]
    shown = {offset: value for op in final for offset, value in zip(op.offsets, op.values, strict=True)}
    if not ends or not set(range(max(ends))) <= shown.keys():
        return None
    return {op.value for op in acknowledged(history)} - {value for op in final for value in op.values}


def proven(history: list[Op]) -> set[int]:
    """Offsets with a certain loss, though the final reads do not cover the whole log: a value was acknowledged and
    another one was read or acknowledged, or the last final end excludes the offset."""
    elsewhere = {
        value
        for op in history
        for at, value in zip(op.offsets, op.values, strict=True)
        if not any(each.value == value and each.offset == at for each in acknowledged(history))
    }
    found = set()
    for op in acknowledged(history):
        if op.offset < 0 or op.value in elsewhere:
            continue
        here = [
            (value, each.final)
            for each in history
            for at, value in zip(each.offsets, each.values, strict=True)
            if at == op.offset
        ]
        kept = (op.value, True) in here
        others = {value for value, _ in here} - {op.value}
        rivals = [
            each
            for each in acknowledged(history)
            if each.offset == op.offset and each.value not in {op.value, *elsewhere}
        ]
        ends = [each.lo for each in history if each.final and each.f == END and each.inv > op.ret]
        if not kept and (others or (rivals and not here) or (ends and max(ends) <= op.offset)):
            found.add(op.offset)
    return found


def losing_history(rng: random.Random) -> list[Op]:
    """A log that forgets its end now and then, as after an unclean election; some of the clients' answers are wrong."""
    log, moment = Simulated(rng), 100
    for _ in range(rng.randint(3, 9)):
        moment += 10
        kind = rng.random()
        if kind < 0.55:
            log.append(moment)
        elif kind < 0.75:
            log.read(moment)
        elif kind < 0.9:
            del log.log[rng.randint(0, len(log.log)) :]
        else:
            log.ops.append(end(len(log.log), *log.interval(moment), process=rng.randrange(3)))
    if rng.random() < 0.8:
        log.finish(moment + rng.choice([0, 100]))
        if rng.random() < 0.3:
            del log.ops[rng.randrange(len(log.ops) - 3, len(log.ops))]
    for _ in range(rng.choice([0, 0, 1, 2]) if log.ops else 0):
        at = rng.randrange(len(log.ops))
        log.ops[at] = damaged(log.ops[at], rng, log.names)
    return with_distinct_times(log.ops)


@pytest.mark.rotating(12, among="random histories")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("upper_bound", UPPER_BOUNDS)
def test_exactly_the_lost_records_are_reported_as_lost(upper_bound: str, part: int) -> None:
    rng = random.Random(f"losses {upper_bound} {part}")
    histories = [rng.choice((losing_history, losing_history, random_history))(rng) for _ in range(HISTORIES)]
    report = check(table(*histories), upper_bound=upper_bound)
    reported = {each.partition: each for each in report.anomalies if each.name == LOST}
    decided = losing = 0
    for partition, history in enumerate(histories):
        truth, anomaly = lost(history), reported.get(partition)
        if truth is None:
            if proven(history):
                assert anomaly is not None, (partition, history, report.anomalies)
            continue
        decided += 1
        losing += bool(truth)
        assert (anomaly is not None) == bool(truth), (partition, history, truth, anomaly)
        if anomaly is not None:
            named = {row["value"] for row in anomaly.witness if row["op"] == "append"}
            assert (anomaly.count, truth <= named) == (len(truth), True), (history, truth, anomaly)
    assert decided > 250
    assert losing > 75
