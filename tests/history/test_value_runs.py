"""A set of values as runs is the set."""

import random

import numpy as np
import pytest

from history import value_runs
from history.value_runs import ValueRuns


@pytest.mark.parametrize("piece", [4, value_runs.PIECE])
@pytest.mark.parametrize("seed", range(20))
def test_runs_are_the_set_of_their_values(seed: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_runs, "PIECE", piece)
    rng = random.Random(seed)
    parts = [[rng.randrange(60) for _ in range(rng.randrange(30))] for _ in range(3)]
    runs = ValueRuns.union(ValueRuns.of(np.array(part, np.int64)) for part in parts)
    values = {value for part in parts for value in part}
    assert {value for value in range(-1, 61) if value in runs} == values
    assert len(runs) == len(values)
    assert runs.repeated == sum(map(len, parts)) - len(values)
    assert [runs.within(first, 7) for first in range(60)] == [
        len(values & set(range(first, first + 7))) for first in range(60)
    ]
    every = np.arange(-1, 61)
    assert every[~runs.missing(every)].tolist() == sorted(values)
    assert (np.diff(runs.first) > 1).all()


def test_neighbouring_runs_are_one() -> None:
    runs = ValueRuns.union([ValueRuns.of(np.arange(5, 9)), ValueRuns.of(np.arange(9, 12)), ValueRuns()])
    assert (runs.first.tolist(), runs.last.tolist(), runs.repeated) == ([5], [11], 0)
