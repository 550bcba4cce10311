"""Varies a schedule that led to a new state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from nemeses import KINDS, Parameter
from orchestrator.search.coverage import Stay
from orchestrator.search.steps_of_run import InjectedFault, InjectedFaults

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
        if kind.startswith("power-loss"):
            return {"tear": self.rng.choice((None, 1))}
        drawn = [it for it in KINDS[kind].parameters if isinstance(it, Parameter) and it.drawn is not None]
        return {it.name: round(self.rng.uniform(*it.drawn), 3) for it in drawn if it.drawn is not None}


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
        faults = [it for it in faults if it.begin_s < cut_s] + [it for it in other.faults if it.begin_s >= cut_s]
    for _ in range(chance.rng.randint(1, 3)):
        faults = chance.rng.choice(_CHANGES)(faults, chance)
    return faults


def _add(faults: list[InjectedFault], chance: Chance) -> list[InjectedFault]:
    return [*faults, chance.fault()]


def _drop(faults: list[InjectedFault], chance: Chance) -> list[InjectedFault]:
    dropped = chance.rng.randrange(len(faults)) if len(faults) > 1 else -1
    return [it for number, it in enumerate(faults) if number != dropped]


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
    before = chance.rng.choice(faults)
    return [*faults, _beside(faults, lambda: _after(before, chance))]


def _struck(faults: list[InjectedFault], rare: Stay, chance: Chance) -> list[InjectedFault]:
    """Add a fault during a rare stay, which leads to rarer states, and further ones after it. Nothing before it is
    changed, so that the run reaches that stay again."""
    new = _beside(faults, lambda: chance.strike(rare))
    faults = [*faults, new]
    for _ in range(chance.rng.randint(1, _MOST_MORE)):
        faults = [*faults, _beside(faults, lambda: _after(new, chance))]
    return faults


def _after(before: InjectedFault, chance: Chance) -> InjectedFault:
    """A random fault while another is in force, or right after it."""
    new, begin_s = chance.fault(), chance.rng.uniform(before.begin_s, before.end_s + _SOON_S)
    return replace(new, begin_s=begin_s, end_s=begin_s + new.end_s - new.begin_s)


def _beside(faults: Sequence[InjectedFault], draw: Callable[[], InjectedFault]) -> InjectedFault:
    """A fault that can start at its time beside those in force then; if none is found, one that will be postponed."""
    for _ in range(_TRIES):
        new = draw()
        if not any(it.begin_s <= new.begin_s and _collide(it, new) for it in faults):
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
    kept: list[InjectedFault] = []
    for fault in sorted(faults, key=lambda it: it.begin_s):
        length_s = fault.end_s - fault.begin_s
        begin_s = max([fault.begin_s, *(it.end_s + _PAUSE_S for it in kept if _collide(it, fault))])
        if begin_s + length_s <= lasted_s:
            kept.append(replace(fault, begin_s=begin_s, end_s=begin_s + length_s))
    return sorted(kept, key=lambda it: it.begin_s)


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
