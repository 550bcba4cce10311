"""Clock drift: a node's clocks run too fast or too slow, and with them its leases and timeouts."""

from __future__ import annotations

from typing import Any

from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from nemeses.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault
from nemeses.kind import Facts, Kind, Need, RandomDraw, facts_of, listed, node_facts
from nemeses.mechanisms.clock_rate import Drift
from nemeses.parameters import Parameter

_PERCENT = Parameter(
    "percent",
    "%",
    "how much faster, or (negative) slower, the node's clocks run",
    0.5,
    20,
    signed=True,
    drawn=(0.5, 10.0),
)


class ClockDrift(Kind[Drift]):
    """Evidence: at the heal, the time since boot deviates by the rate times the elapsed time."""

    name = "clock-drift"
    group, mark = FaultGroup.CLOCK, FaultMark.CIRCLE
    action = "all clocks and timers of the simulated machine run faster or slower"
    proven_by = "at the heal, the time since boot deviates by the rate times the elapsed time; afterwards it is correct"
    destroys = frozenset({Damage.CLOCK_PACE})
    seen = (EvidenceRule("gain"),)
    healed = (EvidenceRule("moved"),)
    mechanism = Drift
    needs = frozenset[Need]({"drift"})
    parameters = (_PERCENT,)
    proven_late = True
    injected_by = "drift"
    healed_by = "steady"

    def inject(self, by: Drift, fault: Fault) -> Evidence:
        return by.begin(fault.targets, float(fault.parameters["percent"]) / 100)

    def heal(self, by: Drift, fault: Fault) -> Evidence:
        return by.end(fault.targets, float(fault.parameters["percent"]) / 100)

    def draw(self, drawn: RandomDraw) -> dict[str, Any]:
        rng = drawn.rng()
        return {"percent": round(rng.choice((-1, 1)) * _PERCENT.draw(rng), 2)}

    def sentence(self, fault: Fault) -> str:
        percent = float(fault.parameters["percent"])
        return f"the clocks of {listed(fault.targets)} run {abs(percent):g} % too {'fast' if percent > 0 else 'slow'}"

    def proof(self, effect: Facts, heal: Facts) -> str:
        return "; ".join(f"{name}: {_tell(facts_of(heal, name))}" for name in node_facts(effect))


def _tell(heal: Facts) -> str:
    moved = heal.get("moved")
    if moved is None:
        return "its clocks were not read afterwards"
    return f"its time since boot was off by {moved['steady_s']:+.3f} s after {heal.get('passed_s', 0):g} s"
