"""Inflicting faults and healing them, each with the evidence that it took effect.

`Nemesis(site).inject(fault)` and `.heal(fault)`; `heal_all()` at the end of a run. Nothing here raises for a host that
does not answer: what could not be seen is inconclusive evidence.
"""

from __future__ import annotations

from nemeses.fault import Evidence, Fault, combine
from nemeses.mechanism import Mechanism
from nemeses.ports import Site
from nemeses.registry import KINDS, AnyKind

__all__ = ["Nemesis"]


class Nemesis:
    """Everything that can go wrong in one world. One thread at a time."""

    def __init__(self, site: Site) -> None:
        self.nodes = tuple(site.hosts)
        classes = dict.fromkeys(kind.mechanism for kind in KINDS.values())
        self._mechanisms: dict[type[Mechanism], Mechanism] = {
            each: each(site) for each in sorted(classes, key=lambda each: each.stage)
        }

    def arm(self) -> Evidence:
        """Prepare the hosts; to be called once all services have started.

        What a killed run left is removed first, of what a run would not notice by itself: netem and clock jumps. Where
        there is a power switch, every host then gets a mark on its disk that is synced and must survive every cut."""
        cleared = {each.part: each.clear_leftovers() for each in self._mechanisms.values()}
        armed = {f"{each.part} armed": each.arm() for each in self._mechanisms.values()}
        return combine({part: seen for part, seen in (cleared | armed).items() if seen is not None})

    def inject(self, fault: Fault) -> Evidence:
        """Inflict a fault. Raises `ValueError` for a kind that does not exist and for parameters that it cannot
        take."""
        kind = _kind(fault)
        kind.check(fault.parameters)
        return kind.inflict(self._mechanisms[kind.mechanism], fault)

    def heal(self, fault: Fault) -> Evidence:
        """End a fault and see that it has ended. Raises `ValueError` for a kind that does not exist."""
        kind = _kind(fault)
        return kind.heal(self._mechanisms[kind.mechanism], fault)

    def heal_all(self) -> Evidence:
        """Whatever was inflicted, by whomever: every host runs, is on, connected, in time and awake, and so is its
        service."""
        healed = {each.part: each.heal_all() for each in self._mechanisms.values()}
        return combine({part: seen for part, seen in healed.items() if seen is not None})


def _kind(fault: Fault) -> AnyKind:
    try:
        return KINDS[fault.kind]
    except KeyError:
        raise ValueError(f"unknown fault {fault.kind!r}; known: {', '.join(KINDS)}") from None
