"""Matches a campaign's directory with its plans: each planned run and how far its verdict can be trusted. Runs that are
missing, damaged or in no plan are listed as unknown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analysis.evidence.run_directory import RunDescription
from analysis.run_row import RunRow, decided_row, unknown_row
from analysis.stored_verdict import StoredVerdict, standing_of
from analysis.verdict import UNKNOWN, Expectation
from history.regular_files import read_text
from installation.commands import command
from installation.files import default_store
from orchestrator.campaign.plan import invocation_of
from orchestrator.errors import UsageError
from orchestrator.store import run_digests
from orchestrator.store.plans import (
    PlanError,
    StoredPlan,
    StoredRun,
    open_stamp,
    plans_dir,
    read_plan,
    stamps,
    supersedes,
)
from orchestrator.store.run_digests import RunDigest, read_digests

_OF_RUNS: Final = ("run.toml", "campaign.toml", "verdict.json", "history", "nodes")
"""Files that identify a directory as a run's."""


@dataclass(frozen=True)
class Matrix:
    """`plans`: those that count. `superseded`: stamps of invocations that a later one supersedes. `doubts`: why this
    list of runs may be incomplete."""

    plans: tuple[StoredPlan, ...]
    superseded: tuple[str, ...]
    entries: tuple[RunRow, ...]
    doubts: tuple[str, ...]


def read_matrix(
    campaign_dir: Path, named: Sequence[str] = (), *, only: str | None = None, any_analysis: bool = False
) -> Matrix:
    """All invocations of a campaign that count, or those in `named` by their stamps; with `only` just that run's entry.
    `any_analysis`: as for `standing_of`.

    A later invocation of the whole campaign in the same world supersedes an earlier one; invocations after that one
    count in addition. Raises `UsageError` for a directory that cannot be read.
    """
    try:
        plan_stamps = stamps(campaign_dir)
        directories = runs_in(campaign_dir)
    except OSError as error:
        raise UsageError(f"{campaign_dir}: cannot be read: {error.strerror}") from error
    plans, doubts = _read_plans(campaign_dir, plan_stamps)
    counted = [
        plan
        for plan in plans
        if plan.stamp in named or (not named and not any(supersedes(later, plan) for later in plans))
    ]
    absent = any(not (campaign_dir / run.id).is_dir() for plan in counted for run in plan.runs)
    resumable = open_stamp(campaign_dir) if absent else None
    entries = [
        _entry(campaign_dir / run.id, plan, run, digests.get(run.id), any_analysis, resumable=resumable)
        for plan in counted
        for digests in (read_digests(campaign_dir, plan.stamp),)
        for run in plan.runs
        if only in (None, run.id)
    ]
    of_plans = {run.id for plan in plans for run in plan.runs}
    strays = [
        path for path in directories if path.name not in of_plans and (not named or invocation_of(path.name) in named)
    ]
    entries += [_stray(path, any_analysis) for path in strays if only in (None, path.name)]
    relevant = [text for stamp, text in doubts.items() if not named or stamp in named]
    if not plan_stamps:
        relevant.append(_no_plan(campaign_dir))
    superseded = () if named else tuple(plan.stamp for plan in plans if plan not in counted)
    return Matrix(tuple(counted), superseded, tuple(entries), tuple(relevant))


def runs_in(campaign_dir: Path) -> list[Path]:
    """The directories of runs in a campaign's directory, including incomplete ones."""
    return sorted({path.parent for name in _OF_RUNS for path in campaign_dir.glob(f"*/{name}")})


def is_run(path: Path) -> bool:
    """Whether this directory is a run's, possibly an incomplete one."""
    return any((path / name).exists() for name in _OF_RUNS)


def _read_plans(campaign_dir: Path, plan_stamps: Sequence[str]) -> tuple[list[StoredPlan], dict[str, str]]:
    """The readable plans, and by stamp the problem of each other plan."""
    plans, doubts = [], {}
    for stamp in plan_stamps:
        try:
            plan = read_plan(campaign_dir, stamp)
        except PlanError as error:
            doubts[stamp] = str(error)
            continue
        if plan.campaign != campaign_dir.name:
            doubts[stamp] = f"the plan of {stamp} is one of the campaign {plan.campaign}, not of {campaign_dir.name}"
        plans.append(plan)
    return plans, doubts


def _no_plan(campaign_dir: Path) -> str:
    return (
        f"{plans_dir(campaign_dir)} has no plan, so it is unknown which runs are missing; restore it from where the "
        f"campaign was run, or make the runs again with: {command('run', campaign_dir.name)}"
    )


def _entry(
    run_dir: Path,
    plan: StoredPlan,
    run: StoredRun,
    digest: RunDigest | None,
    any_analysis: bool,
    *,
    resumable: str | None,
) -> RunRow:
    """`resumable`: the stamp of the invocation that can be resumed."""
    planned = unknown_row(run.id, run.cell.name, run.seed, str(run.cell.expect), run.cell.mutants)
    if run_dir.is_dir():
        standing = standing_of(run_dir, any_analysis=any_analysis)
    else:
        standing = StoredVerdict(None, None, (_never_made(run_dir.parent, plan, resumable),))
    described, verdict = standing.description, standing.verdict
    doubts = [] if described is None else list(_another_run(plan, planned, described, run_dir))
    if verdict is not None and verdict.verdict != UNKNOWN and not any_analysis:  # older versions recorded no digests
        doubts += run_digests.doubts(run_dir.parent, run.id, verdict.evidence, digest)
    return decided_row(planned, run.cell.expect, standing, doubts)


def _never_made(campaign_dir: Path, plan: StoredPlan, resumable: str | None) -> str:
    store = [] if campaign_dir.parent == default_store().resolve() else ["--store", str(campaign_dir.parent)]
    is_open = plan.stamp == resumable
    remedy = command("run", plan.path, *(["--resume"] if is_open else []), *store, *plan.where)
    return f"the run was planned and never made; {'go on' if is_open else 'make all again'} with: {remedy}"


def _another_run(plan: StoredPlan, planned: RunRow, described: RunDescription, run_dir: Path) -> Iterator[str]:
    """Sentences: how the run differs from the planned run."""
    for subject, recorded, actual in (
        ("campaign", described.campaign, plan.campaign),
        ("cell", described.cell, planned.cell),
        ("seed", described.seed, planned.seed),
        ("expectation", str(described.expect), planned.expected),
        ("mutants", list(described.mutants), list(planned.mutants)),
    ):
        if recorded != actual:
            yield f"run.toml is not as planned: its {subject} is {recorded!r}, not {actual!r}"
    if plan.world not in ("", described.world):
        yield f"the run was made in the {described.world} world, and planned for the {plan.world} world"
    try:
        if read_text(run_dir / "campaign.toml") != plan.text:
            yield "the run's campaign.toml is not the campaign that was planned"
    except (OSError, UnicodeDecodeError) as error:
        yield f"campaign.toml cannot be read: {error}"


def _stray(run_dir: Path, any_analysis: bool) -> RunRow:
    standing = standing_of(run_dir, any_analysis=any_analysis)
    described = standing.description
    expected, planned = Expectation(), unknown_row(run_dir.name, expected=str(Expectation()))
    if described is not None:
        expected = described.expect
        planned = unknown_row(run_dir.name, described.cell, described.seed, str(expected), described.mutants)
    return decided_row(planned, expected, standing, ("the run is in no plan of the campaign",))
