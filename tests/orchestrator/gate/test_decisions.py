"""When a difference of two sides is called worse: by more than chance, by more than is allowed, of several figures."""

import random

import pytest

from orchestrator.store.comparison import ALPHA, Comparison, compare, decide

SIMULATIONS = 400


@pytest.mark.parametrize(
    ("comparisons", "expected"),
    [
        ([(0.5, 0.01)], [True]),
        ([(0.019, 0.036)], [False]),
        ([(0.5, 0.06)], [False]),
        ([(-0.5, 1.0)], [False]),
        ([(0.5, 0.03), (0.5, 0.03)], [False, False]),
        ([(0.5, 0.03), (0.5, 0.01)], [True, True]),
        ([(0.5, 0.01), (0.02, 0.01), (0.5, 0.04)], [True, False, True]),
        ([(0.5, 0.02), (0.5, 0.001), (0.5, 0.03)], [True, True, True]),
        ([(0.5, 0.04), (0.5, 0.001), (0.5, 0.03)], [False, True, False]),
        ([], []),
    ],
)
def test_change_is_worse_by_its_size_and_its_corrected_p(
    comparisons: list[tuple[float, float]], expected: list[bool]
) -> None:
    decisions = decide([Comparison(worse, p, 0.0001) for worse, p in comparisons])
    assert [each.worse for each in decisions] == expected


def test_comparison_of_too_few_runs_is_undecided() -> None:
    three = compare({"main": ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2])}, larger_is_worse=True)
    assert [each.worse for each in decide([three])] == [True]
    assert [each.worse for each in decide([three, three])] == [None, None]


@pytest.mark.parametrize("figures", [1, 3])
def test_equal_sides_are_called_worse_at_most_as_often_as_alpha(figures: int) -> None:
    """Of SIMULATIONS decisions at most alpha, and three standard deviations of that share."""
    rng = random.Random(figures)

    def false_alarm() -> bool:
        sides = [
            {"main": ([rng.lognormvariate(0, 0.3) for _ in range(5)], [rng.lognormvariate(0, 0.3) for _ in range(5)])}
            for _ in range(figures)
        ]
        return any(each.worse for each in decide([compare(side, larger_is_worse=True) for side in sides], effect=0.0))

    alarms = sum(false_alarm() for _ in range(SIMULATIONS))
    assert 0 < alarms <= SIMULATIONS * ALPHA + 3 * (SIMULATIONS * ALPHA * (1 - ALPHA)) ** 0.5
