"""Growing sets contain what was added, in little memory."""

import random
import tracemalloc

import numpy as np
import pytest

from history.record import jsonl_reader
from history.record.jsonl_reader import GrowingNames, GrowingRuns
from history.value_runs import ValueRuns

EXTREME = (1 << 63) - 1


@pytest.mark.parametrize("seed", range(6))
def test_a_growing_set_contains_exactly_the_added_integers(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(jsonl_reader, "_MOST_RECENT", 1 + seed)
    chance = random.Random(f"runs {seed}")
    values = [
        *range(20),
        *range(40, 60, 2),
        -EXTREME,
        EXTREME,
        *(chance.randrange(-EXTREME, EXTREME) for _ in range(9)),
    ]
    chance.shuffle(values)
    added, runs = set[int](), GrowingRuns()
    assert not runs.has_any(np.array(values))
    for value in values:
        assert value not in runs
        runs.add(value)
        added.add(value)
        assert all((each in runs) == (each in added) for each in values)
        assert runs.has_any(np.array(values[-3:])) == (not added.isdisjoint(values[-3:]))


@pytest.mark.parametrize("families", [0, 1, 2, 99])
def test_a_growing_set_contains_exactly_the_added_names(monkeypatch: pytest.MonkeyPatch, families: int) -> None:
    monkeypatch.setattr(jsonl_reader, "_MOST_RECENT", 2)
    monkeypatch.setattr(jsonl_reader, "_MOST_FAMILIES", families)
    chance = random.Random("names")
    names: list[int | str] = [0, 1, 2, "1", "01", "001", "a1", "a2", "a01", "a", "", "b\n7", "٣", "a 1", "1 ", "-1", -1]
    names += [1 << 62, 1 << 80, str(1 << 80), "a" + "9" * 18, "a" + "9" * 19]
    chance.shuffle(names)
    added, found = set[int | str](), GrowingNames()
    for name in names:
        assert name not in found
        found.add(name)
        added.add(name)
        assert all((each in found) == (each in added) for each in names)


def test_numbered_names_need_memory_that_does_not_grow_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_reader, "_MOST_RECENT", 64)
    names = GrowingNames()
    tracemalloc.start()
    try:
        for number in range(10_000):
            names.add(f"client-{number}")
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 30_000


def test_values_far_apart_are_separate_runs() -> None:
    runs = ValueRuns.of(np.array([-EXTREME, EXTREME, 5]))
    assert (len(runs.first), 6 in runs, 5 in runs) == (3, False, True)
