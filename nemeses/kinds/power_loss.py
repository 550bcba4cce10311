"""Power loss of one machine."""

from history.fault_looks import FaultMark
from nemeses.mechanisms.power import PowerLossKind
from nemeses.parameters import Files


class PowerLoss(PowerLossKind):
    """One node loses power."""

    name = "power-loss"
    mark = FaultMark.CIRCLE
    injected_by = "power-loss"
    parameters = (
        *PowerLossKind.parameters,
        Files(
            "loses",
            "files that must lose unsynced data in the power cut; if they lose nothing, the evidence is not sufficient",
        ),
    )
