"""Disturbs packets between simulated machines, other than cuts: with netem's parameters, or the simulated wire's."""

import re
from dataclasses import dataclass, replace

from nemeses.ports import Burst
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster
from simulator.network_interface import Disturbance

_WORDS = re.compile(r"(delay|loss) ([\d.]+)(?:ms|%)(?: ([\d.]+)ms)?")


def asked_of_netem(arguments: str) -> dict[str, float]:
    """netem's parameters as fields of `Disturbance`; all of them, so that earlier values are reset."""
    values = {word: (float(first), float(second or 0)) for word, first, second in _WORDS.findall(arguments)}
    (delay_ms, jitter_ms), (loss, _) = values.get("delay", (0.0, 0.0)), values.get("loss", (0.0, 0.0))
    return {"delay_s": delay_ms / 1e3, "jitter_s": jitter_ms / 1e3, "loss": loss / 100}


def disturb(cluster: SimulatedCluster, name: str, **changes: float) -> None:
    """Change some disturbances of a machine's packets and keep the others."""
    outlet = cluster.network.outlet(name)
    disturbance = replace(Disturbance() if outlet is None else outlet.disturbance, **changes)
    cluster.disturb(name, None if disturbance == Disturbance() else disturbance)


class SimulatedWire:
    """Disturbances that only simulated packets can have."""

    def __init__(self, cluster: SimulatedCluster, scheduler: VirtualScheduler) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._resetting: dict[str, _Resets] = {}
        self._times: dict[str, int] = {}

    def duplicate(self, name: str, share: float) -> None:
        disturb(self._cluster, name, duplicate=share)

    def reorder(self, name: str, share: float) -> None:
        disturb(self._cluster, name, reorder=share)

    def reset(self, name: str) -> int:
        self._times[name] = self.times_reset(name) + 1
        return self._cluster.reset(name)

    def keep_resetting(self, name: str, every_s: float | None) -> int:
        before = self._resetting.pop(name, None)
        if every_s is not None:
            order = self._resetting[name] = _Resets(every_s)
            self._reset_again(name, order)
        return 0 if before is None else before.broken

    def times_reset(self, name: str) -> int:
        return self._times.get(name, 0)

    def burst(self, name: str, to: str, count: int) -> Burst:
        held_before = self._held(name)
        arrived = [number for _, number in self._cluster.network.burst(name, to, count)]
        once = len(set(arrived))
        return Burst(count, once, twice=len(arrived) - once, overtaken=self._held(name) - held_before)

    def _held(self, name: str) -> int:
        outlet = self._cluster.network.outlet(name)
        return 0 if outlet is None else outlet.held

    def _reset_again(self, name: str, order: "_Resets") -> None:
        if self._resetting.get(name) is not order:  # the order was withdrawn or replaced
            return
        order.broken += self.reset(name)
        self._cluster.network.at(self._cluster.loop.now + order.every_s, self._reset_again, name, order)


@dataclass(eq=False)
class _Resets:
    """An order to reset connections repeatedly, with the number of connections that were reset."""

    every_s: float
    broken: int = 0
