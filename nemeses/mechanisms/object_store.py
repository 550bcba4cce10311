"""The simulated object store that all nodes share: it is slow, hangs, fails, refuses changes, keeps half of an object,
or shows an old listing.

A fault of the store acts on all nodes; its target is the node that the evidence names. The evidence is a probe of the
store while the fault is in force, and another one after the heal.

Faults overlap, also with faults of the same kind. Each is a reason of its own: the store does what all reasons together
say, and the heal removes one of them. A probe meets one reason alone. Otherwise a hung store would hide every other
fault from its probe, and the heal of one fault could not be seen while another lasts.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from history.damage import Damage
from history.fault_looks import FaultGroup
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, Kind, Need, node_facts
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each, required
from nemeses.ports import Objects, Site

LACKING: Final = "this world cannot inject faults of an object store"
DONE: Final = "done"
REASON: Final = "the simulated store fails"
HANG_S: Final = 2.0
"""A probe that has not returned after this time counts as blocked."""
_LONGEST_S: Final = 60.0

Act = Callable[[Objects], dict[str, object]]


class ObjectTroubles(Mechanism):
    """The store of a world. It works again before any service is started."""

    stage = 16
    part = "objects"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._in_force: list[tuple[Fault, str]] = []  # with their reasons
        self._reasons = 0

    def trouble(self, fault: Fault, act: Act, is_shown: Callable[[dict[str, object]], bool]) -> Evidence:
        """Let `act` change the store for a new reason and probe it; `is_shown`: whether its facts show the fault."""
        objects = required(self.site.objects, LACKING)
        self._reasons += 1
        reason = f"{fault.kind} {self._reasons}"
        self._in_force.append((fault, reason))
        return self._judged(fault.targets, objects.under(reason), act, is_shown)

    def soothe(self, fault: Fault) -> Evidence:
        """End this fault of the store, and check that a probe, which meets no other fault, ends as before."""
        objects = required(self.site.objects, LACKING)
        return self._judged(fault.targets, objects.under(self._taken_back(fault)), _mend, _is_mended)

    def heal_all(self) -> Evidence | None:
        if not self._reasons or self.site.objects is None:
            return None
        self._in_force.clear()
        return self._judged(list(self.site.hosts)[:1], self.site.objects, _mend, _is_mended)

    def _taken_back(self, fault: Fault) -> str:
        """The reason of a fault that ends: this one, else the last one of its kind, as scripts name only kinds."""
        same = [entry for entry in self._in_force if entry[0] == fault]
        alike = same or [entry for entry in self._in_force if entry[0].kind == fault.kind]
        if not alike:
            return f"{fault.kind} healed"
        self._in_force.remove(alike[-1])
        return alike[-1][1]

    def _judged(
        self, targets: Collection[str], objects: Objects, act: Act, is_shown: Callable[[dict[str, object]], bool]
    ) -> Evidence:
        def judge(_: object) -> Evidence:
            facts = act(objects)
            return Evidence("confirmed" if is_shown(facts) else "mismatch", facts)

        return combine(on_each(self.site, targets, judge))


def _mend(objects: Objects) -> dict[str, object]:
    objects.work()
    return {"probe": objects.probe("put", _LONGEST_S)[0], "listing": objects.probe("list", _LONGEST_S)[0]}


def _is_mended(facts: dict[str, object]) -> bool:
    return facts == {"probe": DONE, "listing": DONE}


class ObjectStoreKind(Kind[ObjectTroubles]):
    """Evidence: the result of a probe of the store, and its duration."""

    group = FaultGroup.OBJECTS
    rests_on = heal_rests_on = frozenset()
    mechanism = ObjectTroubles
    needs = frozenset[Need]({"objects"})
    needs_service = False
    destroys = frozenset({Damage.SPEED})
    healed = (EvidenceRule("probe", values=(DONE,)),)
    healed_by = "mend-store"

    @abstractmethod
    def change(self, fault: Fault, objects: Objects) -> dict[str, object]:
        """Change the store, and return what a probe of it shows."""

    def is_shown(self, fault: Fault, facts: Facts) -> bool:
        """Whether a probe shows the fault: each fact has a value that `seen` names."""
        del fault
        return all(facts[rule.key] in rule.values for rule in self.seen)

    def inject(self, by: ObjectTroubles, fault: Fault) -> Evidence:
        return by.trouble(fault, partial(self.change, fault), partial(self.is_shown, fault))

    def heal(self, by: ObjectTroubles, fault: Fault) -> Evidence:
        return by.soothe(fault)

    def proof(self, effect: Facts, heal: Facts) -> str:
        del heal
        return "; ".join(f"a probe of the store: {facts.get('probe')}" for facts in node_facts(effect).values())


def milliseconds(seconds: float | None) -> float:
    """A duration for the evidence; -1: longer than the probe waits."""
    return -1.0 if seconds is None else round(1e3 * seconds, 3)
