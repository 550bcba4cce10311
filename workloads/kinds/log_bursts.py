"""The log workload with pauses: the whole load comes in bursts, and between them the log is idle.

In an idle log the next append does not reveal a follower that has stopped fetching, or a leader that has lost its
lease. A burst right after a fault meets a cluster that has just become stable.
"""

from dataclasses import replace
from random import Random
from typing import Final

from workloads.control import Control
from workloads.kind import ClientRole, WorkloadParameter
from workloads.kinds import log
from workloads.pacing import Pacer
from workloads.settings import ClientSettings

_TICK_S: Final = 1e-9
"""Shorter waits may not advance a coarse clock, and the client would wait again and again."""


class Bursts:
    """Operations at a mean rate of `rate` per second, all of them in the first `burst_s` of each `burst_s + rest_s`."""

    def __init__(self, rate: float, rng: Random, *, start_s: float, burst_s: float, rest_s: float) -> None:
        self._start_s = start_s
        self._burst_s = burst_s
        self._period_s = burst_s + rest_s
        self._pacer = Pacer(rate * self._period_s / burst_s, rng, start_s=0.0)

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next operation is due; 0 when it is due."""
        into_s = (now_s - self._start_s) % self._period_s
        wait_s = self._period_s - into_s if into_s >= self._burst_s else self._pacer.wait_s(self._busy_s(now_s))
        return max(wait_s, _TICK_S) if wait_s > 0 else 0.0

    def take(self, now_s: float) -> bool:
        """Whether an operation is due now; if so, it counts as issued."""
        resting = (now_s - self._start_s) % self._period_s >= self._burst_s
        return not resting and self._pacer.take(self._busy_s(now_s))

    def _busy_s(self, now_s: float) -> float:
        """The time spent in bursts so far: the pacer's clock, which stops while the log is idle."""
        periods, into_s = divmod(now_s - self._start_s, self._period_s)
        return periods * self._burst_s + min(into_s, self._burst_s)


def pacing(settings: ClientSettings, rng: Random, start_s: float) -> Bursts:
    """The pacing of a producer of this kind."""
    parameters = settings.parameters
    return Bursts(settings.rate, rng, start_s=start_s, burst_s=parameters["burst_s"], rest_s=parameters["rest_s"])


def _producer(settings: ClientSettings, control: Control) -> None:
    from workloads.producer import main

    main(settings, control, pacing)


KIND: Final = replace(
    log.KIND,
    name="log-bursts",
    description="As log, but the producers append in bursts and let the log rest between them.",
    parameters=(
        *log.KIND.parameters,
        WorkloadParameter("burst_s", 2.0, "length of a burst", unit="s", minimum=0.1, maximum=3600.0),
        WorkloadParameter("rest_s", 3.0, "length of the rest after it", unit="s", minimum=0.1, maximum=3600.0),
    ),
    roles={**log.KIND.roles, "producer": ClientRole(_producer, changes=True)},
)
