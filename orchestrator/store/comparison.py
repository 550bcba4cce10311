"""Decides whether a measured figure is worse than in a baseline, by more than chance and by more than is allowed.

A permutation test: under the hypothesis of equal sides, each run of a cell could belong to either side. So the runs of
each cell are repeatedly assigned to the sides at random; p is the share of assignments with at least the observed
difference. All random assignments of a cell are made at once, in blocks of bounded memory.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

import numpy as np
import numpy.typing as npt

ALPHA: Final = 0.05
"""The largest probability that a project without any change is called worse, over all figures of one decision."""
EFFECT: Final = 0.1
"""The worsening that is allowed, as a share. It excuses what an hour or a machine adds to all runs of one side, if
there are many runs; with few, chance alone exceeds it. docs/gate.md has the shares
(`benchmarks/detectable_changes.py`)."""

_MOST_EXACT = 20_000
_DEALS = 10_000
_BOOTSTRAPS = 2_000
_SEED = 20_240_229
_MOST_AT_ONCE = 1 << 20  # numbers in one block of assignments
_CLOSE = 1e-12  # sums of the same numbers in another order differ by rounding

Sides = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""By cell: the measurements of the baseline and those of now; all positive."""

_Logs = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """`worse`: by which share the geometric mean over the runs is worse than the baseline's (0.1: a tenth; negative:
    better), averaged over the cells. `p`: the probability of at least this difference by chance. `least_p`: the
    smallest p that this number of runs and of assignments can show."""

    worse: float
    p: float
    least_p: float


def compare(sides: Sides, *, larger_is_worse: bool) -> Comparison:
    """Compare; each cell needs at least one run on each side. Deterministic."""
    sign = 1.0 if larger_is_worse else -1.0
    cells = [(sign * np.log(np.array([*base, *now], np.float64)), len(base)) for base, now in sides.values()]
    observed = _difference([(values[:count], values[count:]) for values, count in cells])
    ways = math.prod(math.comb(len(values), count) for values, count in cells)
    if ways <= _MOST_EXACT:
        every = _every_deal(cells)
        p, least_p = sum(value >= observed - _CLOSE for value in every) / ways, 1 / ways
    else:
        rng = np.random.default_rng(_SEED)
        dealt = np.mean([_dealt(rng, values, count) for values, count in cells], axis=0)
        p, least_p = (1 + int((dealt >= observed - _CLOSE).sum())) / (1 + _DEALS), 1 / (1 + _DEALS)
    return Comparison(math.expm1(observed), p, least_p)


@dataclass(frozen=True)
class FigureDecision:
    """One of several comparisons, decided together. `change`: as `Comparison.worse`; `p`, `least_p`: corrected for
    the number of comparisons; `worse`: None if so few runs cannot show a difference."""

    change: float
    p: float
    least_p: float
    worse: bool | None


def decide(comparisons: Sequence[Comparison], alpha: float = ALPHA, effect: float = EFFECT) -> list[FigureDecision]:
    """Which figures are worse by more than `effect`, such that without any difference the probability to call one of
    them worse is at most `alpha`: the step-down procedure of Holm (A simple sequentially rejective multiple test
    procedure, 1979). In the order of the comparisons."""
    count, largest = len(comparisons), 0.0
    corrected = [0.0] * count
    for rank, at in enumerate(sorted(range(count), key=lambda at: comparisons[at].p)):
        largest = max(largest, min(1.0, (count - rank) * comparisons[at].p))
        corrected[at] = largest
    decisions = list[FigureDecision]()
    for comparison, p in zip(comparisons, corrected, strict=True):
        least_p = min(1.0, count * comparison.least_p)
        is_significant = p <= alpha
        worse = None if least_p > alpha and not is_significant else is_significant and comparison.worse > effect
        decisions.append(FigureDecision(comparison.worse, p, min(p, least_p), worse))
    return decisions


def interval_of(sides: Sides, confidence: float) -> tuple[float, float]:
    """The bootstrap interval of the ratio now / baseline of the geometric means, averaged over the cells: the runs of
    each cell and side are drawn again with replacement. Deterministic."""
    cells = [(np.log(np.array(base, np.float64)), np.log(np.array(now, np.float64))) for base, now in sides.values()]
    rng = np.random.default_rng(_SEED)
    drawn = np.mean([_drawn_means(rng, now) - _drawn_means(rng, base) for base, now in cells], axis=0)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(np.exp(low)), float(np.exp(high))


def _difference(cells: Sequence[tuple[_Logs, _Logs]]) -> float:
    return float(np.mean([now.mean() - base.mean() for base, now in cells]))


def _dealt(rng: np.random.Generator, values: _Logs, count: int) -> _Logs:
    """The differences of a cell's means for `_DEALS` random assignments of its runs, `count` of them to the
    baseline."""
    differences = []
    for rows in _blocks(_DEALS, values.size):
        dealt = rng.permuted(np.tile(values, (rows, 1)), axis=1)
        differences.append(dealt[:, count:].mean(axis=1) - dealt[:, :count].mean(axis=1))
    return np.concatenate(differences)


def _drawn_means(rng: np.random.Generator, values: _Logs) -> _Logs:
    """The means of `_BOOTSTRAPS` samples of these values, drawn with replacement."""
    return np.concatenate(
        [rng.choice(values, (rows, values.size)).mean(axis=1) for rows in _blocks(_BOOTSTRAPS, values.size)]
    )


def _blocks(rows: int, width: int) -> Iterator[int]:
    """The rows of each block, so that a block has at most `_MOST_AT_ONCE` numbers, or one row."""
    most = max(1, _MOST_AT_ONCE // width)
    yield from (min(most, rows - start) for start in range(0, rows, most))


def _every_deal(cells: Sequence[tuple[_Logs, int]]) -> list[float]:
    by_cell = [
        [_split(values, set(chosen)) for chosen in combinations(range(len(values)), count)] for values, count in cells
    ]
    return [_difference(deal) for deal in product(*by_cell)]


def _split(values: _Logs, chosen: set[int]) -> tuple[_Logs, _Logs]:
    is_chosen = np.array([index in chosen for index in range(len(values))])
    return values[is_chosen], values[~is_chosen]
