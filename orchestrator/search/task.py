"""One run of an exploration as a function that Spark can send to a worker: makes, analyzes, measures, removes it."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from analysis.engines.task_map import HEAVY, TaskMap
from analysis.verdict import UNKNOWN, first_reasons
from orchestrator.campaign.parser import parse
from orchestrator.campaign.plan import PlannedRun, run_id
from orchestrator.campaign.swarm import ROLE, draw
from orchestrator.errors import UsageError
from orchestrator.running.interrupts import Interrupts
from orchestrator.running.progress import Progress
from orchestrator.search.coverage import DEEP, Stay, met, stays, visits
from orchestrator.search.run_maker import WHERE, Maker
from orchestrator.search.steps_of_run import InjectedFaults, injected_faults_of
from orchestrator.store.directories import Store
from systems import Settings
from systems.toml_tables import TomlSource


@dataclass(frozen=True)
class ExplorationTask:
    """A run to be made: a cell of a campaign, given as text, with a seed. `parent`: the number of the run whose
    schedule it varies, -1 for a seed of the campaign itself."""

    number: int
    arm: str
    text: str
    path: str
    cell: str
    seed: int
    parent: int = -1

    @property
    def own(self) -> str:
        """The campaign's text, if it is not the explored campaign's; else empty."""
        return self.text if self.parent >= 0 else ""


class Attempted(msgspec.Struct, frozen=True):
    """The result of a run. `states`: its abstract states, in the order of the first visit; `deep`: those of `DEEP`
    among them. `schedule`: its faults, None if it did not reach the end of its load. `text`: the campaign's, empty for
    the explored one. `steps`: of the event loop, a measure of cost that is equal on all machines. `stays`: by
    constellation, the longest stay under load. `met`: those of `SOMETIMES`. `profile`: the one that its seed drew."""

    number: int
    arm: str
    seed: int
    parent: int
    verdict: str
    anomalies: tuple[str, ...]
    reason: str
    states: tuple[str, ...]
    deep: tuple[str, ...]
    schedule: InjectedFaults | None
    text: str = ""
    digest: str = ""
    steps: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    stays: dict[str, Stay] = {}
    met: tuple[str, ...] = ()
    profile: str = ""


def attempt(task: ExplorationTask, scratch: Path, interrupts: Interrupts | None = None) -> Attempted:
    """Make the run of a task below `scratch` and remove it. An exception makes it unknown, with the reason. Raises
    `Interrupted` if the user can interrupt it; a worker of Spark ends with its task."""
    directory = scratch / f"{task.arm}-{task.number}"
    try:
        return _attempt(task, directory, interrupts or Interrupts(lambda: None, lambda: None))
    except Exception as error:  # a bug in Brownout or in the broker: the seed is needed to investigate it
        reason = f"seed {task.seed}: {type(error).__name__}: {error}"
        return Attempted(task.number, task.arm, task.seed, task.parent, UNKNOWN, (), reason, (), (), None, task.own)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _attempt(task: ExplorationTask, directory: Path, interrupts: Interrupts) -> Attempted:
    campaign = parse(TomlSource(task.path, task.text), Path(task.path))
    store, drawn = Store(directory), draw(campaign, task.seed)
    cell = next(cell for cell in drawn.cells if cell.name == task.cell)
    settings = drawn.settings.get(ROLE, Settings())
    planned = PlannedRun(run_id(store.new_stamp(), cell.name, task.seed), drawn, cell, task.seed, WHERE)
    made = Maker(store, Progress(quiet=True), interrupts).make(planned)
    visited = list(visits(made.directory.path, campaign.workload.topic))
    states = dict.fromkeys(visit.state for visit in visited)
    return Attempted(
        number=task.number,
        arm=task.arm,
        seed=task.seed,
        parent=task.parent,
        verdict=made.outcome,
        anomalies=made.anomalies,
        reason="; ".join(first_reasons(made.verdict.reasons, 2)),
        states=tuple(map(str, states)),
        deep=tuple(name for name, holds in DEEP.items() if any(map(holds, states))),
        schedule=_schedule(made.directory.path),
        stays=stays(visited),
        text=task.own,
        digest=made.digest,
        steps=made.steps,
        simulated_s=made.simulated_s,
        cpu_s=made.cpu_s,
        met=met(made.directory.path, settings.common, drawn.timeouts_s),
        profile=drawn.profile,
    )


def _schedule(path: Path) -> InjectedFaults | None:
    try:
        return injected_faults_of(path)
    except (UsageError, OSError, ValueError):
        return None  # a run that ended so early has no schedule to vary


def spread(workers: TaskMap, scratch: Path, tasks: Sequence[ExplorationTask]) -> list[Attempted]:
    """The results of these tasks, computed by Spark, in the order of the tasks."""
    return workers(partial(attempt, scratch=scratch), tasks, [HEAVY] * len(tasks))
