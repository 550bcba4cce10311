"""How long a run waits until its own clients are ready.

What makes clients late is not the system under test: each is a process that loads libraries, all of them start at once,
and the machine may have other work. A deadline that ignores this ends runs that have nothing wrong. So the deadline
grows with the number of clients, with the load of the machine and with the world's time scale. No verdict rests on it:
a run whose clients do not come in time is unknown.
"""

from __future__ import annotations

import os
from typing import Final

from nemeses.scheduling import Scheduler, ThreadScheduler

READY_S: Final = 30.0
EACH_CLIENT_S: Final = 2.0
MOST_CROWDED: Final = 8.0


def crowding() -> float:
    """How many processes want to run for each processor, over the last minute: at least 1, at most `MOST_CROWDED`."""
    try:
        waiting = os.getloadavg()[0]
    except OSError:  # not every system says so
        return 1.0
    return min(MOST_CROWDED, max(1.0, waiting / (os.cpu_count() or 1)))


def ready_s(clients: int, *, time_scale: float, crowded: float) -> float:
    """Seconds within which so many clients, started at once, must be ready. `crowded`: as `crowding`."""
    return (READY_S + EACH_CLIENT_S * clients) * time_scale * crowded


def crowding_of(scheduler: Scheduler) -> float:
    """The crowding of the machine whose time a scheduler measures; virtual time passes on a machine of its own, and a
    simulated run is the same however busy the real one is."""
    return crowding() if isinstance(scheduler, ThreadScheduler) else 1.0
