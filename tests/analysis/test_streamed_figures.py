"""Figures of numbers that come in parts are those of all numbers together."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from analysis.pipeline import gaps_with_the_longest, quantiles

WANTED = (0.0, 0.5, 0.95, 0.99, 1.0)
Column = npt.NDArray[Any]


def in_parts(column: Column, most: int) -> Callable[[], Iterator[Column]]:
    return lambda: (column[start : start + most] for start in range(0, len(column), most))


@pytest.mark.parametrize("count", [1, 2, 3, 100, 5000])
@pytest.mark.parametrize("kind", ["exponential", "few", "equal", "wide", "zeros"])
def test_quantiles_are_those_of_numpy_to_the_last_bit(kind: str, count: int) -> None:
    rng = np.random.default_rng(count)
    numbers = {
        "exponential": rng.exponential(3.0, count),
        "few": rng.choice([0.0, 1.0, 1.0000001, 7.5], count),
        "equal": np.full(count, 2.25),
        "wide": 10.0 ** rng.uniform(-9, 9, count),
        "zeros": np.where(rng.random(count) < 0.7, 0.0, rng.random(count)),
    }[kind]
    expected = [float(np.quantile(numbers, each)) for each in WANTED]
    for most in (1, 7, 10**6):
        assert (most == 1 and count > 100) or quantiles(in_parts(numbers, most), WANTED) == expected


def test_no_numbers_have_no_quantiles() -> None:
    assert quantiles(lambda: iter([]), WANTED) is None
    assert quantiles(lambda: iter([np.empty(0)]), WANTED) is None


@pytest.mark.parametrize("seed", range(30))
def test_the_longest_gap_is_that_between_all_moments(seed: int) -> None:
    rng = random.Random(seed)
    span = rng.choice([3, 1_000, 10**6, 10**8, 10**10])
    begin, end = 10**9, 10**9 + span
    count = rng.choice([0, 1, 5, 300])
    column = np.array([begin + rng.randrange(-span // 2, 3 * span // 2) for _ in range(count)], np.int64)
    inside = sorted(each for each in column.tolist() if begin <= each <= end)
    expected = max(b - a for a, b in zip([begin, *inside], [*inside, end], strict=True))
    for most in (7, 10**6):
        begins, ends = gaps_with_the_longest(in_parts(column, most), begin, end)
        assert (ends - begins).max() == expected
        assert set(begins.tolist()) <= {begin, *inside}
        assert set(ends.tolist()) <= {end, *inside}
        assert len(begins) == 1 or (begins[1:] >= ends[:-1]).all()
