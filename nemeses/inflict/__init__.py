"""Inflicting faults and healing them, each with the evidence that it took effect.

`Nemesis(site).inject(fault)` and `.heal(fault)`; `heal_all()` at the end of a run. Nothing here raises for a host that
does not answer: what could not be seen is inconclusive evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nemeses.fault import Evidence, Fault, Kind, combine
from nemeses.inflict.kill import Kill
from nemeses.inflict.parallel import on_each
from nemeses.inflict.partition import Partition
from nemeses.inflict.pause import Pause
from nemeses.inflict.power import PowerLoss, switch_on
from nemeses.ports import Site

__all__ = ["Inflictor", "Nemesis"]


class Inflictor(Protocol):
    """One kind of fault. `heal` may be called twice, and without an `inject`: it sees that nothing is left."""

    def inject(self, fault: Fault) -> Evidence: ...

    def heal(self, fault: Fault) -> Evidence: ...


_INFLICTORS: dict[Kind, Callable[[Site], Inflictor]] = {
    "kill": Kill,
    "pause": Pause,
    "power-loss": PowerLoss,
    "power-loss-all": PowerLoss,
    "partition-one": Partition,
    "partition-halves": Partition,
    "partition-leader": Partition,
}


class Nemesis:
    """Everything that can go wrong in one world. One thread at a time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        made: dict[Callable[[Site], Inflictor], Inflictor] = {}
        self._by_kind = {kind: made.setdefault(make, make(site)) for kind, make in _INFLICTORS.items()}

    def inject(self, fault: Fault) -> Evidence:
        """Inflict a fault. Raises `ValueError` for a kind that does not exist."""
        return self._inflictor(fault).inject(fault)

    def heal(self, fault: Fault) -> Evidence:
        """End a fault and see that it has ended. Raises `ValueError` for a kind that does not exist."""
        return self._inflictor(fault).heal(fault)

    def heal_all(self) -> Evidence:
        """Whatever was inflicted, by whomever: every host is on, connected, awake and runs its broker."""
        everyone = tuple(self._site.hosts)
        parts: dict[str, Evidence] = {}
        # In this order, for each step asks something of the hosts that the steps before it have brought back.
        if self._site.power is not None:
            parts["power"] = switch_on(self._site, self._site.power)
        if self._site.network is not None:
            cut = sorted([source, destination] for source, destination in self._site.network.cut_pairs())
            parts["network"] = self.heal(Fault("partition-one", (), parameters={"pairs": cut}))
        parts["awake"] = combine(on_each(self._site, everyone, Pause.wake))
        parts["brokers"] = self.heal(Fault("kill", everyone))
        return combine(parts)

    def _inflictor(self, fault: Fault) -> Inflictor:
        try:
            return self._by_kind[fault.kind]
        except KeyError:
            raise ValueError(f"unknown fault {fault.kind!r}; known: {', '.join(self._by_kind)}") from None
