"""Duplicated and reordered packets, and connection resets, in worlds that can manipulate packets."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Literal

from history.damage import Damage
from history.fault_looks import FaultGroup
from nemeses.fault import Evidence, combine, worst
from nemeses.kind import Kind, Need
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.ports import Burst, Host, Site, Wire

_UNSEEN = 1e-9  # the probability that the probes miss an effect that is in force
LACKING = "this world cannot manipulate packets"

Effect = Literal["twice", "overtaken"]
EFFECTS: tuple[Effect, ...] = ("twice", "overtaken")
LEAST = 0.01
"""The smallest allowed share."""
_LONGER = 1.5


class WireEffects(Mechanism):
    """The effects on packets and connections of hosts."""

    stage = 42  # after netem, because probes must arrive
    part = "wire"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._shares: dict[tuple[str, Effect], float] = {}  # the last requested shares, which may have ended since
        self._every_s: dict[str, float] = {}  # how often connections are being reset, by host

    def disturb(self, targets: Collection[str], effect: Effect, share: float) -> Evidence:
        """Duplicate or reorder this share of the targets' packets, and check that with a burst of probes."""

        def act(host: Host, wire: Wire) -> Evidence:
            self._shares[host.name, effect] = share
            _order(wire, host.name, effect, share)
            return self._prove(host, wire, effect, share)

        return self._on_each(targets, act)

    def calm(self, targets: Collection[str], effect: Effect) -> Evidence:
        """End the effect, and check that with as many probes as had shown it."""

        def act(host: Host, wire: Wire) -> Evidence:
            _order(wire, host.name, effect, 0.0)
            return self._prove(host, wire, effect, self._shares.get((host.name, effect), LEAST), ended=True)

        return self._on_each(targets, act)

    def reset(self, targets: Collection[str], every_s: float) -> Evidence:
        """Reset every connection between the targets and others, now and repeatedly."""

        def act(host: Host, wire: Wire) -> Evidence:
            broken = wire.reset(host.name)
            self._every_s[host.name] = every_s
            wire.keep_resetting(host.name, every_s)
            detail = {"broken": broken, "every_s": every_s}
            if not broken:
                return Evidence("inconclusive", {**detail, "error": "it had no connection with another host"})
            return Evidence("confirmed", detail)

        return self._on_each(targets, act)

    def leave_alone(self, targets: Collection[str]) -> Evidence:
        """End the resets, and check that none occurs for longer than their interval; returns the number of resets."""
        return self._on_each(targets, self._leave_alone)

    def heal_all(self) -> Evidence | None:
        if self.site.wire is None:
            return None

        def act(host: Host, wire: Wire) -> Evidence:
            for effect in EFFECTS:
                _order(wire, host.name, effect, 0.0)
            shares = {effect: share for (name, effect), share in self._shares.items() if name == host.name}
            seen = [self._prove(host, wire, effect, share, ended=True) for effect, share in shares.items()]
            left = self._leave_alone(host, wire)
            return Evidence(worst([left.status, *(each.status for each in seen)]), left.detail)

        healed = self._on_each(self.site.hosts, act)
        self._shares.clear()
        return healed

    def _leave_alone(self, host: Host, wire: Wire) -> Evidence:
        every_s, broken_again = self._every_s.pop(host.name, 0.0), wire.keep_resetting(host.name, None)
        before = wire.times_reset(host.name)
        self.site.scheduler.sleep(_LONGER * every_s)
        later = wire.times_reset(host.name) - before
        return Evidence("mismatch" if later else "confirmed", {"broken_again": broken_again, "times_since": later})

    def _prove(self, host: Host, wire: Wire, effect: Effect, share: float, *, ended: bool = False) -> Evidence:
        """Send a burst of probes, large enough to show the effect with certainty: some show it, but at most the
        requested share; none, if the effect has `ended`."""
        peer = next((name for name in self.site.hosts if name != host.name), None)
        if peer is None:
            return Evidence("inconclusive", {"error": "this host is the only one"})
        needed = math.ceil(math.log(_UNSEEN) / math.log(1 - share))
        burst = wire.burst(host.name, peer, 2 * needed)
        met = burst.twice if effect == "twice" else burst.overtaken
        detail = _told(burst, peer) | {effect: met}
        if burst.arrived < needed:
            return Evidence("inconclusive", {**detail, "error": f"the probes did not reach {peer}"})
        most = share * burst.sent + 6 * math.sqrt(share * (1 - share) * burst.sent) + 6
        as_asked = met == 0 if ended else 0 < met <= most
        return Evidence("confirmed" if as_asked else "mismatch", detail)

    def _on_each(self, targets: Collection[str], act: Callable[[Host, Wire], Evidence]) -> Evidence:
        wire = self.site.wire
        if wire is None:
            return Evidence("inconclusive", {"error": LACKING})
        return combine(on_each(self.site, targets, lambda host: act(host, wire)))


def _order(wire: Wire, name: str, effect: Effect, share: float) -> None:
    (wire.duplicate if effect == "twice" else wire.reorder)(name, share)


def _told(burst: Burst, peer: str) -> dict[str, Any]:
    return {"to": peer, "sent": burst.sent, "arrived": burst.arrived}


class WireKind(Kind[WireEffects]):
    """Evidence: the fate of a burst of probe datagrams, counted where they arrive."""

    group = FaultGroup.PACKETS
    destroys = frozenset({Damage.PACKETS})
    needs_service = False
    mechanism = WireEffects
    needs = frozenset[Need]({"wire"})
    healed_by = "heal"
