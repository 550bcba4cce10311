"""Reads stored runs as plans from which they can be repeated."""

import contextlib
from pathlib import Path

from analysis.evidence.run_directory import RunDescription, RunDirectoryError, describe
from history.regular_files import read_text
from orchestrator.campaign.model import SIMULATION, Campaign
from orchestrator.campaign.parser import parse
from orchestrator.campaign.plan import PlannedRun
from orchestrator.campaign.swarm import draw
from orchestrator.errors import UsageError
from orchestrator.search.run_maker import WHERE
from orchestrator.store.directories import RunDirectory, Store
from orchestrator.store.plans import plans_dir
from systems.toml_tables import TomlSource


def stored_plan(directory: RunDirectory) -> PlannedRun:
    """The plan of a run of the simulation, as its seed drew it. Raises `UsageError` for a run of another world, and for
    one that cannot be read."""
    described = _described(directory)
    if described.world != SIMULATION:
        raise UsageError(
            f"{directory.id} was made in the {described.world} world, where the machine's clock, scheduler and network "
            f"affect the run; only runs of the {SIMULATION} world can be repeated exactly. To run its "
            f"campaign with its seed: {described.replay}"
        )
    campaign = _campaign_of(directory, described.name)
    drawn = draw(campaign, described.seed)
    cells = {cell.name: cell for cell in drawn.cells}
    if described.cell not in cells:
        raise UsageError(f"{directory.path}/campaign.toml: it has no cell {described.cell!r}, which run.toml names")
    return PlannedRun(described.name, drawn, cells[described.cell], described.seed, WHERE)


def runs_of_seed(store: Store, campaign: Campaign, cell: str, seed: int) -> list[RunDirectory]:
    """The simulated runs in a store of this campaign's exact text with a cell and a seed, oldest first."""
    directories = []
    for directory in store.runs(store.campaign_dir(campaign.name)):
        try:
            described = describe(directory.path)
            text = read_text(directory.path / "campaign.toml")
        except (RunDirectoryError, OSError, UnicodeDecodeError):
            continue  # an unreadable run cannot be compared with
        if (described.world, described.cell, described.seed, text) == (SIMULATION, cell, seed, campaign.text):
            directories.append(directory)
    return directories


def _described(directory: RunDirectory) -> RunDescription:
    try:
        return describe(directory.path)
    except RunDirectoryError as error:
        raise UsageError(str(error)) from error


def _campaign_of(directory: RunDirectory, run: str) -> Campaign:
    """The campaign at the time of the run; with its own path if that file is unchanged."""
    copy = directory.path / "campaign.toml"
    source = TomlSource.read(copy)
    plan = plans_dir(directory.path.parent) / f"{run.split('-', 1)[0]}.toml"
    path = copy
    if plan.exists():
        named = Path(TomlSource.read(plan).root().text("campaign"))
        with contextlib.suppress(OSError, UnicodeDecodeError):  # the file may have any content by now
            path = named if read_text(named) == source.text else copy
    return parse(source, path)
