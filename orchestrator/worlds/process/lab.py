"""The lab of the process world: nothing outlives a run."""

from __future__ import annotations

from typing import Final

from orchestrator.worlds.process.world import ProcessWorld
from orchestrator.worlds.stateless_labs import PerRunLab


class ProcessLab(PerRunLab):
    """Runs in the process world."""

    kind = ProcessWorld


LAB: Final = ProcessLab
