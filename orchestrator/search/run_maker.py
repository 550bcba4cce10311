"""Makes simulated runs one after the other, for the commands that search."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from analysis.evidence.run_directory import RunDescription, RunDirectoryError, describe
from analysis.evidence.run_toml import SIMULATION
from analysis.verdict import PASS
from history import strict_json
from history.journal.writer import FILE_NAME as JOURNAL
from history.regular_files import read_text
from orchestrator.campaign.model import Campaign
from orchestrator.campaign.parser import parse
from orchestrator.campaign.plan import PlannedRun, invocation_of
from orchestrator.campaign.swarm import UNCLEAN, draw
from orchestrator.errors import Interrupted, UsageError
from orchestrator.machine.locks import RunLock
from orchestrator.running import runner
from orchestrator.running.engine import Engine
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.store.directories import LABS, RunDirectory, Store
from orchestrator.store.plans import plans_dir
from orchestrator.worlds.selection import Selection, lab_named, select_lab
from orchestrator.worlds.simulation.files import SUMMARY
from systems.toml_tables import TomlSource

if TYPE_CHECKING:
    from analysis.verdict import Verdict

WHERE: Final = ("--world", SIMULATION)
"""The options that select the simulation for any campaign."""


@dataclass(frozen=True)
class Made:
    """One run with its verdict. `digest`, `steps` (of the simulated event loop), `simulated_s` and `cpu_s` (without the
    analysis) are empty or 0 when the run ended before they were measured. `is_lawful`: it shows no more than the loss
    that unclean elections may cause."""

    directory: RunDirectory
    verdict: Verdict
    digest: str = ""
    steps: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    is_lawful: bool = False

    @property
    def outcome(self) -> str:
        """The verdict's word; `pass` for a lawful loss."""
        return PASS if self.is_lawful else self.verdict.verdict

    @property
    def anomalies(self) -> tuple[str, ...]:
        """The distinct anomalies in the verdict, without those of a lawful loss."""
        if self.is_lawful:
            return ()
        return tuple(dict.fromkeys(anomaly.name for anomaly in self.verdict.anomalies))

    @property
    def finished(self) -> bool:
        """Whether the run reached its last phase."""
        lines = read_text(self.directory.path / "history" / JOURNAL).splitlines()
        last_event: dict[str, Any] = strict_json.decode(lines[-1]) if lines else {}
        return (last_event.get("event"), last_event.get("name")) == ("phase", "done")


class Maker:
    """Makes simulated runs in one store. `plots`: with plots; `messages`: with messages.jsonl."""

    def __init__(
        self,
        store: Store,
        progress: Progress,
        interrupts: Interrupts,
        *,
        plots: bool = False,
        messages: bool = False,
    ) -> None:
        engine = Engine("in-process", plots=plots)
        selection = Selection(select_lab(SIMULATION).lab, "only in this world a seed determines the run")
        options = runner.RunOptions(selection, engine, messages=messages)
        self._runner = runner.Runner(store, options, progress, interrupts)
        self._store = store

    def make(self, planned: PlannedRun) -> Made:
        """Make one run. Raises `Interrupted`; `UsageError` for a campaign that this world cannot run."""
        stamp = invocation_of(planned.id)
        self._runner.make_all(runner.CampaignInvocation(planned.campaign, stamp, (planned,), (planned.id,)))
        run = read_made(RunDirectory(self._store.campaign_dir(planned.campaign.name) / planned.id))
        return replace(run, is_lawful=run.verdict.met and structs.replace(planned.cell.expect, at_least=1) == UNCLEAN)


def make_to_stay(store: Store, maker: Maker, campaign: Campaign, cell: str, seed: int) -> Made:
    """Make a run that stays in the store, with a plan. An interrupted run is removed, so that --resume does not
    continue it. `maker` makes runs in that store. Raises `Interrupted`; `UsageError` if the store is not writable."""
    choice: dict[str, Any] = {"cells": [cell], "seeds": [seed], "where": WHERE}
    invocation = runner.plan_invocation(store, campaign, **choice, world=SIMULATION)
    try:
        return maker.make(invocation.todo[0])
    except Interrupted:
        runner.withdraw(store, invocation)
        raise


def read_made(directory: RunDirectory) -> Made:
    """The result of a simulated run in the store. Raises `OSError` and `ValueError` without a complete verdict."""
    from analysis.verdict import VERDICT_FILE, Verdict  # imports Arrow

    verdict = Verdict.read(directory.path / VERDICT_FILE)
    summary = read_summary(directory.path)
    measured = {key: summary[key] for key in ("digest", "steps", "simulated_s", "cpu_s") if key in summary}
    return Made(directory, verdict, **measured)


def read_summary(path: Path) -> dict[str, Any]:
    """A run's `simulation.json`; empty if it is missing or incomplete."""
    try:
        summary = strict_json.decode(read_text(path / SUMMARY))
    except (OSError, ValueError, RecursionError):
        return {}
    return summary if isinstance(summary, dict) else {}


def require_simulation(campaign: Campaign, wanted_for: str) -> None:
    """Raise `UsageError` when the simulation cannot run a campaign. `wanted_for`: why it must."""
    runner.require_faults(campaign, lab_named(SIMULATION), wanted_for)


# ---- A temporary directory for runs that are not kept.


@contextlib.contextmanager
def scratch(store: Store) -> Iterator[Path]:
    """A directory that is removed at the end. If this process is killed, the next run in that store removes it, as it
    does with labs: until then it is locked. Raises `UsageError` when it cannot be made."""
    directory = store.root / LABS / store.new_stamp()
    lock = RunLock(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be made: {error.strerror}; runs are made there: use a writable store"
        ) from error
    lock.take()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        lock.release()
        for parent in (directory.parent, store.root):
            with contextlib.suppress(OSError):  # the directory may contain something else
                parent.rmdir()


# ---- Reads stored runs as plans from which they can be repeated.


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
