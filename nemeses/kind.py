"""The base class of all kinds of fault. Each kind is one class (in `nemeses/kinds/`)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Generic, Literal, TypeVar

from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.in_force import Part
from nemeses.mechanism import Mechanism
from nemeses.parameters import Choice, Direction, Files, Parameter, ParameterError, Word
from nemeses.targeting import Aim, ClusterView, candidates

Need = Literal[
    "power", "network", "netem", "stall", "freeze", "clock", "drift", "wire", "disk", "store", "mounts", "objects"
]
"""What a world may offer in addition to hosts with a service: a power switch, a network that can be cut, netem on its
hosts, a suspender that stalls machines or that freezes them, clocks that may be set, clocks with a variable rate,
simulated packets that can be manipulated, simulated disks that can fail, a store whose objects can be changed (a
directory that its nodes share, or a simulated one), hosts with filesystems of their own that may be mounted, a
simulated object store that can fail."""

ServiceUnder = Literal["runs", "ended", "stopped", "unseen"]
"""What happens to the targets' services during a fault: they run, they end, they are suspended, or they run after a
time in which they cannot be observed."""

Facts = Mapping[str, Any]
"""The details of some evidence, as the journal stores them."""

M = TypeVar("M", bound=Mechanism)


@dataclass(frozen=True)
class RandomDraw:
    """The random values of one fault of a schedule. Their number is the same for every kind, so that a change of one
    kind does not change the faults after it. `draw` is in [0, 1); `tear`: the seed of a mode that not every fault of
    the kind has (a power cut tears, an object is replaced), or None."""

    draw: float
    direction: Direction
    tear: int | None

    def rng(self) -> Random:
        """The source of further random values, seeded with this fault's own draw."""
        return Random(f"strength {self.draw!r}")


