"""Expands a campaign's matrix: one planned run for each cell and seed."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from installation.commands import command
from nemeses import Schedule, plan_schedule
from orchestrator.campaign.lookup import shown
from orchestrator.campaign.model import Campaign, Cell
from orchestrator.campaign.swarm import draw
from orchestrator.errors import UsageError
from systems.toml_tables import suggestion
from workloads.settings import OwnClient

MOST_RUNS = 100_000  # at one minute each: ten weeks


@dataclass(frozen=True)
class PlannedRun:
    """One run to be made. `id` names its directory; everything random follows from the seed.

    `where`: the command-line options that select another world than the campaign's."""

    id: str
    campaign: Campaign
    cell: Cell
    seed: int
    where: tuple[str, ...] = ()

    def derived_seed(self, purpose: str) -> int:
        """A seed for one purpose. It does not depend on the cell, so that all cells get the same schedule."""
        return derived_seed(self.seed, purpose)

    def schedule(self, capabilities: Collection[str]) -> Schedule:
        """The faults of a schedule, or of a random nemesis in a world with these capabilities, drawn from the seed.
        Raises `ScheduleError`, as `plan_schedule` does."""
        nemesis = self.campaign.nemesis
        if nemesis.moments:
            return Schedule(self.seed, tuple(sorted((fault.plan for fault in nemesis.moments), key=lambda p: p.at)))
        drawn = plan_schedule(
            self.derived_seed("nemesis"),
            nemesis.scheduled(capabilities),
            total_s=self.campaign.workload.duration_s,
            interval_s=nemesis.interval_s,
            duration_s=nemesis.duration_s,
            overlap=nemesis.overlap,
            known=nemesis.known_kinds,
        )
        return drawn.without(nemesis.quiet_s)

    @property
    def client(self) -> OwnClient:
        """The user-defined client, with the options of this cell."""
        given = self.campaign.client
        return replace(given, options={**given.options, **self.cell.client_options})

    @property
    def replay(self) -> str:
        """The command that repeats this run."""
        which = ("--cell", self.cell.name, "--seed", str(self.seed))
        return command("run", shown(self.campaign.path), *which, *self.where)


def derived_seed(seed: int, purpose: str) -> int:
    """A seed for one purpose, derived from a run's seed."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def expand(
    campaign: Campaign,
    stamp: str,
    *,
    cells: Sequence[str] = (),
    seeds: Sequence[int] = (),
    select: Sequence[str] = (),
    where: Sequence[str] = (),
) -> tuple[PlannedRun, ...]:
    """Every cell with every seed, or only the named ones. `stamp` distinguishes the invocation's runs from all others.
    `select`: as for `is_selected`.

    Raises `UsageError` as `check_size` does, and if no run is selected.
    """
    check_size(campaign, cells=cells, seeds=seeds)
    found = tuple(expansion(campaign, stamp, cells=cells, seeds=seeds, select=select, where=where))
    if not found:
        names = ", ".join(f"{cell.name}-{campaign.seeds.first}" for cell in campaign.cells[:3])
        raise UsageError(f"--select {' '.join(select)}: no run has such a name; names are CELL-SEED, such as {names}")
    return found


def check_size(campaign: Campaign, *, cells: Sequence[str] = (), seeds: Sequence[int] = ()) -> None:
    """Raise `UsageError` for a cell that the campaign does not have, and for more than `MOST_RUNS` runs."""
    count = count_of(campaign, cells=cells, seeds=seeds)
    if count > MOST_RUNS:
        raise UsageError(
            f"{campaign.path}: {count:,} runs are more than the {MOST_RUNS:,} that one invocation makes; ask for "
            "fewer with --seeds, and make the others in a later invocation"
        )


def expansion(
    campaign: Campaign,
    stamp: str,
    *,
    cells: Sequence[str] = (),
    seeds: Sequence[int] = (),
    select: Sequence[str] = (),
    where: Sequence[str] = (),
) -> Iterator[PlannedRun]:
    """As `expand`, as an iterator. Raises `UsageError` before the first run."""
    _chosen(campaign, cells)
    return (
        PlannedRun(run_id(stamp, cell.name, seed), drawn, cell, seed, tuple(where))
        for seed in _seeds(campaign, seeds)
        for drawn in (draw(campaign, seed),)
        for cell in _chosen(drawn, cells)
        if is_selected(cell.name, seed, select)
    )


def count_of(campaign: Campaign, *, cells: Sequence[str] = (), seeds: Sequence[int] = ()) -> int:
    """The number of runs. Raises `UsageError` for a cell that the campaign does not have."""
    return len(_chosen(campaign, cells)) * len(_seeds(campaign, seeds))


def _seeds(campaign: Campaign, asked: Sequence[int]) -> Sequence[int]:
    first, count = campaign.seeds.first, campaign.seeds.count
    return asked or range(first, first + count)


def _chosen(campaign: Campaign, asked: Sequence[str]) -> list[Cell]:
    names = [cell.name for cell in campaign.cells]
    for name in asked:
        if name not in names:
            raise UsageError(f"{campaign.path}: unknown cell {name!r}; {suggestion(name, names)}")
    return [cell for cell in campaign.cells if not asked or cell.name in asked]


def is_selected(cell: str, seed: int, patterns: Sequence[str]) -> bool:
    """Whether the name CELL-SEED matches one of the patterns, which have the wildcards `*`, `?` and `[abc]`. Without
    patterns every run is selected."""
    return not patterns or any(fnmatchcase(f"{cell}-{seed}", pattern) for pattern in patterns)


def run_id(stamp: str, cell: str, seed: int) -> str:
    """The name of a run's directory. `invocation_of` returns its stamp."""
    return f"{stamp}-{cell}-{seed}"


def invocation_of(run_id: str) -> str:
    """The stamp in a run's id."""
    return run_id.split("-", 1)[0]
