"""Chooses the runs of an exploration: seeds of the campaign, and variations of schedules that led to new states.

Theory of operation. Runs are made in rounds of a fixed size. The results of a round are used only in the next one, so
the same campaign, seeds and budget explore the same, on any number of cores. The parent of a variation is sampled with
a weight that falls with the number of runs that visited the same constellations, and with the number of variations
already made from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from orchestrator.campaign.model import SIMULATION, Campaign, Cell
from orchestrator.campaign.swarm import draw
from orchestrator.errors import UsageError
from orchestrator.search.campaign_document import document_of
from orchestrator.search.coverage import Stay, constellation
from orchestrator.search.steps_of_run import InjectedFaults, asked_for, steps_of
from orchestrator.search.task import Attempted, ExplorationTask
from orchestrator.search.variation import Chance, vary
from orchestrator.worlds.selection import lab_named

ROUND: Final = 4
"""Runs in a round by default. Smaller rounds use results earlier; a cluster with more cores needs larger ones."""
FRESH_SHARE: Final = 0.25
"""Share of a guided round: seeds of the campaign itself, which reach states that no variation reaches."""
RARITY: Final = 2
"""The exponent by which rare constellations count for more."""
LEAST_LEFT_S: Final = 0.5
"""Seconds of a run's load that a fault and its consequences need."""
GUIDED, RANDOM = "guided", "random"
SUFFIX: Final = "-explored"


@dataclass(frozen=True)
class ExploredCell:
    """One cell of a campaign, explored from a seed on."""

    campaign: Campaign
    cell: Cell
    first: int


@dataclass
class Parent:
    """A run whose schedule can be varied, as it was `used` times, and the constellations that it visited. `asked`: its
    requested schedule. `stays`: by constellation, those in which a fault can be injected, in the time of the requested
    schedule."""

    attempted: Attempted
    asked: InjectedFaults
    constellations: frozenset[str]
    stays: dict[str, Stay]
    used: int = 0


@dataclass
class Arm:
    """One way of choosing runs, and the results so far. `round_runs`: how many are chosen at a time. `curve`: the
    number of distinct states after each run."""

    name: str
    source: ExploredCell
    round_runs: int = ROUND
    made: list[Attempted] = field(default_factory=list)
    curve: list[int] = field(default_factory=list)
    _states: set[str] = field(default_factory=set)
    _parents: list[Parent] = field(default_factory=list)
    _runs_with: Counter[str] = field(default_factory=Counter)
    _struck: Counter[str] = field(default_factory=Counter)
    _asked: dict[int, InjectedFaults] = field(default_factory=dict)

    @property
    def states(self) -> int:
        return len(self._states)

    def take(self, attempted: Attempted) -> None:
        """Learn from a run."""
        new = set(attempted.states) - self._states
        self._states |= new
        self.made.append(attempted)
        self.curve.append(len(self._states))
        constellations = frozenset(map(constellation, attempted.states))
        self._runs_with.update(constellations)
        if new and attempted.schedule is not None:
            asked = self._asked.get(attempted.number, attempted.schedule)
            stays = strikeable(attempted.stays, asked, attempted.schedule)
            self._parents.append(Parent(attempted, asked, constellations, stays))
        for parent in self._parents:
            parent.used += parent.attempted.number == attempted.parent

    def _weight(self, parent: Parent) -> float:
        """The sampling weight of a parent: high if few runs visited its constellations and it was rarely varied."""
        return sum(self._runs_with[it] ** -RARITY for it in parent.constellations) / (1 + parent.used)

    def _rare(self, parent: Parent, rng: Random) -> Stay | None:
        """A stay of a run; constellations that few runs visited, or in which few faults were injected, are more
        likely."""
        if not parent.stays:
            return None
        weights = [(self._runs_with[it] + self._struck[it]) ** -RARITY for it in parent.stays]
        (chosen,) = rng.choices(list(parent.stays), weights)
        self._struck[chosen] += 1
        return parent.stays[chosen]

    def round(self, most: int) -> list[ExplorationTask]:
        """The next runs, at most `most`."""
        rng = Random(f"{self.source.first}/{self.name}/{len(self.made)}")
        number, seeds = len(self.made), sum(it.parent < 0 for it in self.made)
        tasks: list[ExplorationTask] = []
        for at in range(number, number + min(self.round_runs, most)):
            varied = self._variation(at, rng) if self._varies(at - number) else None
            if varied is None:
                varied, seeds = self._fresh(at, self.source.first + seeds), seeds + 1
            tasks.append(varied)
        return tasks

    def _varies(self, place: int) -> bool:
        return self.name == GUIDED and bool(self._parents) and place >= self.round_runs * FRESH_SHARE

    def _fresh(self, number: int, seed: int) -> ExplorationTask:
        campaign = self.source.campaign
        return ExplorationTask(number, self.name, campaign.text, str(campaign.path), self.source.cell.name, seed)

    def _variation(self, number: int, rng: Random) -> ExplorationTask | None:
        """A variation of a run's schedule, under that run's seed; None if no fault of it can be injected."""
        (parent,) = rng.choices(self._parents, list(map(self._weight, self._parents)))
        seed, base = parent.attempted.seed, parent.asked
        campaign = draw(self.source.campaign, seed)
        # In a swarm, only the other schedules of this seed have the same nodes.
        alike = [it for it in self._parents if self.source.campaign.swarm is None or it.attempted.seed == seed]
        (other,) = rng.choices(alike, list(map(self._weight, alike)))
        rare = self._rare(parent, rng)
        chance = Chance(rng, campaign.topology.names, kinds_of(campaign), base.lasted_s, rare)
        schedule = vary(base, other.asked, chance)
        if not schedule.faults:
            return None
        self._asked[number] = schedule
        text = text_of(self.source, schedule, parent.attempted)
        return ExplorationTask(
            number, self.name, text, str(campaign.path), self.source.cell.name, seed, parent.attempted.number
        )


