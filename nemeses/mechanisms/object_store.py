"""The simulated object store that all nodes share: it is slow, hangs, fails, refuses changes, keeps half of an object,
or shows an old listing.

A fault of the store acts on all nodes; its target is the node that the evidence names. The evidence is a probe of the
store while the fault is in force, and another one after the heal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from history.fault_looks import FaultGroup
from nemeses.fault import Evidence, Fault, combine
from nemeses.kind import Facts, Kind, Need, node_facts
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
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
        self._used = False

    def trouble(self, targets: Collection[str], act: Act, is_shown: Callable[[dict[str, object]], bool]) -> Evidence:
        """Let `act` change the store and probe it; `is_shown`: whether its facts show the fault."""

        def judge(_: object) -> Evidence:
            assert self.site.objects is not None
            facts = act(self.site.objects)
            return Evidence("confirmed" if is_shown(facts) else "mismatch", facts)

        if self.site.objects is None:
            return Evidence("inconclusive", {"error": LACKING})
        self._used = True
        return combine(on_each(self.site, targets, judge))

    def soothe(self, targets: Collection[str]) -> Evidence:
        """End all faults of the store, and check that a probe ends as before."""

        def act(objects: Objects) -> dict[str, object]:
            objects.work()
            return {"probe": objects.probe("put", _LONGEST_S)[0], "listing": objects.probe("list", _LONGEST_S)[0]}

        return self.trouble(targets, act, lambda facts: facts == {"probe": DONE, "listing": DONE})

    def heal_all(self) -> Evidence | None:
        return self.soothe(list(self.site.hosts)[:1]) if self._used else None


class ObjectStoreKind(Kind[ObjectTroubles]):
    """Evidence: the result of a probe of the store, and its duration."""

    group = FaultGroup.OBJECTS
    mechanism = ObjectTroubles
    needs = frozenset[Need]({"objects"})
    needs_service = False
    healed_by = "mend-store"

    def heal(self, by: ObjectTroubles, fault: Fault) -> Evidence:
        return by.soothe(fault.targets)

    def proof(self, seen: Facts, after: Facts) -> str:
        del after
        return "; ".join(f"a probe of the store: {facts.get('probe')}" for facts in node_facts(seen).values())


def milliseconds(seconds: float | None) -> float:
    """A duration for the evidence; -1: longer than the probe waits."""
    return -1.0 if seconds is None else round(1e3 * seconds, 3)
