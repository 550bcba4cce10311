"""Packets that come late: everything works, and everybody wonders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, RandomDraw, listed, node_facts
from nemeses.mechanisms.netem import Netem, NetemKind, Rule
from nemeses.parameters import Parameter, ParameterError

_DELAY = Parameter(
    "delay_ms",
    "ms",
    "by how much what the node sends to the others is late",
    1,
    2_000,
    drawn=(20.0, 500.0),
    remedy="more is a cut rather than a delay, less cannot be seen",
)
_JITTER = Parameter("jitter_ms", "ms", "by how much that varies, either way; less than the delay", 0, 2_000, default=0)


class PacketDelay(NetemKind):
    """What a node sends to the others is late."""

    name = "packet-delay"
    deed = "netem on the node's device to the other nodes"
    proven_by = "netem read back; connects to another node take longer, and are as fast as before when healed"
    seen = (EvidenceRule("queue"), EvidenceRule("connect_ms", least=0))
    parameters = (_DELAY, _JITTER)
    begun_by = "delay"

    def check(self, parameters: Mapping[str, Any]) -> None:
        super().check(parameters)
        if parameters.get("jitter_ms", 0) >= parameters["delay_ms"]:
            raise ParameterError("jitter_ms", "the jitter must be smaller than delay_ms")

    def inflict(self, by: Netem, fault: Fault) -> Evidence:
        delay_ms, jitter_ms = _delay(fault)
        rule = Rule(self.name, f"delay {delay_ms:g}ms {jitter_ms:g}ms", least_s=(delay_ms - jitter_ms) / 1e3)
        return by.disturb(fault.targets, rule)

    def draw(self, lot: RandomDraw) -> dict[str, Any]:
        rng = lot.rng()
        delay_ms = round(_DELAY.draw(rng), 1)
        return {"delay_ms": delay_ms, "jitter_ms": round(delay_ms * rng.uniform(0, 0.5), 1)}

    def sentence(self, fault: Fault) -> str:
        delay_ms, jitter_ms = _delay(fault)
        varying = f", give or take {jitter_ms:g} ms" if jitter_ms else ""
        return f"what {listed(fault.targets)} sends to the other nodes is {delay_ms:g} ms late{varying}"

    def proof(self, seen: Facts, after: Facts) -> str:
        return "; ".join(f"{name}: {_tell(facts)}" for name, facts in node_facts(seen).items())


def _delay(fault: Fault) -> tuple[float, float]:
    return float(fault.parameters["delay_ms"]), float(fault.parameters.get("jitter_ms", 0))


def _tell(facts: Facts) -> str:
    if facts.get("connect_ms") is None:
        return "no connect was timed"
    return f"a connect took {facts.get('connect_before_ms', 0):.1f} ms before, {facts['connect_ms']:.0f} ms then"
