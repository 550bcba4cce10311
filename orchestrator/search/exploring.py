"""Chooses the runs of an exploration: seeds of the campaign, and variations of schedules that led to new states.

Theory of operation. Runs are made in rounds of a fixed size. The results of a round are used only in the next one, so
the same campaign, seeds and budget explore the same, on any number of cores. The parent of a variation is sampled with
a weight that falls with the number of runs that visited the same constellations, and with the number of variations
already made from it.

An exploration is stored while it runs, in `<campaign>/explorations/<stamp>/`, so that it can be resumed.
"""

import contextlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import msgspec

from analysis.evidence.run_toml import SIMULATION
from history import strict_json
from history.regular_files import read_bytes, read_text, replace_text
from nemeses import KINDS, Choice, Parameter
from orchestrator.campaign.model import Campaign, Cell
from orchestrator.campaign.swarm import draw, must_be_apart
from orchestrator.errors import UsageError
from orchestrator.running.versions import CHANGES
from orchestrator.search.campaign_document import document_of
from orchestrator.search.coverage import Stay, constellation
from orchestrator.search.steps_of_run import InjectedFault, InjectedFaults, asked_for, steps_of
from orchestrator.search.task import Attempted, ExplorationTask
from orchestrator.store.directories import Store, locked
from orchestrator.store.plans import stamp_behind
from orchestrator.worlds.selection import lab_named

# ---- Varies a schedule that led to a new state.

_LEAST_S, _MOST_S = 0.2, 8.0  # duration of a fault
_PAUSE_S: Final = 0.2
_SOON_S: Final = 0.5
_TRIES: Final = 8
_MOST_MORE: Final = 3  # faults that follow a strike
STRIKES: Final = 0.7
"""Share of strikes among the variations of runs that visited rare states; the others change the earlier faults."""
_ALL: Final = "*"
_NETWORK: Final = "the network"

Change = Callable[[list[InjectedFault], "Chance"], list[InjectedFault]]