def strikeable(stays: Mapping[str, Stay], asked: InjectedFaults, happened: InjectedFaults) -> dict[str, Stay]:
    """The stays of a run, in the time of its requested schedule, in which a running node can be hit and enough time is
    left for the consequences."""
    return {
        name: stay._replace(at_s=asked_for(stay.at_s, asked, happened))
        for name, stay in stays.items()
        if "up/" in name and stay.lasts_s > 0 and stay.at_s + LEAST_LEFT_S < happened.lasted_s
    }


def text_of(source: ExploredCell, schedule: InjectedFaults, parent: Attempted) -> str:
    """A schedule as a campaign file."""
    steps = steps_of(schedule, draw(source.campaign, parent.seed).topology.names)
    description = f"A variation of the faults of run {parent.number} of an exploration, seed {parent.seed}"
    document = document_of(source.campaign, source.cell, parent.seed, steps, suffix=SUFFIX, description=description)
    return document.text()


def kinds_of(campaign: Campaign) -> tuple[str, ...]:
    """The kinds of fault in variations: those of the campaign that the simulation can inject."""
    return tuple(campaign.nemesis.scheduled(lab_named(SIMULATION).capabilities))


def require_explorable(campaign: Campaign) -> None:
    """Raise `UsageError` for a campaign whose seeds all have the same faults."""
    if campaign.nemesis.kind != "random":
        raise UsageError(
            f"{campaign.path}: [nemesis] kind {campaign.nemesis.kind!r}: every seed has the same faults, so there is "
            'nothing to explore; use a campaign of kind "random", or run this one with --seeds'
        )


def explore(
    arm: Arm,
    budget: int,
    make: Callable[[list[ExplorationTask]], Iterable[Attempted]],
    *,
    known: dict[int, Attempted],
    kept: Mapping[int, Attempted],
) -> Iterator[Attempted]:
    """Make runs up to the budget, and yield each result. `known`: results of the campaign's own seeds from elsewhere.
    `kept`: by number, stored results of this arm, which may end anywhere. Neither is repeated, and the choices are the
    same as without them. Raises `UsageError` for a stored result that does not match the chosen run."""
    while len(arm.made) < budget:
        tasks = arm.round(budget - len(arm.made))
        todo = [task for task in tasks if task.number not in kept and (task.parent >= 0 or task.seed not in known)]
        fresh, pending = _started_on_request(make, todo), {task.number for task in todo}
        for task in tasks:
            result = next(fresh) if task.number in pending else _kept(task, kept)
            attempted = result or _as_of(task, known[task.seed])
            if task.parent < 0:
                known[task.seed] = attempted
            arm.take(attempted)
            yield attempted


def _started_on_request(
    make: Callable[[list[ExplorationTask]], Iterable[Attempted]], todo: list[ExplorationTask]
) -> Iterator[Attempted]:
    """Yield a round's stored results before the rest of the round starts, in case that fails."""
    yield from make(todo)


def _kept(task: ExplorationTask, kept: Mapping[int, Attempted]) -> Attempted | None:
    attempted = kept.get(task.number)
    if attempted is not None and (attempted.seed, attempted.parent, attempted.text) != (
        task.seed,
        task.parent,
        task.own,
    ):
        raise UsageError(
            f"run {task.number + 1} of the exploration was chosen by another version of Brownout, whose variations "
            "differ; explore again without --resume"
        )
    return attempted


def _as_of(task: ExplorationTask, attempted: Attempted) -> Attempted:
    """A known result of a seed, as the result of this task."""
    return msgspec.structs.replace(attempted, number=task.number, arm=task.arm)


def cheapest(made: list[Attempted], anomaly: str) -> Attempted:
    """The run with an anomaly that took the fewest steps of the event loop."""
    return min((it for it in made if anomaly in it.anomalies), key=lambda it: (it.steps, it.number))


def found_in(made: list[Attempted]) -> dict[str, int]:
    """The number of runs by anomaly."""
    counts: dict[str, int] = {}
    for attempted in made:
        for name in attempted.anomalies:
            counts[name] = counts.get(name, 0) + 1
    return counts
