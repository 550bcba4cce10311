"""What packets meet between simulated machines, beside cuts: by netem's words, or by those of the simulated wire."""

from __future__ import annotations

import re
from dataclasses import replace

from nemeses.ports import Burst
from orchestrator.worlds.simulation.scheduling import VirtualScheduler
from simulator.cluster import SimulatedCluster
from simulator.outlet import Disturbance

_WORDS = re.compile(r"(delay|loss) ([\d.]+)(?:ms|%)(?: ([\d.]+)ms)?")


def asked_of_netem(words: str) -> dict[str, float]:
    """What netem is told, as fields of `Disturbance`; all that it can be told, so that it forgets what was before."""
    told = {word: (float(first), float(second or 0)) for word, first, second in _WORDS.findall(words)}
    (delay_ms, jitter_ms), (loss, _) = told.get("delay", (0.0, 0.0)), told.get("loss", (0.0, 0.0))
    return {"delay_s": delay_ms / 1e3, "jitter_s": jitter_ms / 1e3, "loss": loss / 100}


def disturb(cluster: SimulatedCluster, name: str, **changes: float) -> None:
    """Change something of what befalls a machine's packets, and leave the rest as it is."""
    outlet = cluster.network.outlet(name)
    wanted = replace(Disturbance() if outlet is None else outlet.disturbance, **changes)
    cluster.disturb(name, None if wanted == Disturbance() else wanted)


class SimulatedWire:
    """What only simulated packets can be told to do."""

    def __init__(self, cluster: SimulatedCluster, scheduler: VirtualScheduler) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._resetting: dict[str, tuple[float, int]] = {}

    def duplicate(self, name: str, share: float) -> None:
        disturb(self._cluster, name, duplicate=share)

    def reorder(self, name: str, share: float) -> None:
        disturb(self._cluster, name, reorder=share)

    def reset(self, name: str) -> int:
        return self._cluster.reset(name)

    def keep_resetting(self, name: str, every_s: float | None) -> int:
        _, count = self._resetting.pop(name, (0.0, 0))
        if every_s is not None:
            self._resetting[name] = every_s, count
            self._reset_again(name, every_s)
        return count

    def burst(self, name: str, to: str, count: int) -> Burst:
        held_before = self._held(name)
        arrived = [number for _, number in self._cluster.network.burst(name, to, count)]
        once = len(set(arrived))
        return Burst(count, once, twice=len(arrived) - once, overtaken=self._held(name) - held_before)

    def _held(self, name: str) -> int:
        outlet = self._cluster.network.outlet(name)
        return 0 if outlet is None else outlet.held

    def _reset_again(self, name: str, every_s: float) -> None:
        wanted = self._resetting.get(name)
        if wanted is None or wanted[0] != every_s:
            return
        self._resetting[name] = every_s, wanted[1] + self._cluster.reset(name)
        self._cluster.network.at(self._cluster.loop.now + every_s, self._reset_again, name, every_s)
