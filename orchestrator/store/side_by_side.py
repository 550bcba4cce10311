"""Two campaigns or stores side by side: verdicts, anomalies, figures and settings that differ.

Theory of operation. Both sides are rows of their runs (`store.index`), so no evidence is examined and runs whose
verdict is missing or changed are unknown. A side may be tables alone, a copy without its store (`store.tables`).
Campaigns are paired by name, or, if each side is one campaign, with each other; cells are paired by name. A figure is
compared over the runs that passed as expected: its change is the ratio of the geometric means, averaged over the cells,
with a permutation test and a bootstrap interval. The rule of `comparison.decide`, which a baseline of the gate uses
too, is applied to all figures of all campaigns together.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from analysis.run_row import RunRow, samples
from history import strict_json
from installation.commands import command
from orchestrator.errors import UsageError
from orchestrator.store.figures import FIGURES, Figure, measurements, passes
from orchestrator.store.index import read_campaign, read_index, with_settings
from orchestrator.store.tables import FOLDER, RUNS_FILE, as_text, read_rows

if TYPE_CHECKING:
    from orchestrator.store.comparison import FigureDecision

CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class Side:
    """One side. `versions`: by name, the distinct versions of its runs."""

    path: str
    campaigns: tuple[str, ...]
    runs: int
    met: int
    verdicts: Mapping[str, int]
    versions: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class CellChange:
    """The verdicts of one cell on both sides, by verdict the number of runs; `met`: of them, as expected."""

    campaign: str
    cell: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    met_before: int
    met_after: int

    @property
    def has_changed(self) -> bool:
        """Whether the shares of the verdicts or of the met expectations differ."""
        return _shares(self.before, self.met_before) != _shares(self.after, self.met_after)


@dataclass(frozen=True)
class AnomalyChange:
    """An anomaly that one side only shows in a cell, and the number of runs that show it."""

    campaign: str
    cell: str
    anomaly: str
    runs: int


@dataclass(frozen=True)
class FigureChange:
    """`before`, `after`: the medians of the cells, averaged over the cells (geometric mean); None: that side has not
    measured it in the compared cells. `ratio`: after / before, of geometric means; `low`, `high`: its 95 % interval.
    `p`: the probability of at least this worsening by chance; `least_p`: the smallest p that this number of runs can
    show; both are corrected for the number of figures and campaigns. They are all missing (None) if a run measured zero
    or if a side has less than two runs."""

    figure: str
    unit: str
    campaign: str
    runs_before: int
    runs_after: int
    before: float | None
    after: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    least_p: float | None = None
    worse: bool | None = None


@dataclass(frozen=True)
class SettingChange:
    """A key of run.toml that differs in a cell; None: the side lacks the key."""

    campaign: str
    cell: str
    key: str
    before: Any
    after: Any


@dataclass(frozen=True)
class SideBySide:
    """`only_before`, `only_after`: cells, as `campaign/cell`, that one side has only. `notes`: what could not be
    compared."""

    before: Side
    after: Side
    cells: tuple[CellChange, ...]
    new: tuple[AnomalyChange, ...]
    gone: tuple[AnomalyChange, ...]
    figures: tuple[FigureChange, ...]
    settings: tuple[SettingChange, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Pair:
    """A cell on both sides; the campaign may have another name before."""

    campaign: str
    earlier: str
    cell: str
    before: tuple[RunRow, ...]
    after: tuple[RunRow, ...]


Sides = Mapping[str, tuple[list[float], list[float]]]
"""By cell and place, the measurements before and after."""

_Cells = Mapping[str, tuple[RunRow, ...]]
"""By name of the cell, the runs that count."""


def side_by_side(before: Path, after: Path) -> SideBySide:
    """Compare two directories, each a campaign's, a store, or one of tables. Raises `UsageError` for another directory,
    and for tables that cannot be read."""
    (rows_before, store_before), (rows_after, store_after) = _read(before), _read(after)
    first, second = _campaigns(rows_before), _campaigns(rows_after)
    if len(first) == len(second) == 1:  # two copies of one campaign may have different names
        names = [(next(iter(first)), next(iter(second)))]
    else:
        names = [(name, name) for name in first if name in second]
    pairs, only_before, only_after = list[_Pair](), list[str](), list[str]()
    for old, new in names:
        cells, new_cells = first[old], second[new]
        pairs += [_Pair(new, old, name, cells[name], new_cells[name]) for name in cells if name in new_cells]
        only_before += [f"{old}/{name}" for name in cells if name not in new_cells]
        only_after += [f"{new}/{name}" for name in new_cells if name not in cells]
    only_before += _unmatched(first, {old for old, _ in names})
    only_after += _unmatched(second, {new for _, new in names})
    notes = [
        f"{side}: tables alone; its runs are as they were when the tables were written"
        for side in (before, after)
        if _is_tables(side)
    ]
    notes += [] if pairs else ["no cell is on both sides: nothing can be compared"]
    settings, unread = _settings(pairs, store_before, store_after)
    return SideBySide(
        before=_side(before, first),
        after=_side(after, second),
        cells=tuple(map(_cell_change, pairs)),
        new=tuple(_anomalies(pairs, lambda pair: (pair.after, pair.before))),
        gone=tuple(_anomalies(pairs, lambda pair: (pair.before, pair.after))),
        figures=tuple(_figures(pairs)),
        settings=tuple(settings),
        only_before=tuple(sorted(only_before)),
        only_after=tuple(sorted(only_after)),
        notes=(*notes, *unread),
    )


def _is_tables(path: Path) -> bool:
    return (path / RUNS_FILE).exists()


def _read(path: Path) -> tuple[Sequence[RunRow], Path | None]:
    """The rows of a side, and its store; None for tables alone."""
    if _is_tables(path):
        return _tables_alone(path / RUNS_FILE), None
    try:
        of_campaign = [row for campaign in read_campaign(path) for row in campaign.runs]
        rows = of_campaign or [row for campaign in read_index(path) for row in campaign.runs]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a campaign's directory, a store or its tables") from error
    if rows:
        return rows, path.parent if of_campaign else path
    if _is_tables(path / FOLDER):
        raise UsageError(f"{path} has tables and no run; to compare the tables alone, name {path / FOLDER}")
    raise UsageError(f"{path} is neither a campaign's directory nor a store: it has no run; see `brownout list`")


def _tables_alone(file: Path) -> tuple[RunRow, ...]:
    try:
        return read_rows(file)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(
            f"{file} cannot be read: {reason}; write it again in its store with: {command('list', '--tables')}, and "
            "copy it again"
        ) from error


def _campaigns(rows: Iterable[RunRow]) -> dict[str, _Cells]:
    """By name of the campaign, its cells."""
    found: dict[str, dict[str, list[RunRow]]] = {}
    for row in rows:
        cells = found.setdefault(as_text(row.campaign), {})
        if row.counts:
            cells.setdefault(row.cell, []).append(row)
    return {name: {cell: tuple(runs) for cell, runs in cells.items()} for name, cells in found.items()}


def _unmatched(campaigns: Mapping[str, _Cells], matched: Collection[str]) -> list[str]:
    """The cells of the other campaigns, as `campaign/cell`."""
    unmatched = {name: cells for name, cells in campaigns.items() if name not in matched}
    return [f"{name}/{cell}" for name, cells in unmatched.items() for cell in cells]


def _side(path: Path, campaigns: Mapping[str, _Cells]) -> Side:
    runs = [run for cells in campaigns.values() for some in cells.values() for run in some]
    versions: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run.versions.items():
            versions.setdefault(name, set()).add(version)
    return Side(
        str(path),
        tuple(sorted(campaigns)),
        len(runs),
        sum(run.met for run in runs),
        dict(Counter(run.verdict for run in runs)),
        {name: tuple(sorted(found)) for name, found in sorted(versions.items())},
    )


def _cell_change(pair: _Pair) -> CellChange:
    return CellChange(
        pair.campaign,
        pair.cell,
        dict(Counter(run.verdict for run in pair.before)),
        dict(Counter(run.verdict for run in pair.after)),
        sum(run.met for run in pair.before),
        sum(run.met for run in pair.after),
    )


def _shares(verdicts: Mapping[str, int], met: int) -> dict[str, float]:
    count = sum(verdicts.values())
    return {name: number / count for name, number in {**verdicts, "met": met}.items()}


def _anomalies(
    pairs: Sequence[_Pair], sides: Callable[[_Pair], tuple[Sequence[RunRow], Sequence[RunRow]]]
) -> Iterator[AnomalyChange]:
    """The anomalies of the first side that the second does not show in the same cell."""
    for pair in pairs:
        these, those = sides(pair)
        known = {name for run in those for name in run.anomalies}
        seen = Counter(name for run in these for name in run.anomalies if name not in known)
        for name, runs in sorted(seen.items()):
            yield AnomalyChange(pair.campaign, pair.cell, name, runs)


def _figures(pairs: Sequence[_Pair]) -> list[FigureChange]:
    """By campaign, since campaigns put different loads on a system."""
    from orchestrator.store.comparison import compare, decide  # imports numpy, which nothing else here needs

    changes, tested = list[FigureChange](), dict[int, tuple[Figure, Sides]]()
    for campaign in dict.fromkeys(pair.campaign for pair in pairs):
        of_campaign = [(pair.before, pair.after) for pair in pairs if pair.campaign == campaign]
        before, after = (passes(samples(chain.from_iterable(cells))) for cells in zip(*of_campaign, strict=True))
        for figure in FIGURES:
            old_values, new_values = (measurements(runs, figure.of) for runs in (before, after))
            measured = {name: (old_values[name], new_values[name]) for name in old_values if name in new_values}
            sides = {name: (old, new) for name, (old, new) in measured.items() if old and new}
            if sides:
                change = _untested(campaign, figure, sides)
                if min(value for side in sides.values() for values in side for value in values) > 0 and (
                    min(change.runs_before, change.runs_after) > 1
                ):
                    tested[len(changes)] = figure, sides
                changes.append(change)
            elif any(old or new for old, new in measured.values()):
                changes.append(_untested(campaign, figure, measured))
    seen = [compare(sides, larger_is_worse=figure.larger_is_worse) for figure, sides in tested.values()]
    for (at, (figure, sides_tested)), decision in zip(tested.items(), decide(seen), strict=True):
        changes[at] = _tested(changes[at], figure, sides_tested, decision)
    return changes


def _untested(campaign: str, figure: Figure, sides: Sides) -> FigureChange:
    before, after = ([cell[side] for cell in sides.values() if cell[side]] for side in (0, 1))
    runs_before, runs_after = (sum(map(len, cells)) for cells in (before, after))
    medians = _median(before), _median(after)
    return FigureChange(figure.name, figure.unit, campaign, runs_before, runs_after, *medians)


def _median(cells: Sequence[Sequence[float]]) -> float | None:
    """The geometric mean of the cells' medians: a cell counts once, as in the ratio, however many runs a side has. None
    without cells."""
    medians = list(map(statistics.median, cells))
    if not medians:
        return None
    return medians[0] if len(medians) == 1 else statistics.geometric_mean(medians) if min(medians) > 0 else 0.0


def _tested(change: FigureChange, figure: Figure, sides: Sides, decision: FigureDecision) -> FigureChange:
    from orchestrator.store.comparison import interval_of

    ratio = 1 + decision.change if figure.larger_is_worse else 1 / (1 + decision.change)
    low, high = interval_of(sides, CONFIDENCE)
    judged = replace(change, ratio=ratio, low=low, high=high)
    return replace(judged, p=decision.p, least_p=decision.least_p, worse=decision.worse)


def _settings(pairs: Sequence[_Pair], before: Path | None, after: Path | None) -> tuple[list[SettingChange], list[str]]:
    """The settings that differ, by cell, and a sentence for each cell whose settings cannot be read. `before`, `after`:
    the sides' stores. A default that only one run recorded is not one: the other may be of a version that recorded
    none."""
    changes, unread = list[SettingChange](), list[str]()
    for pair in pairs:
        sides = _settings_of(pair.before[0], before), _settings_of(pair.after[0], after)
        reasons = [side for side in sides if isinstance(side, str)]
        unread += [f"settings of {pair.campaign}/{pair.cell} are not compared: {reason}" for reason in reasons]
        if not reasons:
            old, new = (side for side in sides if not isinstance(side, str))
            keys = old.keys() & new.keys() | {key for key in old.keys() ^ new.keys() if not key.startswith("defaults.")}
            changed = [key for key in sorted(keys) if old.get(key) != new.get(key)]
            changes += [SettingChange(pair.campaign, pair.cell, key, old.get(key), new.get(key)) for key in changed]
    return changes, unread


def _settings_of(row: RunRow, store: Path | None) -> dict[str, Any] | str:
    """The settings of the row's cell, or why they cannot be read. `store`: None for tables alone."""
    described = row if store is None else with_settings(store, row)
    if not described.settings:
        return described.settings_unread or "the table of runs has none"
    try:
        return msgspec.convert(strict_json.decode(described.settings), dict[str, Any])
    except ValueError as error:
        return f"the table of runs has damaged ones ({error})"


def percent(change: FigureChange) -> str:
    """The change as text: `+12.3 % (95 %: +8.1 to +16.9 %), p = 0.01`."""
    if change.before is None or change.after is None:
        return f"not tested: not measured {'before' if change.before is None else 'after'}"
    if change.ratio is None or change.low is None or change.high is None:
        return "not tested: one side has a single run, or a run measured zero"
    text = f"{_signed(change.ratio)} % (95 %: {_signed(change.low)} to {_signed(change.high)} %), p = {change.p:.3g}"
    if change.worse is None:
        return f"{text}; so few runs cannot show a difference: their smallest p is {change.least_p:.3g}"
    return text


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}" if math.isfinite(ratio) else "?"
