"""Computes how long a run waits until its own clients are ready.

Late clients are not the fault of the system under test: each is a process that loads libraries, all start at once, and
the machine may have other work. A constant deadline would end healthy runs. So the deadline grows with the number of
clients, the load of the machine and the world's time scale. No verdict depends on it: a run whose clients are late is
unknown.
"""

from __future__ import annotations

import os
from typing import Final

from nemeses.scheduling import Scheduler, ThreadScheduler

READY_S: Final = 30.0
EACH_CLIENT_S: Final = 2.0
MOST_CROWDED: Final = 8.0


def crowding() -> float:
    """Runnable processes per processor over the last minute: at least 1, at most `MOST_CROWDED`."""
    try:
        waiting = os.getloadavg()[0]
    except OSError:  # not available on every system
        return 1.0
    return min(MOST_CROWDED, max(1.0, waiting / (os.cpu_count() or 1)))


def ready_s(clients: int, *, time_scale: float, crowded: float) -> float:
    """Seconds within which this number of clients, started at once, must be ready. `crowded`: as `crowding`."""
    return (READY_S + EACH_CLIENT_S * clients) * time_scale * crowded


def crowding_of(scheduler: Scheduler) -> float:
    """The crowding of the machine whose time a scheduler measures. It is 1 for virtual time: a simulated run must be
    the same however busy the real machine is."""
    return crowding() if isinstance(scheduler, ThreadScheduler) else 1.0
