"""One machine loses power."""

from __future__ import annotations

from nemeses.mechanisms.power import PowerLossKind
from nemeses.parameters import Files


class PowerLoss(PowerLossKind):
    """The power of one node goes."""

    name = "power-loss"
    begun_by = "power-loss"
    parameters = (
        *PowerLossKind.parameters,
        Files("loses", "files of which a cut must lose what is not synced: one that takes nothing of them is no proof"),
    )
