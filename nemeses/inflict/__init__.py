"""Inflicting faults and healing them, each with the evidence that it took effect.

`Nemesis(site).inject(fault)` and `.heal(fault)`; `heal_all()` at the end of a run. Nothing here raises for a host that
does not answer: what could not be seen is inconclusive evidence.
"""

from __future__ import annotations

from typing import Protocol

from nemeses.fault import Evidence, Fault, Kind, combine
from nemeses.inflict.clocks import ClockJump
from nemeses.inflict.kill import Kill
from nemeses.inflict.packets import Packets
from nemeses.inflict.parallel import on_each
from nemeses.inflict.partition import Partition
from nemeses.inflict.pause import Pause
from nemeses.inflict.power import PowerLoss, switch_on
from nemeses.inflict.suspend import Suspension
from nemeses.ports import Site

__all__ = ["Inflictor", "Nemesis"]


class Inflictor(Protocol):
    """One kind of fault. `heal` may be called twice, and without an `inject`: it sees that nothing is left."""

    def inject(self, fault: Fault) -> Evidence: ...

    def heal(self, fault: Fault) -> Evidence: ...


class Nemesis:
    """Everything that can go wrong in one world. One thread at a time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._power = PowerLoss(site)
        self._suspension = Suspension(site)
        self._clocks = ClockJump(site)
        self._packets = Packets(site)
        kill, pause, partition = Kill(site), Pause(site), Partition(site)
        self._by_kind: dict[Kind, Inflictor] = {
            "kill": kill,
            "pause": pause,
            "power-loss": self._power,
            "power-loss-all": self._power,
            "partition-one": partition,
            "partition-halves": partition,
            "partition-leader": partition,
            "stall": self._suspension,
            "clock-freeze": self._suspension,
            "clock-jump": self._clocks,
            "packet-delay": self._packets,
            "packet-loss": self._packets,
        }

    def arm(self) -> Evidence:
        """Prepare the hosts; to be called once all brokers have started.

        What a killed run left of its netem and its clock jumps is removed. Where there is a power switch, every host
        gets a mark on its disk that is synced and must survive every cut."""
        parts = {"packets": self._packets.heal_leftovers(), "clocks": self._clocks.heal_leftovers()}
        if self._site.power is not None:
            parts["marks"] = self._power.arm()
        return combine(parts)

    def inject(self, fault: Fault) -> Evidence:
        """Inflict a fault. Raises `ValueError` for a kind that does not exist."""
        return self._inflictor(fault).inject(fault)

    def heal(self, fault: Fault) -> Evidence:
        """End a fault and see that it has ended. Raises `ValueError` for a kind that does not exist."""
        return self._inflictor(fault).heal(fault)

    def heal_all(self) -> Evidence:
        """Whatever was inflicted, by whomever: every host runs, is on, connected, in time and awake, and so is its
        broker."""
        everyone = tuple(self._site.hosts)
        parts: dict[str, Evidence] = {}
        # In this order, for each step asks something of the hosts that the steps before it have brought back.
        if self._site.suspender is not None:
            parts["suspended"] = self._suspension.heal_leftovers(self._site.suspender)
        if self._site.power is not None:
            parts["power"] = switch_on(self._site, self._site.power)
        if self._site.network is not None:
            cut = sorted([source, destination] for source, destination in self._site.network.cut_pairs())
            parts["network"] = self.heal(Fault("partition-one", (), parameters={"pairs": cut}))
        parts["packets"] = self._packets.heal_leftovers()
        parts["clocks"] = self._clocks.heal_leftovers()
        parts["awake"] = combine(on_each(self._site, everyone, Pause.wake))
        parts["brokers"] = self.heal(Fault("kill", everyone))
        return combine(parts)

    def _inflictor(self, fault: Fault) -> Inflictor:
        try:
            return self._by_kind[fault.kind]
        except KeyError:
            raise ValueError(f"unknown fault {fault.kind!r}; known: {', '.join(self._by_kind)}") from None
