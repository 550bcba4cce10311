"""The figures of runs that a baseline and a comparison of two campaigns test: of those that passed as expected."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from analysis.run_row import RunRow, place_of, samples
from analysis.verdict import PASS


@dataclass(frozen=True)
class Figure:
    """A measured figure. `measure`: its name in `gate.toml`; `of`: its value in a run (None: the run has not measured
    it)."""

    measure: str
    name: str
    unit: str
    larger_is_worse: bool
    of: Callable[[RunRow], float | None]


def _stat(key: str) -> Callable[[RunRow], float | None]:
    return lambda run: run.stats.get(key)


def _rate(run: RunRow) -> float | None:
    is_measured = run.duration_s > 0 and run.stats.get("appends") != 0  # a run without changes has no rate of them
    return run.acknowledged / run.duration_s if is_measured else None


FIGURES: Final = (
    Figure("latency", "median latency", "ms", True, _stat("latency_p50_ms")),
    Figure("latency-p99", "latency p99", "ms", True, _stat("latency_p99_ms")),
    Figure("throughput", "acknowledged changes", "/s", False, _rate),
    Figure("outage", "longest outage", "s", True, _stat("longest_outage_s")),
    Figure("join", "time to join", "s", True, _stat("join_s")),
)


def passes(runs: Iterable[RunRow]) -> list[RunRow]:
    """The runs that passed as expected."""
    return [run for run in runs if run.verdict == PASS and run.met]


def measurements(runs: Iterable[RunRow], value_of: Callable[[RunRow], float | None]) -> dict[str, list[float]]:
    """By cell and place, a value for each sample that has measured it. `value_of`: as `Figure.of`."""
    by_cell: dict[str, list[float]] = {}
    for run in samples(runs):
        value = value_of(run)
        by_cell.setdefault(f"{run.cell} in {place_of(run)}", []).extend([] if value is None else [value])
    return by_cell
