"""The faults of a run that are in force, and what they hide of their targets.

Theory of operation. A fault cannot be proven on a target if another fault hides a part that its evidence needs
there; nor can its heal. Therefore:

- a fault is *prevented* on such a target: nothing is done there, and the evidence names the fault that prevents it;
- a heal that a later fault hides waits for that fault's heal;
- a service starts only when no fault in force keeps it from running: the heal of the last such fault starts it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from nemeses.fault import Fault

V = TypeVar("V")

Part = Literal["machine", "process", "execution", "disk", "links", "store"]
"""A part of a target: the machine answers; the service has a process; the process executes; the disk answers; packets
pass between the target and another host that answers; it sees the store of remote segments as the others do."""

STARTS_ON: Final = frozenset[Part]({"machine", "process", "disk"})
"""The parts of a host without which its service does not start."""
_SERVICE: Final = frozenset[Part]({"machine", "process", "execution"})
_FROZEN: Final = -1.0


class InForce(Generic[V]):
    """The effects of faults that are in force, by host: a heal ends one of them, and the host keeps the others."""

    def __init__(self) -> None:
        self._effects: dict[str, list[V]] = {}

    def add(self, host: str, effect: V) -> None:
        self._effects.setdefault(host, []).append(effect)

    def end(self, host: str, effect: V) -> None:
        """End one of the effects that are equal to this one; without one nothing changes."""
        if effect in (effects := self._effects.get(host, [])):
            effects.remove(effect)

    def end_all(self, host: str) -> None:
        self._effects.pop(host, None)

    def on(self, host: str) -> tuple[V, ...]:
        """The effects in force on a host, in the order of their faults."""
        return tuple(self._effects.get(host, ()))


@dataclass(frozen=True)
class ClockOffsets:
    """The offsets of a host's real-time clock, and of its time since boot, in seconds."""

    real_s: float
    steady_s: float


class ClockChanges:
    """What the faults of a run have done to the clocks of each host."""

    def __init__(self) -> None:
        self.jumps = InForce[float]()
        """The jumps of real-time clocks, in seconds."""
        self.drifts = InForce[float]()
        """The gains of drifting clocks, in seconds a second."""
        self._set: dict[str, ClockOffsets] = {}
        self._frozen: set[str] = set()
        self._gained: dict[str, tuple[float, float]] = {}  # the seconds gained until a time, and that time

    def jumped_s(self, host: str) -> float:
        """By how much the jumps in force set a real-time clock ahead."""
        return sum(self.jumps.on(host))

    def note_set(self, host: str, offsets: ClockOffsets) -> None:
        """This run has just set the real-time clock of a host; the offsets were read after that."""
        self._set[host] = offsets

    def real_s(self, host: str, steady_s: float) -> float | None:
        """The offset of a real-time clock that only this run has set, when that of the time since boot is `steady_s`;
        None: the run has not set it."""
        offsets = self._set.get(host)
        return None if offsets is None else offsets.real_s + steady_s - offsets.steady_s

    def freeze(self, host: str, at_s: float, *, frozen: bool) -> None:
        """All clocks of a host stop at this moment, or continue."""
        self.count(host, at_s)
        (self._frozen.add if frozen else self._frozen.discard)(host)

    def count(self, host: str, at_s: float) -> float:
        """The seconds that the clocks of a host have gained by freezes and drifts until this moment. Call it before
        each change."""
        gained_s, since_s = self._gained.get(host, (0.0, at_s))
        rate = _FROZEN if host in self._frozen else sum(self.drifts.on(host))
        self._gained[host] = gained_s + rate * (at_s - since_s), at_s
        return self._gained[host][0]


@dataclass(frozen=True, eq=False)
class _Entry:
    """A fault, the targets on which it acts, what it hides of them, and the directed pairs of hosts that it cuts."""

    fault: Fault
    targets: frozenset[str]
    hides: frozenset[Part]
    pairs: frozenset[tuple[str, str]]


class FaultsInForce:
    """All faults in force, in the order of their injections."""

    def __init__(self, hosts: Collection[str] = ()) -> None:
        self.clocks = ClockChanges()
        self.withheld: set[str] = set()
        """The hosts whose service a heal would have started, if no other fault had kept it from running."""
        self.booted: set[str] = set()
        """The hosts that a heal has booted: their mechanisms do again what the boot has discarded."""
        self.new_disks: set[str] = set()
        """The hosts whose disk a fault has replaced: what mechanisms had written to it is not there."""
        self._hosts = tuple(hosts)
        self._entries: list[_Entry] = []

    def add(
        self, fault: Fault, targets: Iterable[str], hides: frozenset[Part], pairs: Iterable[tuple[str, str]]
    ) -> None:
        self._entries.append(_Entry(fault, frozenset(targets), hides, frozenset(pairs)))

    def end(self, fault: Fault) -> frozenset[str] | None:
        """The fault is being healed: the targets on which it acted; None: it is not in force."""
        entry = self._entry(fault)
        if entry is None:
            return None
        self._entries.remove(entry)
        return entry.targets

    def clear(self) -> None:
        self._entries.clear()
        self.withheld.clear()

    def disturbed(self) -> set[str]:
        """The hosts whose services faults have ended or suspended, or keep from running."""
        return {name for entry in self._entries if entry.hides & _SERVICE for name in entry.targets} | self.withheld

    def hiding(self, host: str, parts: Collection[Part], *, since: Fault | None = None) -> str:
        """The kind of a fault that hides one of these parts of a host; empty without one. `since`: only of those that
        were injected after this one. A service that is withheld has no process, whichever fault ended it."""
        entry_of_fault = None if since is None else self._entry(since)
        entries = self._entries if entry_of_fault is None else self._entries[self._entries.index(entry_of_fault) + 1 :]
        kinds = [entry.fault.kind for entry in entries if host in entry.targets and entry.hides & set(parts)]
        if host in self.withheld and {"process", "execution"} & set(parts):
            kinds += [entry.fault.kind for entry in self._entries if host in entry.targets and entry.hides & STARTS_ON]
        return kinds[0] if kinds else self._parting(host, entries) if "links" in parts else ""

    def linked(self, host: str, peer: str) -> bool:
        """Whether no fault hides the other host, or drops packets between the two."""
        return not any(_parts(entry, host, peer) for entry in self._entries)

    def _parting(self, host: str, entries: Collection[_Entry]) -> str:
        """The kind of the last of these faults without which a host would have a link; empty if it has one."""
        peers = [peer for peer in self._hosts if peer != host]
        if any(self.linked(host, peer) for peer in peers):
            return ""
        kinds = [entry.fault.kind for entry in entries if any(_parts(entry, host, peer) for peer in peers)]
        return kinds[-1] if kinds else ""

    def _entry(self, fault: Fault) -> _Entry | None:
        """The last one of this fault: of the same object, or else of an equal one."""
        identical = [entry for entry in self._entries if entry.fault is fault]
        candidates = identical or [entry for entry in self._entries if entry.fault == fault]
        return candidates[-1] if candidates else None


def _parts(entry: _Entry, host: str, peer: str) -> bool:
    return bool(entry.pairs & {(host, peer), (peer, host)}) or (peer in entry.targets and "machine" in entry.hides)