class Chance:
    """The random choices of a variation. `kinds`: those of the campaign that scripts can inject. `rare`: the stay of
    the varied run in a rare constellation under load, in the time of its schedule; None without one."""

    def __init__(
        self, rng: Random, nodes: Sequence[str], kinds: Sequence[str], lasts_s: float, rare: Stay | None = None
    ) -> None:
        self.rng = rng
        self.nodes = tuple(nodes)
        self.kinds = tuple(kinds)
        self.lasts_s = lasts_s
        self.rare = rare

    def fault(self) -> InjectedFault:
        """A random fault."""
        kind, rng = self.rng.choice(self.kinds), self.rng
        begin_s = rng.uniform(0.0, self.lasts_s * 0.9)
        return InjectedFault(kind, self.targets(kind), begin_s, begin_s + self._length_s(), self._how(kind))

    def strike(self, stay: Stay) -> InjectedFault:
        """A random fault during a stay, on a node with a role in it."""
        kind, rng = self.rng.choice(self.kinds), self.rng
        begin_s = stay.at_s + rng.uniform(0.0, min(stay.lasts_s, _SOON_S))
        targets = self.targets(kind)
        if len(targets) == 1:
            targets = (rng.choice(stay.parts[rng.choice(sorted(stay.parts))]),)
        end_s = begin_s + max(_LEAST_S, min(self._length_s(), self.lasts_s - begin_s - _PAUSE_S))
        return InjectedFault(kind, targets, begin_s, end_s, self._how(kind))

    def _length_s(self) -> float:
        """The duration of a fault. Its logarithm is uniform: short faults leave time for more, some states need long
        ones."""
        return math.exp(self.rng.uniform(math.log(_LEAST_S), math.log(_MOST_S)))

    def targets(self, kind: str) -> tuple[str, ...]:
        """The targets of a fault of this kind."""
        if kind == "power-loss-all":
            return self.nodes
        size = max(1, len(self.nodes) // 2) if kind == "partition-halves" else 1
        return tuple(sorted(self.rng.sample(self.nodes, size)))

    def _how(self, kind: str) -> dict[str, object]:
        if KINDS[kind].takes == "groups":
            return {"direction": self.rng.choice(("both", "both", "out", "in"))}
        modes = {
            parameter.name: self.rng.choice((None, 1))
            for parameter in KINDS[kind].parameters
            if isinstance(parameter, Choice) and parameter.scripted
        }
        drawn = [
            parameter
            for parameter in KINDS[kind].parameters
            if isinstance(parameter, Parameter) and parameter.drawn is not None
        ]
        return modes | {
            parameter.name: round(self.rng.uniform(*parameter.drawn), 3)
            for parameter in drawn
            if parameter.drawn is not None
        }


def vary(parent: InjectedFaults, other: InjectedFaults, chance: Chance) -> InjectedFaults:
    """Inject a fault during a stay in a rare constellation; or make one to three changes of a schedule; or join its
    start with another's end. The result can always be injected."""
    faults = list(parent.faults)
    if chance.rare is not None and chance.rng.random() < STRIKES:
        faults = _struck(faults, chance.rare, chance)
    else:
        faults = _changed(faults, other, parent.lasted_s, chance)
    return InjectedFaults(tuple(possible(faults, parent.lasted_s)), parent.lasted_s)


def _changed(
    faults: list[InjectedFault], other: InjectedFaults, lasted_s: float, chance: Chance
) -> list[InjectedFault]:
    if chance.rng.random() < 0.2:
        cut_s = chance.rng.uniform(0.2, 0.8) * lasted_s
        faults = [fault for fault in faults if fault.begin_s < cut_s] + [
            fault for fault in other.faults if fault.begin_s >= cut_s
        ]
    for _ in range(chance.rng.randint(1, 3)):
        faults = chance.rng.choice(_CHANGES)(faults, chance)
    return faults


def _add(faults: list[InjectedFault], chance: Chance) -> list[InjectedFault]:
    return [*faults, chance.fault()]


def _drop(faults: list[InjectedFault], chance: Chance) -> list[InjectedFault]:
    dropped = chance.rng.randrange(len(faults)) if len(faults) > 1 else -1
    return [fault for number, fault in enumerate(faults) if number != dropped]


def _move(faults: list[InjectedFault], chance: Chance) -> list[InjectedFault]:
    def moved(fault: InjectedFault) -> InjectedFault:
        begin_s = max(0.0, fault.begin_s + chance.rng.gauss(0.0, 1.5))
        return replace(fault, begin_s=begin_s, end_s=begin_s + fault.end_s - fault.begin_s)

    return _one(faults, chance, moved)


def _stretch(faults: list[InjectedFault], chance: Chance) -> list[InjectedFault]:
    def stretched(fault: InjectedFault) -> InjectedFault:
        length_s = (fault.end_s - fault.begin_s) * chance.rng.choice((0.3, 0.6, 1.6, 3.0))
        return replace(fault, end_s=fault.begin_s + min(_MOST_S, max(_LEAST_S, length_s)))

    return _one(faults, chance, stretched)


def _aim(faults: list[InjectedFault], chance: Chance) -> list[InjectedFault]:
    return _one(faults, chance, lambda fault: replace(fault, targets=chance.targets(fault.kind)))


def _follow(faults: list[InjectedFault], chance: Chance) -> list[InjectedFault]:
    """Another fault while one is in force, or right after it: most deep states need that."""
    if not faults:
        return [chance.fault()]
    earlier_fault = chance.rng.choice(faults)
    return [*faults, _beside(faults, lambda: _after(earlier_fault, chance))]


def _struck(faults: list[InjectedFault], rare: Stay, chance: Chance) -> list[InjectedFault]:
    """Add a fault during a rare stay, which leads to rarer states, and further ones after it. Nothing before it is
    changed, so that the run reaches that stay again."""
    new = _beside(faults, lambda: chance.strike(rare))
    faults = [*faults, new]
    for _ in range(chance.rng.randint(1, _MOST_MORE)):
        faults = [*faults, _beside(faults, lambda: _after(new, chance))]
    return faults


def _after(earlier_fault: InjectedFault, chance: Chance) -> InjectedFault:
    """A random fault while another is in force, or right after it."""
    new, begin_s = chance.fault(), chance.rng.uniform(earlier_fault.begin_s, earlier_fault.end_s + _SOON_S)
    return replace(new, begin_s=begin_s, end_s=begin_s + new.end_s - new.begin_s)


def _beside(faults: Sequence[InjectedFault], draw: Callable[[], InjectedFault]) -> InjectedFault:
    """A fault that can start at its time beside those in force then; if none is found, one that will be postponed."""
    for _ in range(_TRIES):
        new = draw()
        if not any(fault.begin_s <= new.begin_s and _collide(fault, new) for fault in faults):
            break
    return new


def _one(
    faults: list[InjectedFault], chance: Chance, change: Callable[[InjectedFault], InjectedFault]
) -> list[InjectedFault]:
    if not faults:
        return faults
    at = chance.rng.randrange(len(faults))
    return [change(fault) if number == at else fault for number, fault in enumerate(faults)]


_CHANGES: Final[tuple[Change, ...]] = (_add, _drop, _move, _stretch, _aim, _follow)


def possible(faults: Sequence[InjectedFault], lasted_s: float) -> list[InjectedFault]:
    """The faults, changed so that each can be confirmed: one that would overlap another on a node or on the network is
    moved after it, and those that no longer fit are removed."""
    placed: list[InjectedFault] = []
    for fault in sorted(faults, key=lambda fault: fault.begin_s):
        length_s = fault.end_s - fault.begin_s
        begin_s = max([fault.begin_s, *(earlier.end_s + _PAUSE_S for earlier in placed if _collide(earlier, fault))])
        if begin_s + length_s <= lasted_s:
            placed.append(replace(fault, begin_s=begin_s, end_s=begin_s + length_s))
    return sorted(placed, key=lambda fault: fault.begin_s)


def _collide(earlier: InjectedFault, later: InjectedFault) -> bool:
    if earlier.end_s + _PAUSE_S <= later.begin_s:
        return False
    one, other = _takes(earlier), _takes(later)
    return bool(one & other) or _ALL in one | other


def _takes(fault: InjectedFault) -> set[str]:
    """What a fault needs exclusively: without power a node's packets cannot be counted."""
    if fault.kind == "power-loss-all":
        return {_ALL}
    if KINDS[fault.kind].takes == "groups":
        return {_NETWORK}
    return {*fault.targets, *([_NETWORK] if fault.kind == "power-loss" else [])}


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
            requested = self._asked.get(attempted.number, attempted.schedule)
            stays = strikeable(attempted.stays, requested, attempted.schedule)
            self._parents.append(Parent(attempted, requested, constellations, stays))
        for parent in self._parents:
            parent.used += parent.attempted.number == attempted.parent

    def _weight(self, parent: Parent) -> float:
        """The sampling weight of a parent: high if few runs visited its constellations and it was rarely varied."""
        return sum(self._runs_with[name] ** -RARITY for name in parent.constellations) / (1 + parent.used)

    def _rare(self, parent: Parent, rng: Random) -> Stay | None:
        """A stay of a run; constellations that few runs visited, or in which few faults were injected, are more
        likely."""
        if not parent.stays:
            return None
        weights = [(self._runs_with[name] + self._struck[name]) ** -RARITY for name in parent.stays]
        (chosen,) = rng.choices(list(parent.stays), weights)
        self._struck[chosen] += 1
        return parent.stays[chosen]

    def round(self, limit: int) -> list[ExplorationTask]:
        """The next runs, at most `limit`."""
        rng = Random(f"{self.source.first}/{self.name}/{len(self.made)}")
        number, seeds = len(self.made), sum(task.parent < 0 for task in self.made)
        tasks: list[ExplorationTask] = []
        for at in range(number, number + min(self.round_runs, limit)):
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
        """A variation of a run's schedule, under that run's seed; None if no fault of it can be injected, or
        if its faults must be apart."""
        (parent,) = rng.choices(self._parents, list(map(self._weight, self._parents)))
        seed, base = parent.attempted.seed, parent.asked
        campaign = draw(self.source.campaign, seed)
        if campaign.profile and must_be_apart(campaign):
            return None
        # In a swarm, only the other schedules of this seed have the same nodes.
        alike = [run for run in self._parents if self.source.campaign.swarm is None or run.attempted.seed == seed]
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


def strikeable(stays: Mapping[str, Stay], requested: InjectedFaults, happened: InjectedFaults) -> dict[str, Stay]:
    """The stays of a run, in the time of its requested schedule, in which a running node can be hit and enough time is
    left for the consequences."""
    return {
        name: stay._replace(at_s=asked_for(stay.at_s, requested, happened))
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
            attempted = result or msgspec.structs.replace(known[task.seed], number=task.number, arm=task.arm)
            if task.parent < 0:
                known[task.seed] = attempted
            arm.take(attempted)
            yield attempted


def _started_on_request(
    make: Callable[[list[ExplorationTask]], Iterable[Attempted]], todo: list[ExplorationTask]
) -> Iterator[Attempted]:
    """Yield a round's stored results before the rest of the round starts, in case that fails."""
    yield from make(todo)


def _kept(task: ExplorationTask, stored: Mapping[int, Attempted]) -> Attempted | None:
    attempted = stored.get(task.number)
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


def cheapest(made: list[Attempted], anomaly: str) -> Attempted:
    """The run with an anomaly that took the fewest steps of the event loop."""
    return min((run for run in made if anomaly in run.anomalies), key=lambda run: (run.steps, run.number))


def found_in(made: list[Attempted]) -> dict[str, int]:
    """The number of runs by anomaly."""
    counts: dict[str, int] = {}
    for attempted in made:
        for name in attempted.anomalies:
            counts[name] = counts.get(name, 0) + 1
    return counts


# ---- An exploration in a store: its parameters, and a line for each run, so that it can be resumed.

DIRECTORY: Final = "explorations"
_HEAD: Final = "exploration.json"
_RUNS: Final = "runs.jsonl"
_SUMMARY: Final = "summary.json"
_Way = Annotated[str, msgspec.Meta(pattern=rf"^({GUIDED}|{RANDOM})\Z")]


class Head(msgspec.Struct, frozen=True):
    """The parameters of an exploration. `text`: the campaign's. `arms`: the ways of choosing runs, each with the budget
    of runs, `round_runs` chosen at a time. `code`: the version that made its runs, as `versions.code`; empty if
    unknown."""

    campaign: str
    text: str
    cell: str
    first: Annotated[int, msgspec.Meta(ge=0)]
    budget: Annotated[int, msgspec.Meta(ge=1)]
    arms: Annotated[tuple[_Way, ...], msgspec.Meta(min_length=1)]
    keep_going: bool
    round_runs: Annotated[int, msgspec.Meta(ge=1)] = ROUND
    code: str = ""


class KeptRun(msgspec.Struct, frozen=True):
    """The cheapest run of an anomaly: its seed, its steps, and where it is `kept`, as `campaign/run`."""

    anomaly: str
    seed: int
    steps: int
    kept: str


class Exploration:
    """One exploration in a store: its head, and a line for each run."""

    def __init__(self, path: Path, head: Head) -> None:
        self.path = path
        self.head = head

    @classmethod
    def begin(cls, store: Store, head: Head) -> "Exploration":
        """Make the directory of a new exploration. Raises `UsageError` when that is impossible, or when an existing one
        has a newer stamp: --resume would continue that one instead."""
        directory = store.campaign_dir(head.campaign) / DIRECTORY
        now, newest = store.new_stamp(), max((path.parent.name for path in _heads(directory)), default="")
        stamp = stamp_behind(newest, now)
        if stamp is None:
            raise UsageError(
                f"{directory}: by its stamp, the exploration {newest} is newer than one that starts now ({now}), so a "
                "clock is or was wrong, and --resume would continue that one; set the clock right, or, if it was "
                f"wrong then, move {newest} away from there"
            )
        path = directory / stamp
        try:
            path.mkdir(parents=True)
            (path / _HEAD).write_bytes(msgspec.json.format(msgspec.json.encode(head)) + b"\n")
        except OSError as error:
            raise UsageError(f"{path}: cannot be made: {error.strerror}; give another --store") from error
        return cls(path, head)

    @classmethod
    def last(cls, store: Store, campaign: str, text: str, code: str) -> "Exploration":
        """The newest exploration of a campaign, to resume. Raises `UsageError` if it is missing, or if its text or
        code differs: its runs would not be comparable."""
        heads = _heads(store.campaign_dir(campaign) / DIRECTORY)
        if not heads:
            raise UsageError(f"{campaign} was never explored in {store.root}; leave out --resume")
        try:
            head = msgspec.json.decode(read_bytes(heads[-1]), type=Head)
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise UsageError(f"{heads[-1]}: cannot be read: {error}; explore again without --resume") from error
        if head.text != text:
            raise UsageError(f"{campaign} has changed since it was explored; explore it again without --resume")
        if head.code != code or code.endswith(CHANGES):
            raise UsageError(
                f"{campaign} was explored by commit {head.code or 'unknown'}, and this is {code}: results of different "
                "code are not comparable; explore it again without --resume"
            )
        return cls(heads[-1].parent, head)

    def add(self, attempted: Attempted) -> None:
        """Store the result of one run. Raises `OSError`."""
        with (self.path / _RUNS).open("ab") as file:
            file.write(msgspec.json.encode(attempted) + b"\n")

    def store_report(self, content: Mapping[str, Any]) -> None:
        """Store the report's data, as returned by `report_content`. Raises `OSError`."""
        replace_text(self.path / _SUMMARY, json.dumps(content, indent=1) + "\n")

    def stored_report(self) -> dict[str, Any]:
        """The report's data of the time when it last ended; empty if it was killed before, or the file has other
        content."""
        try:
            content = strict_json.decode(read_text(self.path / _SUMMARY))
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def kept(self) -> tuple[KeptRun, ...]:
        """The runs that it had kept when it last ended; empty if unknown."""
        try:
            return msgspec.convert(self.stored_report().get("found", ()), tuple[KeptRun, ...])
        except msgspec.ValidationError:
            return ()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the exploration: one process at a time continues it. Raises `UsageError` when another one holds it."""
        try:
            descriptor = os.open(self.path / _HEAD, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}; give another --store") from error
        with locked(descriptor, str(self.path)):
            yield

    def runs(self) -> Iterator[Attempted]:
        """The stored results, in order. An incomplete last line is ignored, so that its run is made again. Raises
        `UsageError` for any other line that cannot be read."""
        path = self.path / _RUNS
        if not path.exists():
            return
        decoder = msgspec.json.Decoder(Attempted)
        complete, _, incomplete = read_bytes(path).rpartition(b"\n")
        if incomplete:
            os.truncate(path, len(complete) + 1 if complete else 0)
        for number, line in enumerate(complete.split(b"\n") if complete else [], 1):
            try:
                attempted = decoder.decode(line)
                if attempted.arm not in self.head.arms:
                    raise msgspec.ValidationError(f"{attempted.arm!r} is not an arm of this exploration")
                yield attempted
            except (msgspec.MsgspecError, RecursionError) as error:
                raise UsageError(f"{path}:{number}: is damaged: {error}; explore again without --resume") from error


def _heads(directory: Path) -> list[Path]:
    """The heads of all explorations in the directory, oldest first."""
    return sorted(directory.glob(f"*/{_HEAD}"))
