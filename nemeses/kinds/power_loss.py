"""One machine loses power."""

from __future__ import annotations

from nemeses.mechanisms.power import PowerLossKind


class PowerLoss(PowerLossKind):
    """The power of one node goes."""

    name = "power-loss"
    begun_by = "power-loss"
