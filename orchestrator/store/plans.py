"""Stores the plan of each `brownout run` invocation, so that missing runs are detected.

`<campaign>/plans/<stamp>.campaign` is the campaign's text at that time. `<stamp>.toml` has the requested cells and
seeds, the world, and the names of the planned runs. `<stamp>.digests` has a line for each finished run
(`run_digests`).
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from analysis.verdict import Expectation
from history.regular_files import replace_text
from history.time_scale import MOST, ORDINARY, is_scale
from orchestrator.campaign import toml_text
from orchestrator.campaign.expect_table import read_expect
from orchestrator.campaign.model import Campaign
from orchestrator.campaign.parser import read_seeds
from orchestrator.campaign.plan import MOST_RUNS, PlannedRun, is_selected, run_id
from orchestrator.errors import UsageError
from orchestrator.store.directories import RunDirectory, locked
from orchestrator.world_kind import AUTO
from systems.errors import InputError
from systems.toml_tables import Table, TomlSource

_PLANS = "plans"
_SECOND = len("20260102T030405")


@dataclass(frozen=True)
class PlannedCell:
    """The part of a cell that a stored verdict is compared with."""

    name: str
    mutants: tuple[str, ...]
    expect: Expectation


@dataclass(frozen=True)
class StoredRun:
    """One planned run: the name of its directory, its cell and its seed."""

    id: str
    cell: PlannedCell
    seed: int


@dataclass(frozen=True)
class StoredPlan:
    """One invocation. `whole`: it covers every cell with every seed of the campaign. `where`: the options that selected
    another world than the campaign's. `world`: of the runs; empty if unknown (older plans left it to the machine).
    `select`: the patterns that the names of its runs match, as for `plan.is_selected`; empty for all.
    `time_scales`: the scales that the world could have; runs of older plans had the ordinary one. `text`: the
    campaign's."""

    stamp: str
    campaign: str
    path: str
    cells: tuple[str, ...]
    seeds: tuple[int, ...]
    select: tuple[str, ...]
    where: tuple[str, ...]
    world: str
    runs: tuple[StoredRun, ...]
    whole: bool
    time_scales: tuple[float, ...]
    text: str

    @property
    def inventory(self) -> str:
        """The `--inventory` of the invocation; empty without one."""
        return dict(pairwise(self.where)).get("--inventory", "")


class PlanError(Exception):
    """A stored plan is damaged; the message names the file and the remedy."""


def plans_dir(campaign_dir: Path) -> Path:
    return campaign_dir / _PLANS


