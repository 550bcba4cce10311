"""Late and lost packets: netem on each host's device towards the other hosts."""

import json
import math
import re
import shlex
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from history.damage import Damage
from history.fault_looks import FaultGroup
from nemeses.fault import Evidence, Fault, combine
from nemeses.in_force import InForce
from nemeses.kind import Need, NodeKind
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each
from nemeses.mechanisms.shell import ask, burst_script, connect_times_script, question
from nemeses.ports import Host, HostError, Site

# The handle by which our queueing discipline is recognized, even after its run was killed.
HANDLE = "b0b:"
_QUEUE = 20_000  # packets; netem's default of 1000 would turn a delay into a loss under load
_PATH = "PATH=$PATH:/usr/sbin:/sbin"  # the directories of ip and tc, which a plain user's PATH may lack
_CONNECTS = 5
_HEAL_DEADLINE_S = 5.0
_PATIENCE_S = 30.0  # the control connection may use the same device
_UNSEEN = 1e-9  # the probability that the probes miss a loss that is in force


CROWDED = "every other host is disturbed as well"
"""Why a delay cannot be measured: the other host's answers are late, too, or were late at the first measurement."""


@question
def queues_script() -> str:
    """Prints `queues`: the queueing disciplines of the host's devices, as a JSON array; empty without tc."""
    return f"""{_PATH}
command -v tc >/dev/null || {{ echo 'queues=[]'; exit 0; }}
echo "queues=$(tc -s -j qdisc show | tr -d '\\n')\""""


@question
def way_script(address: str) -> str:
    """The device through which an address is reached: the line that `ip -o route get` prints."""
    return f"{_PATH} ip -o route get {shlex.quote(address)}"


@question
def set_queue_script(device: str, netem: str) -> str:
    """Set exactly these netem options on a device; prints `applied`."""
    options = f"root handle {HANDLE} netem limit {_QUEUE} {netem}"
    return f"{_PATH} tc qdisc replace dev {shlex.quote(device)} {options} && echo applied=yes"


@question
def remove_queue_script(device: str) -> str:
    """Remove our queueing discipline of a device, if it exists; the answer is empty."""
    return f"{_PATH} tc qdisc del dev {shlex.quote(device)} root handle {HANDLE}"


@dataclass(frozen=True)
class _Way:
    """A host's route to the others: the device, and the fastest of a few connects to each, by name. Only hosts whose
    packets were undisturbed at that time are in it."""

    device: str
    connects_s: Mapping[str, float]


@dataclass(frozen=True)
class Rule:
    """The netem options of one kind of fault, the smallest delay of a packet, and the share of lost packets."""

    kind: str
    netem: str
    least_s: float = 0.0
    share: float = 0.0


