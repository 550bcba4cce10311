"""Makes the runs of a campaign one after the other: world, run, verdict - and remembers where it was."""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from history.journal import Journal
from orchestrator import toml_text
from orchestrator.campaign import Campaign
from orchestrator.description import describe
from orchestrator.errors import RunError, UsageError
from orchestrator.interrupts import Interrupts
from orchestrator.judging import Engine, JudgingError, judge
from orchestrator.plan import PlannedRun, expand
from orchestrator.progress import Progress
from orchestrator.properties import server_properties
from orchestrator.run import Equipment, Run
from orchestrator.store import RunDirectory, Store
from orchestrator.worlds.base import World, WorldSpec

STARTED_VARIABLE = "BROWNOUT_STARTED_NS"


@dataclass(frozen=True)
class ChosenWorld:
    """A kind of world, and why it was chosen."""

    kind: type[World]
    reason: str


@dataclass
class Invocation:
    """One `brownout run`: what it is to do, and what it has come to."""

    campaign: Campaign
    stamp: str
    todo: tuple[PlannedRun, ...]
    all_ids: tuple[str, ...]
    broken: list[str] = field(default_factory=list)


class Conductor:
    """Makes runs and has each judged."""

    def __init__(
        self, store: Store, world: ChosenWorld, progress: Progress, interrupts: Interrupts, engine: Engine
    ) -> None:
        self._store = store
        self._world = world
        self._progress = progress
        self._interrupts = interrupts
        self._engine = engine
        # Only the first run of an invocation starts with the command itself.
        self._started_ns = int(os.environ.get(STARTED_VARIABLE) or time.monotonic_ns())

    def conduct(self, invocation: Invocation) -> None:
        """Make all runs that are still to be made. Raises `Interrupted`."""
        for number, planned in enumerate(invocation.todo, 1):
            self._progress.run(f"{planned.cell.name} seed {planned.seed} ({number}/{len(invocation.todo)})")
            self._progress.say(f"run {planned.id}")
            try:
                self._one(planned)
            except JudgingError as error:
                invocation.broken.append(str(error))
                self._progress.say(str(error))
            self._started_ns = time.monotonic_ns()

    def _one(self, planned: PlannedRun) -> None:
        directory = self._store.create(planned)
        with directory.held():
            try:
                self._make(planned, directory)
            except RunError as error:
                self._progress.say(f"the run was not finished: {error}")
            self._progress.phase("analysis", self._engine.kind)
            verdict = judge(directory.path, self._engine)
        self._progress.say(
            f"{verdict.verdict}, expected {verdict.expected}{'' if verdict.met else ' - NOT MET'}: {planned.id}"
        )
        for reason in verdict.reasons[:5]:
            self._progress.say(f"  {reason}")

    def _make(self, planned: PlannedRun, directory: RunDirectory) -> None:
        campaign, settings = planned.campaign, planned.campaign.broker.merged(planned.cell.broker)
        world = self._world.kind(
            WorldSpec(
                run_id=planned.id,
                run_dir=directory.path,
                node_count=campaign.topology.nodes,
                properties=lambda node: server_properties(node, world.nodes, settings, f"brownout-{planned.id}"),
                mutants=planned.cell.mutants,
                filesystem=campaign.topology.filesystem,
            )
        )
        directory.write_description(describe(planned, world, self._world.reason))
        with Journal(directory.path) as journal:
            journal.run_started(run=planned.id, cell=planned.cell.name, seed=planned.seed, world=world.name)
            Run(
                Equipment(
                    planned=planned,
                    directory=directory,
                    world=world,
                    journal=journal,
                    progress=self._progress,
                    interrupts=self._interrupts,
                    started_ns=self._started_ns,
                    on_first_ack=self._engine.start,
                )
            ).execute()


def plan_invocation(
    store: Store, campaign: Campaign, *, cells: Sequence[str] = (), seeds: Sequence[int] = ()
) -> Invocation:
    """A new invocation, recorded in the store so that it can be resumed. Raises `UsageError` where it cannot be."""
    stamp = store.new_stamp()
    planned = expand(campaign, stamp, cells=cells, seeds=seeds)
    invocation = Invocation(campaign, stamp, planned, tuple(run.id for run in planned))
    path = _plan_path(store, campaign, stamp)
    content = {"campaign": str(campaign.path), "cells": list(cells), "seeds": list(seeds), "runs": invocation.all_ids}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".campaign").write_text(campaign.text, encoding="utf-8")
        path.write_text(toml_text.dump(content), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{store.root} cannot be written: {error.strerror}; give another --store") from error
    return invocation


def resume_invocation(store: Store, campaign: Campaign) -> Invocation:
    """The campaign's last invocation, with only the runs that have no verdict yet left to do.

    What an interrupted run recorded is kept under `interrupted/`. Raises `UsageError` when there is nothing to resume.
    """
    plans = sorted(_plan_path(store, campaign, "x").parent.glob("*.toml"))
    if not plans:
        raise UsageError(f"{campaign.name} was never run in {store.root}; leave out --resume")
    plan = tomllib.loads(plans[-1].read_text(encoding="utf-8"))
    if plans[-1].with_suffix(".campaign").read_text(encoding="utf-8") != campaign.text:
        raise UsageError(f"{campaign.path} has changed since it was interrupted; run it anew, without --resume")
    planned = expand(campaign, plans[-1].stem, cells=plan["cells"], seeds=plan["seeds"])
    campaign_dir = store.campaign_dir(campaign.name)
    todo = tuple(run for run in planned if not RunDirectory(campaign_dir / run.id).judged)
    for run in todo:
        _set_aside(campaign_dir, run.id)
    return Invocation(campaign, plans[-1].stem, todo, tuple(run.id for run in planned))


def _set_aside(campaign_dir: Path, run_id: str) -> None:
    """Move what an interrupted run left out of the way of the run that replaces it."""
    path = campaign_dir / run_id
    if not path.exists():
        return
    with RunDirectory(path).held():
        aside = campaign_dir / "interrupted"
        aside.mkdir(exist_ok=True)
        number = 1
        while (aside / f"{run_id}.{number}").exists():
            number += 1
        path.rename(aside / f"{run_id}.{number}")


def _plan_path(store: Store, campaign: Campaign, stamp: str) -> Path:
    return store.campaign_dir(campaign.name) / "plans" / f"{stamp}.toml"
