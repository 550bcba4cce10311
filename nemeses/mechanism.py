"""A mechanism: what the kinds of fault that go through the same part of a world share, for one world."""

from __future__ import annotations

from typing import ClassVar

from nemeses.fault import Evidence
from nemeses.ports import Site


class Mechanism:
    """The state and the deeds of one nemesis with one part of its world.

    A nemesis makes one of each that its kinds of fault name, and asks all of them in the order of their `stage`: each
    asks something of the hosts that those before it have brought back (machines go on, have power, are connected, ...).
    `part` names what a mechanism has healed in the evidence of arming and of healing everything.
    """

    stage: ClassVar[int]
    part: ClassVar[str]

    def __init__(self, site: Site) -> None:
        self.site = site

    def clear_leftovers(self) -> Evidence | None:
        """Before a run's faults: remove what a run that was killed left behind. None: nothing to look for."""
        return None

    def arm(self) -> Evidence | None:
        """Once nothing is left of earlier runs and all services run: prepare the hosts. None: nothing to prepare."""
        return None

    def heal_all(self) -> Evidence | None:
        """End all that was inflicted through this mechanism, by whomever. None: the world has no such thing."""
        return self.clear_leftovers()
