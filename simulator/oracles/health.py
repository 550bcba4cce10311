"""Tracks the machines that no fault touches, and since when: liveness bounds apply to them while others have faults.

A machine is well while its process runs, nothing suspends it, and its disk, its clocks and its packets have no fault.
Two machines are connected while packets pass in both directions. Each check finds what has changed; the cluster reports
a fault that starts and ends between two checks.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Protocol


class MachineStates(Protocol):
    """The states of a cluster's machines, by their names."""

    def is_up(self, name: str) -> bool:
        """Whether a process runs there and executes."""
        ...

    def is_well(self, name: str) -> bool:
        """Whether it is up and no fault is in force on its disk, its clocks or its packets."""
        ...

    def connects(self, machine: str, peer: str) -> bool:
        """Whether packets pass between two machines, in both directions and without a limit."""
        ...


class Durations:
    """How long values have been unchanged. Seconds."""

    def __init__(self) -> None:
        self._since: dict[Hashable, tuple[Hashable, float]] = {}

    def held(self, key: Hashable, value: Hashable, now: float) -> float:
        """How long `key` has had this value; None counts as no value."""
        if value is None:
            self._since.pop(key, None)
            return 0.0
        entry = self._since.get(key)
        if entry is None or entry[0] != value:
            self._since[key] = value, now
            return 0.0
        return now - entry[1]


class Health:
    """All machines of a cluster."""

    def __init__(self, names: Iterable[str], states: MachineStates) -> None:
        self._names = tuple(names)
        self._around = states
        self._timers = Durations()
        self._touched: dict[str, int] = dict.fromkeys(self._names, 0)
        self._well_s: dict[str, float] = {}
        self._connected_s: dict[frozenset[str], float] = {}

    def touched(self, name: str) -> None:
        """Record that a machine was changed at this moment."""
        self._touched[name] += 1

    def look(self, now: float) -> None:
        """Record the machines that are well now."""
        for name in self._names:
            touch_count = self._touched[name] if self._around.is_well(name) else None
            self._well_s[name] = self._timers.held(name, touch_count, now)
        for pair in combinations(self._names, 2):
            key = frozenset(pair)
            self._connected_s[key] = self._timers.held(key, self._around.connects(*pair) or None, now)

    def away(self, name: str) -> bool:
        """Whether no other machine that is up can reach a machine."""
        if not self._around.is_up(name):
            return True
        peers = [peer for peer in self._names if peer != name and self._around.is_up(peer)]
        return bool(peers) and not any(self._around.connects(name, peer) for peer in peers)

    def well(self, seconds: float) -> Sequence[str]:
        """The machines that have been well for `seconds`; empty if two of them were not connected for as long."""
        names = [name for name in self._names if self._well_s.get(name, 0.0) >= seconds]
        if all(self._connected_s[frozenset(pair)] >= seconds for pair in combinations(names, 2)):
            return names
        return self._largest(names, seconds)

    def _largest(self, names: Sequence[str], seconds: float) -> Sequence[str]:
        """The largest set of machines that were all connected for `seconds`."""
        for size in range(len(names) - 1, 1, -1):
            for group in combinations(names, size):
                if all(self._connected_s[frozenset(pair)] >= seconds for pair in combinations(group, 2)):
                    return group
        return names[:1]
