"""Duplicated and reordered packets, and connection resets, in worlds that can manipulate packets."""

import math
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Literal

from history.damage import Damage
from history.fault_looks import FaultGroup
from nemeses.fault import Evidence, Fault, combine, worst
from nemeses.in_force import InForce
from nemeses.kind import Facts, Need, NodeKind
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each, required
from nemeses.ports import Burst, Host, Site, Wire

_UNSEEN = 1e-9  # the probability that the probes miss an effect that is in force
LACKING = "this world cannot manipulate packets"

Effect = Literal["twice", "overtaken"]
EFFECTS: tuple[Effect, ...] = ("twice", "overtaken")
_LONGER = 1.5
_CONNECTS_S = 5.0  # longer than the backoff of a broker that connects again


class WireEffects(Mechanism):
    """The effects on packets and connections of hosts."""

    stage = 42  # after netem, because probes must arrive
    part = "wire"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._shares: dict[Effect, InForce[float]] = {effect: InForce() for effect in EFFECTS}
        self._every_s = InForce[float]()  # how often connections are being reset

    def disturb(self, targets: Collection[str], effect: Effect, share: float) -> Evidence:
        """Duplicate or reorder this share of the targets' packets, and check that with a burst of probes."""

        def act(host: Host, wire: Wire) -> Evidence:
            self._shares[effect].add(host.name, share)
            return self._prove(host, wire, effect, self._order(host.name, wire, effect))

        return self._on_each(targets, act)

    def calm(self, targets: Collection[str], effect: Effect, share: float) -> Evidence:
        """End one fault with this effect and share, and check that with as many probes as had shown it: none shows the
        effect, or as many as the remaining faults order."""

        def act(host: Host, wire: Wire) -> Evidence:
            self._shares[effect].end(host.name, share)
            remaining = self._order(host.name, wire, effect)
            return self._prove(host, wire, effect, remaining or share, ended=not remaining)

        return self._on_each(targets, act)

    def reset(self, targets: Collection[str], every_s: float) -> Evidence:
        """Reset every connection between the targets and others, now and repeatedly."""

        def act(host: Host, wire: Wire) -> Evidence:
            broken, gives_up_s = wire.reset(host.name), self.site.scheduler.monotonic() + _CONNECTS_S
            while not broken and self.site.scheduler.monotonic() < gives_up_s:  # another fault may have broken them
                self.site.scheduler.sleep(_CONNECTS_S / 100)
                broken = wire.reset(host.name)
            self._every_s.add(host.name, every_s)
            wire.keep_resetting(host.name, min(self._every_s.on(host.name)))
            detail = {"broken": broken, "every_s": every_s}
            if not broken:
                return Evidence("inconclusive", {**detail, "error": "it had no connection with another host"})
            return Evidence("confirmed", detail)

        return self._on_each(targets, act)

    def leave_alone(self, targets: Collection[str], every_s: float) -> Evidence:
        """End the resets of one fault, and check that none occurs for longer than their interval, or that those of the
        remaining faults go on; returns the number of resets."""

        def act(host: Host, wire: Wire) -> Evidence:
            self._every_s.end(host.name, every_s)
            return self._reset_less(host, wire, every_s)

        return self._on_each(targets, act)

    def heal_all(self) -> Evidence | None:
        if self.site.wire is None:
            return None

        def act(host: Host, wire: Wire) -> Evidence:
            proofs = []
            for effect in EFFECTS:
                share = combined(self._shares[effect].on(host.name))
                self._shares[effect].end_all(host.name)
                self._order(host.name, wire, effect)
                proofs += [self._prove(host, wire, effect, share, ended=True)] if share else []
            every_s = max(self._every_s.on(host.name), default=0.0)
            self._every_s.end_all(host.name)
            reset_evidence = self._reset_less(host, wire, every_s)
            return Evidence(worst([reset_evidence.status, *(proof.status for proof in proofs)]), reset_evidence.detail)

        return self._on_each(self.site.hosts, act)

    def _order(self, name: str, wire: Wire, effect: Effect) -> float:
        """Order what all faults with an effect say together; returns the share of packets."""
        share = combined(self._shares[effect].on(name))
        (wire.duplicate if effect == "twice" else wire.reorder)(name, share)
        return share

    def _reset_less(self, host: Host, wire: Wire, every_s: float) -> Evidence:
        """Reset as often as the remaining faults say, after one that reset every `every_s` has ended."""
        remaining_s = min(self._every_s.on(host.name), default=None)
        broken_again, resets_before = wire.keep_resetting(host.name, remaining_s), wire.times_reset(host.name)
        self.site.scheduler.sleep(_LONGER * max(every_s, remaining_s or 0.0))
        later = wire.times_reset(host.name) - resets_before
        is_wrong = bool(later) == (remaining_s is None)
        return Evidence("mismatch" if is_wrong else "confirmed", {"broken_again": broken_again, "times_since": later})

    def _prove(self, host: Host, wire: Wire, effect: Effect, share: float, *, ended: bool = False) -> Evidence:
        """Send a burst of probes, large enough to show the effect with certainty: some show it, but at most the
        requested share; none, if the effect has `ended`."""
        other_names = [name for name in self.site.hosts if name != host.name]
        peer = next((name for name in other_names if self.in_force.linked(host.name, name)), None)
        if peer is None:
            return Evidence("inconclusive", {"error": "this host has no link to another one"})
        needed = math.ceil(math.log(_UNSEEN) / math.log(1 - share))
        burst = wire.burst(host.name, peer, 2 * needed)
        met = burst.twice if effect == "twice" else burst.overtaken
        detail = _told(burst, peer) | {effect: met}
        if burst.arrived < needed:
            return Evidence("inconclusive", {**detail, "error": f"the probes did not reach {peer}"})
        highest = share * burst.sent + 6 * math.sqrt(share * (1 - share) * burst.sent) + 6
        as_asked = met == 0 if ended else 0 < met <= highest
        return Evidence("confirmed" if as_asked else "mismatch", detail)

    def _on_each(self, targets: Collection[str], act: Callable[[Host, Wire], Evidence]) -> Evidence:
        wire = required(self.site.wire, LACKING)
        return combine(on_each(self.site, targets, lambda host: act(host, wire)))


def combined(shares: Collection[float]) -> float:
    """The share of packets that meet at least one of independent effects."""
    total = 0.0
    for share in shares:
        total += share * (1.0 - total)
    return total


def _told(burst: Burst, peer: str) -> dict[str, Any]:
    return {"to": peer, "sent": burst.sent, "arrived": burst.arrived}


class WireKind(NodeKind[WireEffects]):
    """Evidence: the fate of a burst of probe datagrams, counted where they arrive."""

    group = FaultGroup.PACKETS
    destroys = frozenset({Damage.PACKETS})
    needs_service = False
    rests_on = heal_rests_on = frozenset({"machine", "links"})
    mechanism = WireEffects
    needs = frozenset[Need]({"wire"})
    healed_by = "heal"


class ShareKind(WireKind):
    """Meets some packets: the share is the parameter `percent`. `told`: what happened to a probe, as a verb."""

    effect: ClassVar[Effect]
    told: ClassVar[str]

    def inject(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.disturb(fault.targets, self.effect, float(fault.parameters["percent"]) / 100)

    def heal(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.calm(fault.targets, self.effect, float(fault.parameters["percent"]) / 100)

    def phrase(self, facts: Facts, heal: Facts) -> str:
        del heal
        return f"{facts.get(self.effect, 0)} of {facts.get('sent', 0)} probes {self.told}"
