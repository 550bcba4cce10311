"""The register checker and the exhaustive search agree, on histories drawn at random."""

import random
from dataclasses import replace

import pytest

from analysis.core.register_operations import by_key, counts
from analysis.core.registers import check, search
from tests.analysis.register_histories import Op, explicable, spoilt, table, true_history

PARTS = 4
HISTORIES = 2_000
"""Of each part."""


def histories(rng: random.Random, *, swaps: bool) -> dict[str, list[Op]]:
    found = {}
    for number in range(HISTORIES):
        history = true_history(rng, rng.randint(2, 9), rng.randint(1, 4), swaps=swaps, infos=rng.choice([0, 0.2, 0.5]))
        found[f"k{number:05d}"] = spoilt(rng, history) if rng.random() < 0.7 else history
    return found


@pytest.mark.rotating(12, among="random histories")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("swaps", [False, True], ids=["reads and writes", "compare-and-sets too"])
def test_the_checker_agrees_with_exhaustive_search(swaps: bool, part: int) -> None:
    drawn = histories(random.Random(f"registers {swaps} {part}"), swaps=swaps)
    report = check(table(drawn))
    wrong = {anomaly.topic for anomaly in report.anomalies}
    legal = 0
    for key, history in drawn.items():
        expected = explicable(history)
        legal += expected
        assert (key not in wrong) == expected == (key in report.orders), (key, history, report.anomalies)
    assert report.undecided == ()
    assert 0.3 < legal / HISTORIES < 0.8


@pytest.mark.rotating(12, among="random histories")
@pytest.mark.parametrize("part", range(PARTS))
def test_the_search_alone_agrees_on_reads_and_writes_too(part: int) -> None:
    drawn = histories(random.Random(f"search {part}"), swaps=False)
    for key, operations in by_key(table(drawn)).items():
        order = search([each for each in operations if counts(each)], 10_000)
        assert (order is not None) == explicable(drawn[key]), (key, drawn[key])


def test_values_that_are_written_again_are_decided() -> None:
    """The search and its witness: what is left of a contradiction is itself one."""
    rng = random.Random("again")
    drawn = {key: _again(history, rng.randint(1, 3)) for key, history in histories(rng, swaps=True).items()}
    report = check(table(drawn))
    wrong = {anomaly.topic: anomaly for anomaly in report.anomalies}
    for key, history in drawn.items():
        assert (key not in wrong) == explicable(history) == (key in report.orders), (key, history)
    numbered = dict(enumerate(op for history in drawn.values() for op in history))
    for anomaly in wrong.values():
        assert not explicable([numbered[row["id"]] for row in anomaly.witness]), anomaly
    assert report.undecided == ()
    assert len(wrong) > len(drawn) / 50


def _again(history: list[Op], values: int) -> list[Op]:
    def few(value: int | None) -> int | None:
        return None if value is None else value % values

    return [replace(op, value=few(op.value), expected=few(op.expected), new=few(op.new)) for op in history]
