"""A mechanism: the shared code of the kinds of fault that use the same part of a world, such as its network."""

from typing import ClassVar

from nemeses.fault import Evidence
from nemeses.in_force import FaultsInForce
from nemeses.ports import Host, Site


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
        self.in_force = FaultsInForce()
        """The faults of all mechanisms; the nemesis gives each mechanism the same ones."""

    def clear_leftovers(self) -> Evidence | None:
        """Before a run's faults: remove what a killed run left behind. None: there is nothing to look for."""
        return None

    def arm(self) -> Evidence | None:
        """Prepare the hosts; all services run, and leftovers of earlier runs are removed. None: nothing to prepare."""
        return None

    def heal_all(self) -> Evidence | None:
        """Heal all faults of this mechanism, including those of other runs. None: the world lacks this part."""
        return self.clear_leftovers()

    def after_boot(self, host: Host) -> Evidence | None:
        """A boot has discarded what faults in force did to a host: do it again. None: a boot discards nothing of this
        part. Raises `HostError`."""
        del host
        return None

    def after_new_disk(self, host: Host) -> Evidence | None:
        """A fault has replaced the disk of a host: write again what this part needs there. None: it needs nothing.
        Raises `HostError`."""
        del host
        return None
