"""Partitions: packets in some directions are dropped without notice, or rejected with an error to the sender."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any, ClassVar

from history.damage import Damage
from history.fault_looks import FaultGroup
from history.journal.evidence_rule import EvidenceRule
from installation.counted import counted
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, Kind, Need, RandomDraw, listed
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.parallel import on_each, required
from nemeses.mechanisms.shell import ask, datagrams_script, reach_script, refusal_script
from nemeses.parameters import DIRECTIONS, Choice, Direction
from nemeses.ports import Host, HostError, Network, PacketCount, Site

Pair = tuple[str, str]
Counters = dict[Pair, PacketCount]

_INJECT_DEADLINE_S = 2.0
_HEAL_DEADLINE_S = 5.0


class PartitionMechanism(Mechanism):
    """The network between the hosts, cut and healed by directed pairs. A pair that several faults cut stays cut until
    the last of them is healed; the last one that was injected decides whether its packets are rejected."""

    stage = 30
    part = "network"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._in_force: list[tuple[Fault, bool]] = []  # with whether it rejects
        self._unproven: set[Pair] = set()  # healed while a host did not answer, so that no connection was tried

    def cut(self, fault: Fault, *, reject: bool = False) -> Evidence:
        network = required(self.site.network, "this world has no network to cut")
        pairs = cut_pairs(fault, self.site.hosts)
        counters = network.counters()
        network.cut(pairs, reject=reject)
        self._in_force.append((fault, reject))
        proof = self._prove_cut(network, pairs, counters)
        return self._prove_refusals(pairs, proof) if reject and proof.confirmed else proof

    def heal(self, fault: Fault) -> Evidence:
        network = required(self.site.network, "this world has no network to heal")
        mine = [entry for entry in self._in_force if entry[0] == fault][-1:]
        for entry in mine:
            self._in_force.remove(entry)
        pairs = cut_pairs(fault, self.site.hosts)
        rejected = {pair: reject for cause, reject in self._in_force for pair in cut_pairs(cause, self.site.hosts)}
        for reject in (False, True):
            remaining_pairs = {pair for pair in pairs if rejected.get(pair) is reject}
            if remaining_pairs and mine and mine[0][1] is not reject:
                network.heal(remaining_pairs)
                network.cut(remaining_pairs, reject=reject)
        return self._heal(network, pairs - rejected.keys(), frozenset(rejected))

    def heal_all(self) -> Evidence | None:
        network = self.site.network
        if network is None:
            return None
        self._in_force.clear()
        pairs = network.cut_pairs() | self._unproven
        self._unproven.clear()
        return self._heal(network, pairs)

    def _heal(self, network: Network, pairs: set[Pair], cut: Collection[Pair] = frozenset()) -> Evidence:
        """`cut`: the pairs that stay cut."""
        dropped: dict[str, int] = {}
        try:
            dropped |= {_arrow(pair): count.dropped for pair, count in network.counters().items() if pair in pairs}
            network.heal(pairs)
            return self._prove_heal(network, pairs, cut, dropped)
        except HostError as error:
            return Evidence("inconclusive", {"error": str(error), "dropped": dropped})

    def _prove_cut(self, network: Network, pairs: set[Pair], counters: Counters) -> Evidence:
        if not pairs:
            return Evidence("mismatch", {"error": "the partition separates no nodes"})
        one_way = {(b, a) for a, b in pairs} - network.cut_pairs()
        deadline = self.site.scheduler.monotonic() + _INJECT_DEADLINE_S * self.site.time_scale
        while True:
            unreached = self._send_probes(pairs | one_way)
            now = network.counters()
            missing = {pair for pair in pairs if now[pair].dropped == 0}
            blocked = {pair for pair in one_way if now[pair].seen == counters[pair].seen or now[pair].dropped}
            if (not missing and not blocked) or self.site.scheduler.monotonic() > deadline:
                break
        detail = {
            "dropped": {_arrow(pair): now[pair].dropped for pair in sorted(pairs)},
            "passing": {_arrow(pair): now[pair].seen - counters[pair].seen for pair in sorted(one_way)},
            "unprobed": sorted(unreached),
        }
        if not missing and not blocked:
            return Evidence("confirmed", detail)
        excused = all(source in unreached for source, _ in missing | blocked)
        return Evidence("inconclusive" if excused else "mismatch", detail)

    def _prove_refusals(self, pairs: set[Pair], cut_evidence: Evidence) -> Evidence:
        """Connections along the pairs fail at once; dropped packets would let them wait until the timeout."""
        waited: dict[str, list[str]] = {}

        def connect(host: Host) -> Evidence:
            answers = ask(host, refusal_script(self._targets(b for a, b in sorted(pairs) if a == host.name)))
            waited[host.name] = sorted(name for name, state in answers.items() if state != "refused")
            return Evidence("confirmed", {})

        proofs = on_each(self.site, sorted({source for source, _ in pairs}), connect)
        detail = {**cut_evidence.detail, "not_refused": {a: b for a, b in sorted(waited.items()) if b}}
        if detail["not_refused"]:
            return Evidence("mismatch", detail)
        unasked = sorted(name for name, proof in proofs.items() if not proof.confirmed)
        return Evidence("inconclusive" if len(unasked) == len(proofs) else "confirmed", {**detail, "unasked": unasked})

    def _targets(self, names: Iterable[str]) -> list[tuple[str, str, int]]:
        """The probe ports of these hosts."""
        return [(name, self.site.hosts[name].address, self.site.hosts[name].probe_port) for name in names]

    def _send_probes(self, pairs: Collection[Pair]) -> set[str]:
        """Send a datagram along each pair; returns the sources that could not be asked to send."""
        destinations: dict[str, list[str]] = defaultdict(list)
        for source, destination in sorted(pairs):
            destinations[source].append(self.site.hosts[destination].address)

        def send(host: Host) -> Evidence:
            ask(host, datagrams_script(destinations[host.name]))
            return Evidence("confirmed", {})

        return {name for name, e in on_each(self.site, destinations, send).items() if not e.confirmed}

    def _prove_heal(
        self, network: Network, pairs: set[Pair], cut: Collection[Pair], dropped: dict[str, int]
    ) -> Evidence:
        """A connection needs both directions: one whose other direction stays `cut` is not tried. One with a host that
        another fault keeps from answering is tried at the heal of everything."""
        still_cut = pairs & network.cut_pairs()
        if still_cut:
            return Evidence("mismatch", {"still_cut": sorted(map(_arrow, still_cut)), "dropped": dropped})
        targets: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
        silent = {name for name in self.site.hosts if self.in_force.hiding(name, {"machine"})}
        self._unproven |= (untried := {pair for pair in pairs if silent & set(pair)})
        open_pairs = {(a, b) for a, b in pairs - untried if (b, a) not in cut}
        for source, destination in sorted(open_pairs | {(b, a) for a, b in open_pairs}):
            host = self.site.hosts[destination]
            targets[source].append((host.name, host.address, host.probe_port))
        closed: dict[str, list[str]] = {}

        def connect(host: Host) -> Evidence:
            # TCP retransmits a lost SYN after a second; a new connection does not wait for that.
            deadline = self.site.scheduler.monotonic() + _HEAL_DEADLINE_S * self.site.time_scale
            while True:
                answers = ask(host, reach_script(targets[host.name]))
                closed[host.name] = sorted(name for name, state in answers.items() if state != "open")
                if not closed[host.name] or self.site.scheduler.monotonic() > deadline:
                    return Evidence("mismatch" if closed[host.name] else "confirmed", {})

        evidence = on_each(self.site, targets, connect)
        detail: dict[str, Any] = {
            "dropped": dropped,
            "unreachable": {a: b for a, b in sorted(closed.items()) if b},
        }
        if untried:
            detail["untried"] = sorted(map(_arrow, untried))
        if any(e.status == "mismatch" for e in evidence.values()):
            return Evidence("mismatch", detail)
        unprobed = sorted(name for name, e in evidence.items() if not e.confirmed)
        return Evidence("inconclusive" if unprobed else "confirmed", {**detail, "unprobed": unprobed})


def _arrow(pair: Pair) -> str:
    return f"{pair[0]}->{pair[1]}"


def cut_pairs(fault: Fault, nodes: Iterable[str]) -> set[Pair]:
    """The directed pairs (source, destination) that a partition cuts."""
    if "pairs" in fault.parameters:
        return {(source, destination) for source, destination in fault.parameters["pairs"]}
    inside, outside = set(fault.targets), set(nodes) - set(fault.targets)
    direction: Direction = fault.parameters.get("direction", "both")
    pairs = set()
    if direction in ("both", "out"):
        pairs |= {(a, b) for a in inside for b in outside}
    if direction in ("both", "in"):
        pairs |= {(b, a) for a in inside for b in outside}
    return pairs


class PartitionKind(Kind[PartitionMechanism]):
    """Evidence: probes in every cut direction were dropped and counted, and probes in the open direction passed;
    healed: connections between all separated hosts succeed."""

    group = FaultGroup.PARTITION
    proven_by = "the drop rule's counters under probes; after the heal the probes pass"
    destroys = frozenset({Damage.PACKETS})
    needs_service = False
    seen: ClassVar[tuple[EvidenceRule, ...]] = (EvidenceRule("dropped", of="fault", least=1),)
    healed = (EvidenceRule("unreachable", of="fault", values=({},)),)
    heal_rests_on = frozenset()
    mechanism = PartitionMechanism
    needs = frozenset[Need]({"network"})
    parameters = (
        Choice(
            "direction",
            "which packets between the targets and the rest are lost: `both`, `out` or `in`",
            words=DIRECTIONS,
        ),
        Choice("pairs", "instead: exactly these directed pairs of nodes (from a script's `between`)", drawn=False),
    )
    healed_by = "heal"
    takes = "groups"

    def inject(self, by: PartitionMechanism, fault: Fault) -> Evidence:
        return by.cut(fault)

    def heal(self, by: PartitionMechanism, fault: Fault) -> Evidence:
        return by.heal(fault)

    def reaches(self, fault: Fault, nodes: Collection[str]) -> Collection[str]:
        return sorted({name for pair in cut_pairs(fault, nodes) for name in pair})

    def cuts(self, fault: Fault, nodes: Collection[str]) -> Collection[Pair]:
        return cut_pairs(fault, nodes)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        return {"direction": drawn.direction}

    def sentence(self, fault: Fault) -> str:
        pairs = fault.parameters.get("pairs")
        if pairs is not None:
            return f"nothing passes {listed([_arrow((source, destination)) for source, destination in pairs])}"
        nodes, verb = listed(fault.targets), "is" if len(fault.targets) == 1 else "are"
        match fault.parameters.get("direction", "both"):
            case "out":
                return f"nothing that {nodes} {'sends' if verb == 'is' else 'send'} reaches the other nodes"
            case "in":
                return f"nothing from the other nodes reaches {nodes}"
            case _:
                return f"{nodes} {verb} cut off from the other nodes, both ways"

    def proof(self, effect: Facts, heal: Facts) -> str:
        dropped = heal.get("dropped") or effect.get("dropped") or {}
        return f"{counted(sum(dropped.values()), 'packet')} dropped on {counted(len(dropped), 'directed link')}"
