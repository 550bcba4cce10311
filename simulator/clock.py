"""The clocks of one simulated machine: the time since boot, by which its timers run, and the time of day."""

import math


class MachineClock:
    """Converts between the world's virtual seconds and the time that this machine's clocks show.

    The time since boot passes at a rate that faults change: 0, the machine is frozen with all its clocks; 1.01, it
    gains ten milliseconds a second. The time of day advances with it and may be set.

    Invariant: the time since boot never goes back, and a machine with untouched clocks has the world's time.
    """

    def __init__(self) -> None:
        self.real_offset_s = 0.0
        """By how much the time of day was set ahead of the machine's own counting."""
        self.drift = 0.0
        """The gain, in seconds a second, while it is not frozen."""
        self._frozen = False
        self._world_s = self._steady_s = 0.0  # when the rate changed last, in both times
        self._rate = 1.0

    @property
    def frozen(self) -> bool:
        return self._frozen

    def steady(self, world_s: float) -> float:
        """The time since boot, at a time of the world. Seconds."""
        return self._steady_s + self._rate * (world_s - self._world_s)

    def ahead(self, world_s: float) -> float:
        """By how many seconds the time of day is ahead of the world's."""
        return self.steady(world_s) - world_s + self.real_offset_s

    def moment_of(self, steady_s: float) -> float:
        """By how many seconds the time of day is ahead of the world's."""
        if self._rate == 0.0:
            return math.inf
        moment = self._world_s + (steady_s - self._steady_s) / self._rate
        while self.steady(moment) < steady_s:  # at that moment a timer must see that it is due
            moment = math.nextafter(moment, math.inf)
        return moment

    def run(self, world_s: float, *, drift: float | None = None, frozen: bool | None = None) -> None:
        """Change the rate of the time since boot from now on; None: unchanged."""
        self._steady_s, self._world_s = self.steady(world_s), world_s
        self.drift = self.drift if drift is None else drift
        self._frozen = self._frozen if frozen is None else frozen
        self._rate = 0.0 if self._frozen else 1.0 + self.drift
