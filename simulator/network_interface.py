"""A machine's network device: its outgoing packets may be delayed, lost, duplicated or reordered."""

import random
from dataclasses import dataclass

OVERTAKEN_S = (0.001, 0.05)
"""How long a packet is held back that others overtake."""


@dataclass(frozen=True)
class Disturbance:
    """What happens to packets. Times in seconds; the others are shares of all packets, from 0 to 1."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


class Outlet:
    """One device. Counts sent, lost, duplicated and held-back packets."""

    def __init__(self, rng: random.Random, disturbance: Disturbance) -> None:
        self.disturbance = disturbance
        self.packets = self.drops = self.doubled = self.held = 0
        self._rng = rng

    def lateness(self) -> float:
        """The delay of the next packet, in seconds."""
        disturbance, late = self.disturbance, 0.0
        if disturbance.delay_s:
            late = disturbance.delay_s + self._rng.uniform(-disturbance.jitter_s, disturbance.jitter_s)
        if disturbance.reorder and self._rng.random() < disturbance.reorder:
            self.held += 1
            late += self._rng.uniform(*OVERTAKEN_S)
        return late

    def loses(self) -> bool:
        """Send a packet; returns whether it is lost."""
        lost = bool(self.disturbance.loss) and self._rng.random() < self.disturbance.loss
        self.drops += lost
        self.packets += not lost
        return lost

    def copies(self) -> int:
        """How many copies of a packet arrive that is not lost."""
        twice = bool(self.disturbance.duplicate) and self._rng.random() < self.disturbance.duplicate
        self.doubled += twice
        return 2 if twice else 1
