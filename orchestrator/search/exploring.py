"""Which runs an exploration makes: seeds of the campaign, and variations of schedules that led to new states.

Runs are made in rounds of one size, whatever makes them, and what a round led to is known only to the next: so the
same campaign, seeds and budget explore the same, on any number of cores.
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
from orchestrator.search.steps_of_run import Inflictions, asked_for, steps_of
from orchestrator.search.task import Attempted, ExplorationTask
from orchestrator.search.variation import Chance, vary
from orchestrator.worlds.selection import lab_named

ROUND: Final = 4
"""Runs, where nobody asks for another number: the fewer, the sooner is learned from them; a cluster of more cores needs
more of them."""
FRESH_SHARE: Final = 0.25
"""Of a guided round: seeds of the campaign itself, which lead to where no variation does."""
RARITY: Final = 2
"""How much rarer constellations count for more."""
LEAST_LEFT_S: Final = 0.5
"""Of a run's load, for a fault that strikes in it and what comes of that."""
GUIDED, RANDOM = "guided", "random"
SUFFIX: Final = "-explored"


@dataclass(frozen=True)
class ExploredCell:
    """What is explored: one cell of a campaign, from a seed on."""

    campaign: Campaign
    cell: Cell
    first: int


@dataclass
class Parent:
    """A run whose schedule may be varied, as it was `used` times; it came through these constellations of replicas.
    `asked`: the schedule that it was given. `stays`: by constellation, those in which a fault can strike, by the clock
    of what was asked for."""

    attempted: Attempted
    asked: Inflictions
    constellations: frozenset[str]
    stays: dict[str, Stay]
    used: int = 0


@dataclass
class Arm:
    """One way of choosing runs, and what they came to so far. `round_runs`: how many are chosen at a time.
    `curve`: how many different states after each run."""

    name: str
    source: ExploredCell
    round_runs: int = ROUND
    made: list[Attempted] = field(default_factory=list)
    curve: list[int] = field(default_factory=list)
    _states: set[str] = field(default_factory=set)
    _parents: list[Parent] = field(default_factory=list)
    _runs_with: Counter[str] = field(default_factory=Counter)
    _struck: Counter[str] = field(default_factory=Counter)
    _asked: dict[int, Inflictions] = field(default_factory=dict)

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
        """How much is to be hoped for of a run's variations: what few runs came through, it did; and they were few."""
        return sum(self._runs_with[it] ** -RARITY for it in parent.constellations) / (1 + parent.used)

    def _rare(self, parent: Parent, rng: Random) -> Stay | None:
        """One of a run's stays, the rather, the fewer runs came there or were struck there."""
        if not parent.stays:
            return None
        weights = [(self._runs_with[it] + self._struck[it]) ** -RARITY for it in parent.stays]
        (chosen,) = rng.choices(list(parent.stays), weights)
        self._struck[chosen] += 1
        return parent.stays[chosen]

    def round(self, most: int) -> list[ExplorationTask]:
        """The next runs, at most so many."""
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
        """A variation of a run's schedule, under that run's seed; None where nothing of it can be inflicted."""
        (parent,) = rng.choices(self._parents, list(map(self._weight, self._parents)))
        seed, base = parent.attempted.seed, parent.asked
        campaign = draw(self.source.campaign, seed)
        # Of a cluster that is drawn only that seed's other schedules have its nodes.
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


def strikeable(stays: Mapping[str, Stay], asked: Inflictions, happened: Inflictions) -> dict[str, Stay]:
    """By the clock of what was asked for, the stays of a run in which somebody runs who can be hit, when time is left
    for what comes of it."""
    return {
        name: stay._replace(at_s=asked_for(stay.at_s, asked, happened))
        for name, stay in stays.items()
        if "up/" in name and stay.lasts_s > 0 and stay.at_s + LEAST_LEFT_S < happened.lasted_s
    }


def text_of(source: ExploredCell, schedule: Inflictions, parent: Attempted) -> str:
    """A schedule as a campaign of its own."""
    steps = steps_of(schedule, draw(source.campaign, parent.seed).topology.names)
    description = f"A variation of the faults of run {parent.number} of an exploration, seed {parent.seed}"
    document = document_of(source.campaign, source.cell, parent.seed, steps, suffix=SUFFIX, description=description)
    return document.text()


def kinds_of(campaign: Campaign) -> tuple[str, ...]:
    """The kinds of fault that variations have: those of the campaign that the simulated world can inflict."""
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
    """Make runs until there are so many, and give each once it is known. `known`: runs of the campaign's own seeds that
    were made before. `kept`: by number, what this arm's runs came to when it was explored before, which may have ended
    anywhere. Neither are made again, and all is chosen as if nothing had been kept. Raises `UsageError` for a kept run
    that is not the one that is chosen."""
    while len(arm.made) < budget:
        tasks = arm.round(budget - len(arm.made))
        todo = [task for task in tasks if task.number not in kept and (task.parent >= 0 or task.seed not in known)]
        fresh, pending = _begun_when_asked(make, todo), {task.number for task in todo}
        for task in tasks:
            told = next(fresh) if task.number in pending else _kept(task, kept)
            attempted = told or _as_of(task, known[task.seed])
            if task.parent < 0:
                known[task.seed] = attempted
            arm.take(attempted)
            yield attempted


def _begun_when_asked(
    make: Callable[[list[ExplorationTask]], Iterable[Attempted]], todo: list[ExplorationTask]
) -> Iterator[Attempted]:
    """What is kept of a round is known before the rest is begun, whatever becomes of that."""
    yield from make(todo)


def _kept(task: ExplorationTask, kept: Mapping[int, Attempted]) -> Attempted | None:
    attempted = kept.get(task.number)
    if attempted is not None and (attempted.seed, attempted.parent, attempted.text) != (
        task.seed,
        task.parent,
        task.own,
    ):
        raise UsageError(
            f"run {task.number + 1} of the exploration was chosen by another version of Brownout, which varied "
            "otherwise; explore anew, without --resume"
        )
    return attempted


def _as_of(task: ExplorationTask, attempted: Attempted) -> Attempted:
    """What a seed came to, whoever asks."""
    return msgspec.structs.replace(attempted, number=task.number, arm=task.arm)


def cheapest(made: list[Attempted], anomaly: str) -> Attempted:
    """The run that showed an anomaly with the fewest steps of the event loop."""
    return min((it for it in made if anomaly in it.anomalies), key=lambda it: (it.steps, it.number))


def found_in(made: list[Attempted]) -> dict[str, int]:
    """How many runs showed each anomaly."""
    counts: dict[str, int] = {}
    for attempted in made:
        for name in attempted.anomalies:
            counts[name] = counts.get(name, 0) + 1
    return counts
