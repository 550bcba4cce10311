"""Packets that are doubled or overtaken, and connections that are reset, where the wire can be told to do so."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Literal

from nemeses.fault import Evidence, combine
from nemeses.kind import Kind, Need
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.ports import Burst, Host, Site, Wire

_UNSEEN = 1e-9  # how likely the probes may miss what is in force
LACKING = "this world's wire cannot be told what to do to packets"

Effect = Literal["twice", "overtaken"]


class WireEffects(Mechanism):
    """What the wire does to the packets of hosts, and to their connections."""

    stage = 35
    part = "wire"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._resetting: set[str] = set()

    def disturb(self, targets: Collection[str], effect: Effect, share: float) -> Evidence:
        """Have this share of what the targets send arrive twice or be overtaken, and see a burst of probes suffer it;
        with a share of 0: see that a burst does not."""

        def act(host: Host, wire: Wire) -> Evidence:
            (wire.duplicate if effect == "twice" else wire.reorder)(host.name, share)
            return self._prove(host, wire, effect, share)

        return self._on_each(targets, act)

    def reset(self, targets: Collection[str], every_s: float) -> Evidence:
        """Break every connection of the targets with others now, and again and again."""

        def act(host: Host, wire: Wire) -> Evidence:
            broken = wire.reset(host.name)
            self._resetting.add(host.name)
            wire.keep_resetting(host.name, every_s)
            detail = {"broken": broken, "every_s": every_s}
            if not broken:
                return Evidence("inconclusive", {**detail, "error": "it had no connection with another host"})
            return Evidence("confirmed", detail)

        return self._on_each(targets, act)

    def leave_alone(self, targets: Collection[str]) -> Evidence:
        """Break no more connections; how many it were."""

        def act(host: Host, wire: Wire) -> Evidence:
            self._resetting.discard(host.name)
            return Evidence("confirmed", {"broken_again": wire.keep_resetting(host.name, None)})

        return self._on_each(targets, act)

    def heal_all(self) -> Evidence | None:
        if self.site.wire is None:
            return None

        def act(host: Host, wire: Wire) -> Evidence:
            wire.duplicate(host.name, 0.0)
            wire.reorder(host.name, 0.0)
            wire.keep_resetting(host.name, None)
            return Evidence("confirmed", {})

        return self._on_each(self.site.hosts, act)

    def _prove(self, host: Host, wire: Wire, effect: Effect, share: float) -> Evidence:
        peer = next((name for name in self.site.hosts if name != host.name), None)
        if peer is None:
            return Evidence("inconclusive", {"error": "there is no other host to send to"})
        needed = math.ceil(math.log(_UNSEEN) / math.log(1 - share)) if share else 20
        burst = wire.burst(host.name, peer, 2 * needed)
        met = burst.twice if effect == "twice" else burst.overtaken
        detail = _told(burst, peer) | {effect: met}
        if burst.arrived < needed:
            return Evidence("inconclusive", {**detail, "error": f"the probes did not come to {peer}"})
        most = share * burst.sent + 6 * math.sqrt(share * (1 - share) * burst.sent) + 6
        as_asked = 0 < met <= most if share else met == 0
        return Evidence("confirmed" if as_asked else "mismatch", detail)

    def _on_each(self, targets: Collection[str], act: Callable[[Host, Wire], Evidence]) -> Evidence:
        wire = self.site.wire
        if wire is None:
            return Evidence("inconclusive", {"error": LACKING})
        return combine(on_each(self.site, targets, lambda host: act(host, wire)))


def _told(burst: Burst, peer: str) -> dict[str, Any]:
    return {"to": peer, "sent": burst.sent, "arrived": burst.arrived}


class WireKind(Kind[WireEffects]):
    """Evidence: what a burst of probe datagrams met, counted where they arrive."""

    needs_service = False
    mechanism = WireEffects
    needs = frozenset[Need]({"wire"})
    ended_by = "heal"