class Kind(ABC, Generic[M]):
    """One kind of fault. It has no state: a world's mechanism knows the faults that are in force."""

    name: ClassVar[str]
    """The name in campaigns and journals; the file has the same name, with underscores."""
    action: ClassVar[str]
    """What the fault does, for the table of all kinds."""
    statement: ClassVar[str] = ""
    """The sentence of each fault, with `{nodes}` and the names of parameters; empty: `sentence` makes it."""
    proven_by: ClassVar[str]
    """What proves it, for the same table."""
    mechanism: ClassVar[type[Mechanism]]
    """The class of the mechanism that injects it: the class `M`."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    """What a world must offer for it, in addition to hosts with a service; empty: every world can inject it."""
    parameters: ClassVar[tuple[Parameter | Choice | Files | Word, ...]] = ()
    aim: ClassVar[Aim | None] = None
    """The aim of this kind in every random schedule; None: the aim is drawn."""
    proven_late: ClassVar[bool] = False
    """Whether its effect can be observed only at the heal: the heal's status is then the fault's status."""
    service: ClassVar[ServiceUnder] = "runs"
    """What happens to the targets' services: the analysis does not report that as a finding."""
    ends_services_late: ClassVar[bool] = False
    """Whether services that kept running end at the heal and are started again."""
    needs_service: ClassVar[bool] = True
    """Whether its evidence is inconclusive on a node whose service had ended or was suspended for another reason."""
    hides: ClassVar[frozenset[Part]] = frozenset()
    """What it hides of its targets, from its start to its heal: faults that rest on that are prevented there."""
    rests_on: ClassVar[frozenset[Part]] = frozenset[Part]({"machine"})
    """The parts of each target, or of each node that it reaches, without which it cannot be injected and proven."""
    heal_rests_on: ClassVar[frozenset[Part]] = frozenset[Part]({"machine"})
    """The parts of each target without which its heal cannot be proven."""
    seen: ClassVar[tuple[EvidenceRule, ...]] = ()
    """What its evidence must show; the analysis checks it again."""
    healed: ClassVar[tuple[EvidenceRule, ...]] = ()
    """What its heal's evidence must show."""
    group: ClassVar[FaultGroup]
    """What it acts on: its colour in plots. The journal stores it with the fault."""
    mark: ClassVar[FaultMark]
    """Its shape in plots, unique in its group. The journal stores it with the fault."""
    destroys: ClassVar[frozenset[Damage]]
    """What it may destroy on its targets, from its start to the end of its heal. Oracles and checkers accept the loss
    that this damage explains on these nodes, and no other loss; the journal stores it with the fault."""
    injected_by: ClassVar[str] = ""
    """The word with which scripts inject it; empty: scripts cannot."""
    healed_by: ClassVar[str] = ""
    """The word with which scripts heal it; several kinds may have the same."""
    takes: ClassVar[Literal["node", "groups"]] = "node"
    """What a script names: one node, or two groups of nodes between which the fault acts (as `pairs`)."""

    @abstractmethod
    def inject(self, by: M, fault: Fault) -> Evidence:
        """Inject the fault and check that it took effect. `HostError` and hosts that do not answer give
        inconclusive evidence. The parameters have been checked."""

    @abstractmethod
    def heal(self, by: M, fault: Fault) -> Evidence:
        """Heal it and check that. May be called twice, and without an `inject`: then the hosts must be healthy."""

    def sentence(self, fault: Fault) -> str:
        """The effect and the targets of this fault, for readers of the journal; without a full stop."""
        return self.statement.format(nodes=listed(fault.targets), **fault.parameters)

    @abstractmethod
    def proof(self, effect: Facts, heal: Facts) -> str:
        """The main evidence of its effect, `effect`, and of its heal, `heal` (empty before the heal), in one phrase."""

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        """Draw the parameters of this kind for a random schedule: each number that has a range for that."""
        rng = drawn.rng()
        numbers = [parameter for parameter in self.parameters if isinstance(parameter, Parameter) and parameter.drawn]
        return {number.name: round(number.draw(rng), 1) for number in numbers}

    def targets(self, aim: Aim, view: ClusterView, chooser: Random) -> tuple[str, ...]:
        """The targets of a fault of a random schedule, in the current cluster."""
        return (chooser.choice(candidates(aim, view)),)

    def reaches(self, fault: Fault, nodes: Collection[str]) -> Collection[str]:
        """Those of `nodes` that the fault affects."""
        del nodes
        return fault.targets

    def cuts(self, fault: Fault, nodes: Collection[str]) -> Collection[tuple[str, str]]:
        """The directed pairs of nodes between which no packet passes while the fault is in force."""
        del fault, nodes
        return ()

    def check(self, parameters: Mapping[str, Any]) -> None:
        """Raises `ParameterError` for invalid parameters. Unknown parameters are ignored."""
        for parameter in self.parameters:
            if parameter.name in parameters:
                parameter.check(parameters[parameter.name])
            elif isinstance(parameter, Parameter) and parameter.default is None:
                raise ParameterError(parameter.name, f"missing; {self.name} needs it: {parameter.bounds}")


class NodeKind(Kind[M]):
    """A kind with evidence of its own for each target."""

    @abstractmethod
    def phrase(self, facts: Facts, heal: Facts) -> str:
        """The main evidence of one target: of the effect, `facts`, and of the heal."""

    def proof(self, effect: Facts, heal: Facts) -> str:
        nodes = node_facts(effect)
        return "; ".join(f"{name}: {self.phrase(facts, facts_of(heal, name))}" for name, facts in nodes.items())


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Node names in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "no node"


def with_before(proof: str, effect: Facts) -> str:
    """A proof, extended by what was wrong with the targets' services before the fault."""
    return "; ".join(filter(None, (proof, *effect.get("already", ()))))


def node_facts(evidence: Facts) -> dict[str, Facts]:
    """The part of the evidence that is about nodes, by node."""
    return {name: facts for name, facts in evidence.items() if isinstance(facts, Mapping)}


def is_prevented(evidence: Facts, name: str) -> bool:
    """Whether another fault prevented this one on a node."""
    return "prevented_by" in facts_of(evidence, name)


def facts_of(evidence: Facts, name: str) -> Facts:
    """The heal's evidence of one node."""
    facts = evidence.get(name)
    return facts if isinstance(facts, Mapping) else {}