def keep_plan(
    campaign_dir: Path,
    campaign: Campaign,
    stamp: str,
    planned: Sequence[PlannedRun],
    *,
    cells: Sequence[str],
    seeds: Sequence[int],
    select: Sequence[str] = (),
    where: Sequence[str],
    world: str,
    time_scales: Sequence[float] = (ORDINARY,),
) -> bool:
    """Write the plan of a new invocation; False if its stamp is taken. `world`: the name of the chosen world.
    `time_scales`: as of `StoredPlan`. Raises `OSError`."""
    content = {
        "campaign": str(campaign.path),
        "cells": list(cells),
        "seeds": list(seeds),
        "select": list(select),
        "where": list(where),
        "world": world,
        "time_scales": list(time_scales),
        "runs": [run.id for run in planned],
    }
    path = plans_dir(campaign_dir) / f"{stamp}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:  # a second process with the same stamp must not replace the first one's plan
        os.close(os.open(path.with_suffix(".campaign"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except FileExistsError:
        return False
    try:
        for target, text in ((path.with_suffix(".campaign"), campaign.text), (path, toml_text.dump(content))):
            replace_text(target, text)
    except OSError:
        drop_plan(campaign_dir, stamp)
        raise
    return True


@contextlib.contextmanager
def held_plan(campaign_dir: Path, stamp: str) -> Iterator[None]:
    """Lock an invocation, so that one process at a time makes its runs or removes them. The lock also covers an
    invocation whose plan is not written yet. Raises `UsageError` when another process holds it."""
    path = plans_dir(campaign_dir) / f"{stamp}.toml"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise UsageError(f"{path}: cannot be locked: {error.strerror}; give another --store") from error
    with locked(descriptor, f"{campaign_dir}: the invocation {stamp}"):
        yield


def drop_plan(campaign_dir: Path, stamp: str) -> None:
    """Remove an invocation's plan. Raises `OSError`."""
    for suffix in (".toml", ".campaign", ".digests"):  # without the first the invocation does not exist
        (plans_dir(campaign_dir) / f"{stamp}{suffix}").unlink(missing_ok=True)


def stamps(campaign_dir: Path) -> tuple[str, ...]:
    """Of all invocations with any file, oldest first."""
    plan_files = plans_dir(campaign_dir).glob("*")
    mine = (path for path in plan_files if not path.name.startswith("."))  # macOS writes `._x` beside `x`
    return tuple(sorted({path.stem for path in mine if path.suffix in (".toml", ".campaign")}))


def newest_stamp(campaign_dir: Path, stamp: str) -> str:
    """A stamp for a new invocation, greater than all others of its campaign. `stamp`: by the clock, to the second.
    Raises `UsageError` if an existing invocation is newer than the clock: it would supersede the new runs."""
    newest = max(stamps(campaign_dir), default="")
    if newer := stamp_behind(newest, stamp):
        return newer
    raise UsageError(
        f"{campaign_dir}: by its stamp, the invocation {newest} is newer than one that starts now ({stamp}), so a "
        "clock is or was wrong, and the new runs would not count; set the clock right, or, if it was wrong then, "
        f"move plans/{newest}.* and {newest}-* away from there"
    )


def stamp_behind(newest: str, stamp: str) -> str | None:
    """`stamp`, or another one within the same second, if it is greater than `newest`; else None."""
    if stamp > newest:
        return stamp
    return f"{newest}00" if stamp[:_SECOND] == newest[:_SECOND] else None


def read_plan(campaign_dir: Path, stamp: str) -> StoredPlan:
    """Raises `PlanError` for a plan that cannot be read, or that does not follow from its campaign."""
    path = plans_dir(campaign_dir) / f"{stamp}.toml"
    try:
        return _read(
            TomlSource.read_stored(path).root(), TomlSource.read_stored(path.with_suffix(".campaign")).root(), stamp
        )
    except (InputError, RecursionError) as error:
        raise PlanError(
            f"the plan of {stamp} is damaged, so it is unknown which runs belong to it: {error}; restore it, or "
            "make the runs again"
        ) from error


def supersedes(later: StoredPlan, plan: StoredPlan) -> bool:
    """Whether an invocation supersedes an earlier one: it covers the whole campaign in the same world, however that was
    given."""
    is_same_world = bool(plan.world) and later.world == plan.world and later.inventory == plan.inventory
    return later.stamp > plan.stamp and later.whole and is_same_world


def open_stamp(campaign_dir: Path) -> str | None:
    """The newest invocation that can be resumed: a run of it has no verdict, or its plan cannot be read. Superseded
    invocations are ignored. None if all are finished."""
    later: list[StoredPlan] = []
    for stamp in reversed(stamps(campaign_dir)):
        try:
            plan = read_plan(campaign_dir, stamp)
        except PlanError:
            return stamp
        is_superseded = any(supersedes(newer, plan) for newer in later)
        if not is_superseded and not all(RunDirectory(campaign_dir / run.id).judged for run in plan.runs):
            return stamp
        later.append(plan)
    return None


def _read(plan: Table, campaign: Table, stamp: str) -> StoredPlan:
    all_cells = _cells(campaign)
    given_seeds = read_seeds(campaign.table("seeds"))
    all_seeds = range(given_seeds.first, given_seeds.first + given_seeds.count)
    names, seeds = plan.texts("cells"), _seeds(plan)
    unknown = [name for name in names if name not in {cell.name for cell in all_cells}]
    if unknown:
        plan.refuse(f"cells: the campaign has no cell {unknown[0]!r}", "cells")
    chosen = [cell for cell in all_cells if not names or cell.name in names]
    asked: Sequence[int] = seeds or all_seeds
    ids = plan.texts("runs")
    select = plan.texts("select", ())  # an older plan has none
    planned = len(asked) * len(chosen)
    if planned > MOST_RUNS or (len(ids) != planned and not select):  # the campaign may have any number of seeds
        asked = ()
    runs = tuple(
        StoredRun(run_id(stamp, cell.name, seed), cell, seed)
        for seed in asked
        for cell in chosen
        if is_selected(cell.name, seed, select)
    )
    if not runs or ids != tuple(run.id for run in runs):
        plan.refuse("runs: are not those that follow from the campaign, its cells and seeds", "runs")
    return StoredPlan(
        stamp=stamp,
        campaign=campaign.text("name"),
        path=plan.text("campaign"),
        cells=names,
        seeds=seeds,
        select=select,
        where=plan.texts("where", ()),
        world=_world(plan, campaign),
        runs=runs,
        whole=len(runs) == planned and len(chosen) == len(all_cells) and (not seeds or _has_all(seeds, all_seeds)),
        time_scales=_time_scales(plan),
        text=campaign.source.text,
    )


def _time_scales(plan: Table) -> tuple[float, ...]:
    scales = plan.raw("time_scales", [ORDINARY])
    if not isinstance(scales, list) or not all(map(is_scale, scales)):
        plan.refuse(f"time_scales: is not a list of numbers from {ORDINARY:g} to {MOST:g}", "time_scales")
    return tuple(map(float, scales))


def _world(plan: Table, campaign: Table) -> str:
    """As stored in the plan; in an older plan, the world that was named."""
    selection = plan.texts("where", ())
    named = dict(pairwise(selection))
    implied = "inventory" if "--inventory" in named else campaign.table("topology").text("world", AUTO)
    world = named.get("--world", implied)
    return plan.text("world", "" if world == AUTO else world)


def _cells(campaign: Table) -> tuple[PlannedCell, ...]:
    matching = tuple(
        PlannedCell(table.text("name"), table.texts("mutants", ()), read_expect(table.table("expect")))
        for table in campaign.tables("cell")
    )
    return matching or (PlannedCell("main", (), Expectation()),)


def _has_all(seeds: Sequence[int], needed: range) -> bool:
    return len(needed) <= len(seeds) and set(needed) <= set(seeds)


def _seeds(plan: Table) -> tuple[int, ...]:
    seeds = plan.raw("seeds", None)
    if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
        plan.refuse("seeds: is not a list of whole numbers", "seeds")
    return tuple(seeds)


def chosen_stamps(campaign_dir: Path, named: Sequence[str]) -> tuple[str, ...]:
    """The named invocations, each by its stamp or its first characters. Raises `UsageError` for an unknown one."""
    plan_stamps = stamps(campaign_dir)
    plans = []
    for name in named:
        fitting = [stamp for stamp in plan_stamps if stamp.startswith(name)] if name else []
        if len(fitting) != 1 and name not in fitting:
            problem = "is ambiguous" if fitting else "is not an invocation"
            listed = ", ".join(plan_stamps) or "there are none"
            raise UsageError(f"--invocation {name}: {problem} of {campaign_dir}; invocations are: {listed}")
        plans.append(name if name in fitting else fitting[0])
    return tuple(sorted(set(plans)))
