"""`brownout run --dry-run`: the runs that a campaign stands for, and where they would be made; nothing is started."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from orchestrator.campaign.model import Campaign
from orchestrator.campaign.plan import PlannedRun, count_of, expand, expansion
from orchestrator.printing import say
from orchestrator.running.runner import require_faults
from orchestrator.worlds.lab import LabSpec
from orchestrator.worlds.selection import Selection, select_lab

MOST_SHOWN = 40
_COLUMNS = ("cell", "seed", "mutants", "expect", "replay")


def dry_run(
    campaign: Campaign,
    world: str,
    spec: LabSpec,
    *,
    cells: Sequence[str],
    seeds: Sequence[int],
    select: Sequence[str],
    where: Sequence[str],
    as_json: bool,
) -> None:
    """Print the plan: as a table its first runs, as JSON all of them, one after the other.

    Raises `UsageError` for what would be refused before the first run: a world that this machine cannot give or that
    cannot do what the script needs, an inventory that is not understood or too small, a cell that is not there.
    """
    selection = _world(campaign, world, spec)
    runs: Iterable[PlannedRun] = expansion(campaign, "dry", cells=cells, seeds=seeds, where=where)
    count = count_of(campaign, cells=cells, seeds=seeds)
    if select:
        runs = expand(campaign, "dry", cells=cells, seeds=seeds, select=select, where=where)
        count = len(runs)
    if as_json:
        _print_json(campaign, selection, runs)
        return
    from orchestrator.printing import show

    title = f"{campaign.name}: {count:,} run{'s' if count > 1 else ''}, {selection.lab.name} world ({selection.reason})"
    show(title, [_row(run) for run in islice(runs, MOST_SHOWN)], _COLUMNS)
    if count > MOST_SHOWN:
        print(f"and {count - MOST_SHOWN:,} more; --json prints all of them")
    for step in campaign.nemesis.steps:
        say(f"  {step.title}{' - ' + step.why if step.why else ''}")


def _world(campaign: Campaign, world: str, spec: LabSpec) -> Selection:
    selection = select_lab(world, campaign.topology.filesystem)
    if spec.inventory is None:
        require_faults(campaign, selection.lab, selection.reason)
    else:
        require_faults(campaign, selection.lab(spec), selection.reason)  # what it can do stands in the inventory
    return selection


def _row(run: PlannedRun) -> dict[str, Any]:
    return {
        "cell": run.cell.name,
        "seed": run.seed,
        "mutants": list(run.cell.mutants),
        "expect": str(run.cell.expect),
        "nemesis_seed": run.derived_seed("nemesis"),
        "replay": run.replay,
    }


def _print_json(campaign: Campaign, selection: Selection, runs: Iterable[PlannedRun]) -> None:
    """A million runs are printed as they are planned, and never held."""
    head = {"campaign": campaign.name, "world": selection.lab.name, "world_reason": selection.reason}
    print(json.dumps(head, indent=1)[:-2] + ',\n "runs": [')
    separator = ""
    for run in runs:
        print(f"{separator}  {json.dumps(_row(run))}", end="")
        separator = ",\n"
    print("\n ]\n}")