class Netem(Mechanism):
    """The queueing disciplines of all hosts. Several rules can be in force on one host: netem has one option of each
    kind, so that of the rules of one kind the strongest counts."""

    stage = 40
    part = "packets"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._patience_s = _PATIENCE_S * site.time_scale
        self._rules = InForce[Rule]()
        self._ways: dict[str, _Way] = {}

    def disturb(self, targets: Collection[str], rule: Rule) -> Evidence:
        """Put a rule in force on hosts, and check that packets are late or lost."""
        for name in targets:  # all of them, before the first one looks for an undisturbed host
            self._rules.add(name, rule)
        return combine(on_each(self.site, targets, lambda host: self._disturb(host, rule)))

    def soothe(self, targets: Collection[str], rule: Rule) -> Evidence:
        """Remove a rule, and check that packets are as fast as before, or no longer lost; under another rule of its
        kind, that this one is in force."""
        return combine(on_each(self.site, targets, lambda host: self._soothe(host, rule)))

    def clear_leftovers(self) -> Evidence:
        """Remove all our queueing disciplines, of this run or of a killed one."""
        for name in self.site.hosts:
            self._rules.end_all(name)
        touched, self._ways = self._ways, {}

        def remove(host: Host) -> Evidence:
            return self._remove(host, self._patience_s if host.name in touched else 0.0)

        return combine(on_each(self.site, self.site.hosts, remove))

    def after_boot(self, host: Host) -> Evidence | None:
        rules, way = _strongest(self._rules.on(host.name)), self._ways.get(host.name)
        if not rules or way is None:
            return None
        self._apply(host, way.device, rules, patience_s=self._patience_s)
        queue = self._queues(host, self._patience_s).get(way.device)
        return Evidence("confirmed" if queue else "mismatch", {"device": way.device, "queue": queue})

    def _disturb(self, host: Host, rule: Rule) -> Evidence:
        way = self._ways.get(host.name)
        if way is None:
            quiet = self._quiet(host)
            way = self._find_way(host, quiet)
            if way is None or way.device == "lo":
                self._rules.end(host.name, rule)
                alone = quiet or len(self.site.hosts) == 1
                reason = "no other host answers to measure by" if alone else CROWDED
                error = reason if way is None else "this host reaches the others through its loopback device"
                return Evidence("inconclusive", {"error": error})
            self._ways[host.name] = way
        strongest = _strongest(self._rules.on(host.name))
        self._apply(host, way.device, strongest)
        return self._prove(host, way, strongest[rule.kind])

    def _prove(self, host: Host, way: _Way, rule: Rule) -> Evidence:
        return self._prove_loss(host, way, rule.share) if rule.share else self._prove_delay(host, way, rule)

    def _quiet(self, host: Host) -> list[Host]:
        """The other hosts whose packets are undisturbed, and which no fault in force parts from this one."""
        return [
            other
            for other in self.site.hosts.values()
            if other.name != host.name
            and not self._rules.on(other.name)
            and self.in_force.linked(host.name, other.name)
        ]

    def _witness(self, host: Host, way: _Way) -> Host | None:
        """The host to which connects are timed: one that is undisturbed, and was undisturbed before."""
        return next((other for other in self._quiet(host) if other.name in way.connects_s), None)

    def _prove_delay(self, host: Host, way: _Way, rule: Rule) -> Evidence:
        queue, peer = self._queues(host, self._patience_s).get(way.device), self._witness(host, way)
        if peer is None:
            return Evidence("inconclusive", {"device": way.device, "queue": queue, "error": CROWDED})
        times, before_s = self._connect_times(host, peer), way.connects_s[peer.name]
        detail = {
            "device": way.device,
            "to": peer.name,
            "queue": queue,
            "connect_before_ms": _ms(before_s),
            "connect_ms": _ms(sorted(times)[len(times) // 2]) if times else None,
        }
        if queue is None:
            return Evidence("mismatch", detail)
        if not times:
            return Evidence("inconclusive", {**detail, "error": f"no connection to {peer.name} succeeded"})
        # The fastest of each, because disturbances only make a measurement longer. Half, as a margin for noise.
        raised = min(times) - before_s >= rule.least_s / 2
        return Evidence("confirmed" if raised else "mismatch", detail)

    def _prove_loss(self, host: Host, way: _Way, share: float, *, ended: bool = False) -> Evidence:
        """Send a burst of probes, large enough to show a loss with certainty: some are lost, but at most the requested
        share; none, if the loss has `ended`."""
        needed = math.ceil(math.log(_UNSEEN) / math.log(1 - share))
        before = self._queues(host, self._patience_s).get(way.device)
        probes, peer = 2 * needed, self.site.hosts[next(iter(way.connects_s))]
        self._ask(host, burst_script(peer.address, probes), timeout_s=self._patience_s)
        after = self._queues(host, self._patience_s).get(way.device)
        detail: dict[str, Any] = {"device": way.device, "to": peer.name, "queue": after}
        if before is None or after is None:
            return Evidence("mismatch", detail)
        dropped = after["drops"] - before["drops"]
        packet_count = dropped + after["packets"] - before["packets"]
        detail |= {
            "probes": probes,
            "seen": packet_count,
            "dropped": dropped,
            "percent": round(100 * dropped / max(packet_count, 1), 1),
        }
        if packet_count < needed:
            return Evidence("inconclusive", {**detail, "error": "the probes did not reach the device"})
        if ended:
            return Evidence("mismatch" if dropped else "confirmed", detail)
        tries = max(packet_count, probes)
        highest = share * tries + 6 * math.sqrt(share * (1 - share) * tries) + 6
        return Evidence("confirmed" if 0 < dropped <= highest else "mismatch", detail)

    def _soothe(self, host: Host, rule: Rule) -> Evidence:
        way, in_force = self._ways.get(host.name), self._rules.on(host.name)
        at = in_force.index(rule) if rule in in_force else len(in_force)
        remaining = _strongest(in_force[:at] + in_force[at + 1 :])
        if remaining and way is not None:
            self._apply(host, way.device, remaining, patience_s=self._patience_s)
            ended = Evidence("confirmed", {"remaining": sorted(remaining)})
        else:
            ended = self._remove(host, self._patience_s)
        self._rules.end(host.name, rule)
        if not ended.confirmed:
            return ended
        if way is None or rule not in in_force:
            return ended
        if not remaining:
            del self._ways[host.name]
        elif rule.kind in remaining:
            weaker = self._prove(host, way, remaining[rule.kind])
            return Evidence(weaker.status, {**ended.detail, **weaker.detail})
        elif rule.share:
            lossless = self._prove_loss(host, way, rule.share, ended=True)
            return Evidence(lossless.status, {**ended.detail, **lossless.detail})
        return self._see_soothed(host, way, rule, ended)

    def _see_soothed(self, host: Host, way: _Way, rule: Rule, ended: Evidence) -> Evidence:
        """Wait for a connect that is as fast as before; if packets were only lost, for one that succeeds."""
        deadline_s = self.site.scheduler.monotonic() + _HEAL_DEADLINE_S * self.site.time_scale
        while True:
            peer = self._witness(host, way)
            if peer is None:
                return Evidence("inconclusive", {**ended.detail, "error": CROWDED})
            times = self._connect_times(host, peer)
            fast = bool(times) and (not rule.least_s or min(times) <= way.connects_s[peer.name] + rule.least_s / 2)
            if fast or self.site.scheduler.monotonic() > deadline_s:
                break
        detail = {**ended.detail, "connect_ms": _ms(min(times)) if times else None}
        return Evidence("confirmed" if fast else "mismatch" if times else "inconclusive", detail)

    def _remove(self, host: Host, patience_s: float) -> Evidence:
        """Remove our queueing disciplines; returns the number of packets that they had dropped."""
        queues = self._queues(host, patience_s)
        for device in queues:
            # It may be gone already, after a lost answer; the check below counts.
            host.run(remove_queue_script(device))
        detail: dict[str, Any] = {"dropped": {device: queue["drops"] for device, queue in queues.items()}}
        remaining = sorted(self._queues(host, patience_s)) if queues else []
        return Evidence("mismatch", {**detail, "left": remaining}) if remaining else Evidence("confirmed", detail)

    def _connect_times(self, host: Host, peer: Host) -> list[float]:
        """The durations of connects to a host's probe port in seconds, without failed ones. Raises `HostError`."""
        seconds = round(5 * self.site.time_scale)
        script = connect_times_script(peer.address, peer.probe_port, _CONNECTS, seconds)
        answer = self._ask(host, script, timeout_s=seconds + self._patience_s, patience_s=self._patience_s)
        return [int(value) / 1e6 for key, value in answer.items() if key.startswith("connect")]

    def _find_way(self, host: Host, peers: Iterable[Host]) -> _Way | None:
        """The route to the first of these hosts that accepts a connection, and to the others through its device."""
        route_device: str | None = None
        connects_s: dict[str, float] = {}
        for peer in peers:
            route = host.run(way_script(peer.address))
            device = re.search(r"\bdev (\S+)", route.stdout)
            if device is None:
                raise HostError(f"{host.name}: no way to {peer.name} ({peer.address}) is known: {route.stderr.strip()}")
            if route_device in (None, device[1]) and (times := self._connect_times(host, peer)):
                route_device, connects_s[peer.name] = device[1], min(times)
        return None if route_device is None else _Way(route_device, connects_s)

    def _apply(self, host: Host, device: str, rules: Mapping[str, Rule], *, patience_s: float = 0.0) -> None:
        """Set exactly these rules on a device. Raises `HostError`."""
        netem = " ".join(rules[kind].netem for kind in sorted(rules))
        self._ask(host, set_queue_script(device, netem), patience_s=patience_s)

    def _queues(self, host: Host, patience_s: float) -> dict[str, dict[str, Any]]:
        """Our queueing disciplines on a host by device; empty without tc. Raises `HostError`."""
        output = self._ask(host, queues_script(), patience_s=patience_s).get("queues", "")
        try:
            queues = json.loads(output or "[]")
        except ValueError as error:
            raise HostError(f"{host.name}: tc cannot be understood: {output[:200]!r}") from error
        return {
            queue["dev"]: {key: queue.get(key) for key in ("options", "packets", "drops")}
            for queue in queues
            if queue.get("handle") == HANDLE and queue.get("kind") == "netem"
        }

    def _ask(self, host: Host, script: str, *, timeout_s: float = 10.0, patience_s: float = 0.0) -> dict[str, str]:
        return ask(host, script, timeout_s=timeout_s, patience_s=patience_s, scheduler=self.site.scheduler)


def _strongest(rules: Iterable[Rule]) -> dict[str, Rule]:
    """The strongest rule of each kind, by kind."""
    return {rule.kind: rule for rule in sorted(rules, key=lambda rule: (rule.least_s, rule.share))}


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 2)


class NetemKind(NodeKind[Netem]):
    """Evidence: netem is read back; delays: connects to another host take longer; losses: some probes of a burst were
    dropped and counted. Healed: netem is removed, and connects are as fast as before."""

    group = FaultGroup.PACKETS
    destroys = frozenset({Damage.PACKETS})
    needs_service = False
    rests_on = heal_rests_on = frozenset({"machine", "links"})
    mechanism = Netem
    needs = frozenset[Need]({"netem"})
    healed_by = "heal"

    def inject(self, by: Netem, fault: Fault) -> Evidence:
        return by.disturb(fault.targets, self.rule(fault))

    def heal(self, by: Netem, fault: Fault) -> Evidence:
        return by.soothe(fault.targets, self.rule(fault))

    @abstractmethod
    def rule(self, fault: Fault) -> Rule:
        """What this fault orders."""
