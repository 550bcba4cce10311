"""The lab of the namespaces world: nothing outlives a run."""

from typing import Final

from orchestrator.machine.requirement import Requirement
from orchestrator.worlds.namespaces import requirements
from orchestrator.worlds.namespaces.world import NamespaceWorld
from orchestrator.worlds.stateless_labs import PerRunLab


class NamespaceLab(PerRunLab):
    """Runs in the namespaces world."""

    kind = NamespaceWorld

    @classmethod
    def missing(cls, filesystem: str) -> list[Requirement]:
        return requirements.missing(filesystem)


LAB: Final = NamespaceLab
