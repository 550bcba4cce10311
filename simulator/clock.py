"""The clocks of one simulated machine: the time since boot, by which its timers run, and the time of day."""

from __future__ import annotations

import math


class MachineClock:
    """Moments of the world (its virtual seconds) told apart from what this machine takes them for.

    The time since boot passes at a rate that a fault may change: 0, the machine is frozen with all it has; 1.01, it
    gains ten milliseconds a second. The time of day goes with it and may be set.

    Invariant: the time since boot never goes back, and a machine whose clocks were never touched has the world's own.
    """

    def __init__(self) -> None:
        self.real_offset_s = 0.0
        """By how much the time of day is ahead of what the machine's own counting makes it."""
        self.drift = 0.0
        """What it gains, in seconds a second, while it is not frozen."""
        self._frozen = False
        self._world_s = self._steady_s = 0.0  # the last moment at which the rate changed, in both times
        self._rate = 1.0

    @property
    def frozen(self) -> bool:
        return self._frozen

    def steady(self, world_s: float) -> float:
        """The time since boot, at a moment of the world. Seconds."""
        return self._steady_s + self._rate * (world_s - self._world_s)

    def ahead(self, world_s: float) -> float:
        """By how many seconds the time of day is ahead of the world's."""
        return self.steady(world_s) - world_s + self.real_offset_s

    def moment_of(self, steady_s: float) -> float:
        """The first moment of the world at which the time since boot is so late; infinity while it is frozen."""
        if self._rate == 0.0:
            return math.inf
        moment = self._world_s + (steady_s - self._steady_s) / self._rate
        while self.steady(moment) < steady_s:  # a timer that is due must find that it is
            moment = math.nextafter(moment, math.inf)
        return moment

    def run(self, world_s: float, *, drift: float | None = None, frozen: bool | None = None) -> None:
        """Let the time since boot pass in another way from now on; None: as before."""
        self._steady_s, self._world_s = self.steady(world_s), world_s
        self.drift = self.drift if drift is None else drift
        self._frozen = self._frozen if frozen is None else frozen
        self._rate = 0.0 if self._frozen else 1.0 + self.drift
