"""Packet delay: packets from a node to the others arrive late."""

from collections.abc import Mapping
from typing import Any

from history.fault_looks import FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Fault
from nemeses.kind import Facts, RandomDraw, listed
from nemeses.mechanisms.netem import NetemKind, Rule
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
