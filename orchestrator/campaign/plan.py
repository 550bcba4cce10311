"""The matrix of a campaign, expanded: one planned run for each cell and seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from installation.commands import command
from orchestrator.campaign.finding import shown
from orchestrator.campaign.model import Campaign, Cell
from orchestrator.errors import UsageError
from systems.toml_tables import suggestion
from workloads.settings import OwnClient


@dataclass(frozen=True)
class PlannedRun:
    """One run to be made. `id` names its directory; the seed settles everything that is drawn by chance.

    `where`: the options by which another world than the campaign's was asked for, as they stand on the command line."""

    id: str
    campaign: Campaign
    cell: Cell
    seed: int
    where: tuple[str, ...] = ()

    def derived_seed(self, purpose: str) -> int:
        """A seed for one purpose. It does not depend on the cell, so that all cells meet the same schedule."""
        digest = hashlib.sha256(f"{self.seed}/{purpose}".encode()).digest()
        return int.from_bytes(digest[:6], "big")

    @property
    def client(self) -> OwnClient:
        """The client that the user brings, with the options of this cell."""
        given = self.campaign.client
        return replace(given, options={**given.options, **self.cell.client_options})

    @property
    def replay(self) -> str:
        """The one command that makes this run again."""
        which = ("--cell", self.cell.name, "--seed", str(self.seed))
        return command("run", shown(self.campaign.path), *which, *self.where)


def expand(
    campaign: Campaign,
    stamp: str,
    *,
    cells: Sequence[str] = (),
    seeds: Sequence[int] = (),
    where: Sequence[str] = (),
) -> tuple[PlannedRun, ...]:
    """Every cell with every seed, or only those named. `stamp` sets the runs of one invocation apart from all others.

    Raises `UsageError` for a cell that the campaign does not have.
    """
    names = [cell.name for cell in campaign.cells]
    for name in cells:
        if name not in names:
            raise UsageError(f"{campaign.path}: there is no cell {name!r}; {suggestion(name, names)}")
    chosen = [cell for cell in campaign.cells if not cells or cell.name in cells]
    first, count = campaign.seeds.first, campaign.seeds.count
    return tuple(
        PlannedRun(run_id(stamp, cell.name, seed), campaign, cell, seed, tuple(where))
        for seed in (seeds or range(first, first + count))
        for cell in chosen
    )


def run_id(stamp: str, cell: str, seed: int) -> str:
    """The name of a run's directory. `invocation_of` gives the stamp back."""
    return f"{stamp}-{cell}-{seed}"


def invocation_of(run_id: str) -> str:
    """The stamp in a run's id."""
    return run_id.split("-", 1)[0]
