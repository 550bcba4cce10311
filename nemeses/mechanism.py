"""A mechanism: the shared code of the kinds of fault that use the same part of a world, such as its network."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from nemeses.fault import Evidence
from nemeses.ports import Site

V = TypeVar("V")


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


class Mechanism:
    """The state of one nemesis for one part of its world, and the operations on it.

    A nemesis makes one mechanism for each part that its kinds of fault use, and calls them in the order of their
    `stage`: each may need hosts that the ones before have repaired (machines run, have power, are connected, ...).
    `part` is the mechanism's name in the evidence of arming and of healing everything.
    """

    stage: ClassVar[int]
    part: ClassVar[str]

    def __init__(self, site: Site) -> None:
        self.site = site

    def clear_leftovers(self) -> Evidence | None:
        """Before a run's faults: remove what a killed run left behind. None: there is nothing to look for."""
        return None

    def arm(self) -> Evidence | None:
        """Prepare the hosts; all services run, and leftovers of earlier runs are removed. None: nothing to prepare."""
        return None

    def heal_all(self) -> Evidence | None:
        """Heal all faults of this mechanism, including those of other runs. None: the world lacks this part."""
        return self.clear_leftovers()
