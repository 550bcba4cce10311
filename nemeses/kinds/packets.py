"""Packets between a node and the others arrive late, twice, out of order or not at all; connections are reset."""

from collections.abc import Mapping
from typing import Any

from history.fault_looks import FaultMark
from history.journal.evidence_rule import EvidenceRule
from installation.counted import counted
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed
from nemeses.mechanisms.netem import NetemKind, Rule
from nemeses.mechanisms.packets import ShareKind, WireEffects, WireKind
from nemeses.parameters import Parameter, ParameterError

_DELAY = Parameter(
    "delay_ms",
    "ms",
    "delay of the packets from the node to the others",
    1,
    2_000,
    drawn=(20.0, 500.0),
    remedy="a longer delay acts like a partition, a shorter one cannot be measured",
)
_JITTER = Parameter(
    "jitter_ms", "ms", "variation of the delay in both directions; less than the delay", 0, 2_000, default=0
)
_EVERY = Parameter("every_ms", "ms", "interval between two resets", 20, 10_000, drawn=(50.0, 2_000.0))


def _percent(affected: str, remedy: str = "") -> Parameter:
    """Above 50 % control connections fail, too."""
    description = f"share of the packets from the node to the others that {affected}"
    return Parameter("percent", "%", description, 1, 50, drawn=(1.0, 50.0), remedy=remedy)


class PacketDelay(NetemKind):
    """Packets from a node to the others arrive late."""

    name = "packet-delay"
    mark = FaultMark.CIRCLE
    action = "netem delays packets from the node to the other nodes"
    proven_by = (
        "the netem rule is read back; connects to another node take longer, and after the heal as long as before"
    )
    seen = (EvidenceRule("queue"), EvidenceRule("connect_ms", least=0))
    parameters = (_DELAY, _JITTER)
    injected_by = "delay"

    def check(self, parameters: Mapping[str, Any]) -> None:
        super().check(parameters)
        if parameters.get("jitter_ms", 0) >= parameters["delay_ms"]:
            raise ParameterError("jitter_ms", "the jitter must be smaller than delay_ms")

    def rule(self, fault: Fault) -> Rule:
        delay_ms, jitter_ms = _delay(fault)
        return Rule(self.name, f"delay {delay_ms:g}ms {jitter_ms:g}ms", least_s=(delay_ms - jitter_ms) / 1e3)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        rng = drawn.rng()
        delay_ms = round(_DELAY.draw(rng), 1)
        return {"delay_ms": delay_ms, "jitter_ms": round(delay_ms * rng.uniform(0, 0.5), 1)}

    def sentence(self, fault: Fault) -> str:
        delay_ms, jitter_ms = _delay(fault)
        varying = f", plus or minus {jitter_ms:g} ms" if jitter_ms else ""
        return f"packets from {listed(fault.targets)} to the other nodes are {delay_ms:g} ms late{varying}"

    def phrase(self, facts: Facts, heal: Facts) -> str:
        if facts.get("connect_ms") is None:
            return "no connect was timed"
        before_ms, during_ms = facts.get("connect_before_ms", 0), facts["connect_ms"]
        return f"a connect took {before_ms:.1f} ms before, {during_ms:.0f} ms during the fault"


def _delay(fault: Fault) -> tuple[float, float]:
    return float(fault.parameters["delay_ms"]), float(fault.parameters.get("jitter_ms", 0))


class PacketDuplicate(ShareKind):
    """Some packets from a node arrive twice, and TCP ignores the second copy."""

    name = "packet-duplicate"
    mark = FaultMark.SQUARE
    action = "the simulated network duplicates some packets from the node to the others"
    statement = "{percent:g} % of the packets from {nodes} to the other nodes arrive twice"
    proven_by = (
        "a burst of probe datagrams (false-negative probability 1e-9) shows duplicates, and at most the requested share"
    )
    seen = (EvidenceRule("twice", least=1),)
    parameters = (_percent("arrive twice"),)
    effect = "twice"
    told = "arrived twice"
    injected_by = "duplicate"


class PacketLoss(NetemKind):
    """Some packets from a node to the others are lost, and TCP retransmits them."""

    name = "packet-loss"
    mark = FaultMark.TRIANGLE_DOWN
    action = "netem drops some packets from the node to the other nodes"
    statement = "{percent:g} % of the packets from {nodes} to the other nodes are lost"
    proven_by = (
        "a burst of probe datagrams (false-negative probability 1e-9) shows counted drops, and at most the requested "
        "share"
    )
    seen = (EvidenceRule("dropped", least=1),)
    parameters = (_percent("are lost", remedy="to drop all packets, use cut"),)
    injected_by = "lose"

    def rule(self, fault: Fault) -> Rule:
        percent = float(fault.parameters["percent"])
        return Rule(self.name, f"loss {percent:g}%", share=percent / 100)

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"{facts.get('dropped', 0)} of {counted(facts.get('seen', 0), 'packet')} dropped"


class PacketReorder(ShareKind):
    """Later packets overtake some packets from a node, and TCP holds the later ones back."""

    name = "packet-reorder"
    mark = FaultMark.DIAMOND
    action = (
        "the simulated network holds back some packets from the node to the others, so that later ones overtake them"
    )
    statement = "later packets overtake {percent:g} % of the packets from {nodes} to the other nodes"
    proven_by = (
        "a burst of probe datagrams (false-negative probability 1e-9) shows overtaken ones, and at most the requested "
        "share"
    )
    seen = (EvidenceRule("overtaken", least=1),)
    parameters = (_percent("are held back, up to 50 ms"),)
    effect = "overtaken"
    told = "were overtaken"
    injected_by = "reorder"


class ConnectionReset(WireKind):
    """All connections between a node and others are reset at both ends, repeatedly until the heal, as by a middlebox
    that lost its state."""

    name = "connection-reset"
    mark = FaultMark.CROSS
    action = "the simulated network resets all connections of the node at both ends, repeatedly"
    statement = "all connections of {nodes} are reset every {every_ms:g} ms"
    proven_by = "the number of reset connections; after the heal, no connection is reset for longer than the interval"
    seen = (EvidenceRule("broken", least=1),)
    parameters = (_EVERY,)
    rests_on = frozenset({"machine", "process", "links"})
    injected_by = "reset"

    def inject(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.reset(fault.targets, float(fault.parameters["every_ms"]) / 1e3)

    def heal(self, by: WireEffects, fault: Fault) -> Evidence:
        return by.leave_alone(fault.targets, float(fault.parameters["every_ms"]) / 1e3)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        return {"every_ms": round(_EVERY.draw(drawn.rng()))}

    def phrase(self, facts: Facts, heal: Facts) -> str:
        return f"{facts.get('broken', 0) + heal.get('broken_again', 0)} connection ends reset"
