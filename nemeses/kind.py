"""What a kind of fault is: everything that anyone asks about it, in one class, in one file (`nemeses/kinds/`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Generic, Literal, TypeVar

from history.damage import Damage
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.mechanism import Mechanism
from nemeses.parameters import Choice, Direction, Files, Parameter, ParameterError
from nemeses.targeting import Aim, ClusterView, candidates

Need = Literal["power", "network", "netem", "stall", "freeze", "clock", "drift", "wire", "disk"]
"""What a world may have beside hosts with a service on them: a power switch, a network that can be cut, netem on its
hosts, a suspender that stalls or that freezes machines, clocks that may be set, clocks whose pace can be changed, a
wire that can be told what to do to packets, disks that can be told to misbehave."""

ServiceUnder = Literal["runs", "ended", "stopped", "unseen"]
"""What becomes of the targets' services while a fault is in force: they go on, they end, they stand still, or they
go on after a time in which they cannot be asked for."""

Facts = Mapping[str, Any]
"""The details of some evidence, as the journal has them."""

M = TypeVar("M", bound=Mechanism)


@dataclass(frozen=True)
class RandomDraw:
    """What every fault of a random schedule draws, whatever its kind: always the same number of values, so that
    changing one kind does not reshuffle all that follow it. `draw` is in [0, 1), `tear` a seed or None."""

    draw: float
    direction: Direction
    tear: int | None

    def rng(self) -> Random:
        """Where a kind that needs more takes it from: this fault's own draw and nothing else."""
        return Random(f"strength {self.draw!r}")


class Kind(ABC, Generic[M]):
    """One kind of fault. It has no state: what is in force in a world is known to its mechanism there."""

    name: ClassVar[str]
    """As campaigns and journals have it; the file has the same name, with underscores."""
    deed: ClassVar[str]
    """What is done, for the table of all kinds."""
    proven_by: ClassVar[str]
    """What proves it, for the same table."""
    mechanism: ClassVar[type[Mechanism]]
    """Through what it is inflicted: the class that is `M`."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    """What a world must have for it beside hosts with a service; nothing: every world can inflict it."""
    parameters: ClassVar[tuple[Parameter | Choice | Files, ...]] = ()
    aim: ClassVar[Aim | None] = None
    """Whom random schedules always aim it at; None: that is drawn."""
    proven_late: ClassVar[bool] = False
    """Whether what it did is seen only when it is healed: the heal's status is then the fault's."""
    service: ClassVar[ServiceUnder] = "runs"
    """What becomes of the targets' services under it: only that is nobody's finding."""
    ends_services_late: ClassVar[bool] = False
    """Whether services that have gone on under it end when it is healed, and are started again."""
    needs_service: ClassVar[bool] = True
    """Whether it proves nothing on a node whose service had ended, or stood still, through nobody's order before."""
    seen: ClassVar[tuple[EvidenceRule, ...]] = ()
    """What its evidence must show to be believed; whoever judges the run looks for that again."""
    healed: ClassVar[tuple[EvidenceRule, ...]] = ()
    """The same of its heal's evidence."""
    destroys: ClassVar[frozenset[Damage]]
    """What it may destroy on its targets, from its begin to the end of its heal. Oracles and checkers excuse what this
    damage explains on these nodes, and nothing else; the journal carries it with the fault."""
    begun_by: ClassVar[str] = ""
    """The word by which scripts inflict it; none: they cannot."""
    ended_by: ClassVar[str] = ""
    """The word by which scripts end it; several kinds may have the same."""
    takes: ClassVar[Literal["node", "groups"]] = "node"
    """Whom a script names: one node, or two groups of nodes between which something happens (as `pairs`)."""

    @abstractmethod
    def inflict(self, by: M, fault: Fault) -> Evidence:
        """Do it, and see that it took effect. Hosts that do not answer are inconclusive evidence, never an exception.
        The parameters have been checked."""

    @abstractmethod
    def heal(self, by: M, fault: Fault) -> Evidence:
        """End it and see that it has ended. May be asked twice, and without an `inflict`: then nothing must be left."""

    @abstractmethod
    def sentence(self, fault: Fault) -> str:
        """What this fault does to whom, for a reader of the journal; without a full stop."""

    @abstractmethod
    def proof(self, seen: Facts, after: Facts) -> str:
        """What matters most of the evidence that it took effect, `seen`, and of its heal's, `after` (empty before)."""

    def draw(self, lot: RandomDraw) -> dict[str, Any]:
        """The parameters of this kind in a random schedule."""
        return {}

    def targets(self, aim: Aim, view: ClusterView, chooser: Random) -> tuple[str, ...]:
        """Whom a fault of a random schedule hits, in the cluster as it is now."""
        return (chooser.choice(candidates(aim, view)),)

    def reaches(self, fault: Fault, nodes: Collection[str]) -> Collection[str]:
        """The nodes, of all `nodes`, on which it has an effect."""
        del nodes
        return fault.targets

    def check(self, parameters: Mapping[str, Any]) -> None:
        """Raises `ParameterError` for parameters that this kind cannot take. What it does not know is not looked at."""
        for each in self.parameters:
            if isinstance(each, Choice):
                continue
            if each.name in parameters:
                each.check(parameters[each.name])
            elif isinstance(each, Parameter) and each.default is None:
                raise ParameterError(each.name, f"missing; {self.name} needs it: {each.bounds}")


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Node names in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nobody"


def with_before(proof: str, seen: Facts) -> str:
    """A proof, with what was wrong with the services that were hit before they were."""
    return "; ".join(filter(None, (proof, *seen.get("already", ()))))


def node_facts(seen: Facts) -> dict[str, Facts]:
    """The evidence by node, of that which is about nodes."""
    return {name: facts for name, facts in seen.items() if isinstance(facts, Mapping)}


def facts_of(after: Facts, name: str) -> Facts:
    """What the heal's evidence says of one node."""
    found = after.get(name)
    return found if isinstance(found, Mapping) else {}
