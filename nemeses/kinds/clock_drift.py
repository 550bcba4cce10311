"""Clock drift: a node's clocks run too fast or too slow, and with them its leases and timeouts.

Drifts of one host add up, and a heal ends one of them. The evidence of a drift is the change of the time since boot
from its start to its heal. The expected change is the gain by all drifts and freezes of the host in that time.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from history.damage import Damage
from history.fault_looks import FaultGroup, FaultMark
from history.journal.evidence_rule import EvidenceRule
from nemeses.fault import Evidence, Fault, combine, worst
from nemeses.in_force import InForce
from nemeses.kind import Facts, Need, NodeKind, RandomDraw, listed
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.clocks import ClockReading, change, read_clocks, set_right
from nemeses.mechanisms.parallel import on_each, required
from nemeses.parameters import Parameter
from nemeses.ports import Host, Oscillators, Site

_TIMES_TOLERANCE = 3  # the smallest measurable drift, in multiples of the reading's tolerance
LACKING = "this world cannot change the rate of clocks"


class _Drift(NamedTuple):
    """One fault: its gain in seconds per second; the reading, and the gain of all drifts in seconds, at its start."""

    gain: float
    before: ClockReading
    gained_s: float


class Drift(Mechanism):
    """The rate of the hosts' clocks, and the clocks' readings before each drift."""

    stage = 45
    part = "pace of clocks"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._in_force = InForce[_Drift]()

    def begin(self, targets: Collection[str], gain: float) -> Evidence:
        """Let clocks gain `gain` seconds per second more; the effect is measured at the end."""
        oscillators = required(self.site.oscillators, LACKING)

        def act(host: Host) -> Evidence:
            reading = read_clocks(host, self.site.scheduler)
            gained_s = self.in_force.clocks.count(host.name, reading.at_s)
            self._in_force.add(host.name, _Drift(gain, reading, gained_s))
            self._set_rate(host, oscillators)
            return Evidence("confirmed", {"gain": gain})

        return combine(on_each(self.site, targets, act))

    def end(self, targets: Collection[str], gain: float) -> Evidence:
        """End one drift with this gain on each target, measure how far the clocks deviated, and correct them."""
        return self._end(targets, gain)

    def heal_all(self) -> Evidence | None:
        if self.site.oscillators is None:
            return None
        drifting = [name for name in self.site.hosts if self._in_force.on(name)]
        return self._end(drifting, None) if drifting else Evidence("confirmed", {})

    def _end(self, targets: Collection[str], gain: float | None) -> Evidence:
        """`gain` None: end all drifts of the targets."""
        oscillators = required(self.site.oscillators, LACKING)

        def act(host: Host) -> Evidence:
            in_force = self._in_force.on(host.name)
            ended = in_force if gain is None else [drift for drift in in_force if drift.gain == gain][-1:]
            for drift in ended:
                self._await_measurable(drift)
            gained_s = self.in_force.clocks.count(host.name, self.site.scheduler.monotonic())
            for drift in ended:
                self._in_force.end(host.name, drift)
            self._set_rate(host, oscillators)
            reading = read_clocks(host, self.site.scheduler)
            judged = [_judge(drift, reading, gained_s) for drift in ended]
            righted = set_right(host, self.site.scheduler, reading, self.in_force.clocks)
            detail = judged[-1].detail if judged else {}
            status = worst([*(evidence.status for evidence in judged), righted.status])
            return Evidence(status, {**detail, "set_right": righted.detail})

        return combine(on_each(self.site, targets, act))

    def _set_rate(self, host: Host, oscillators: Oscillators) -> None:
        """Let the clocks of a host gain what all its drifts say together."""
        drifts = self.in_force.clocks.drifts
        drifts.end_all(host.name)
        for drift in self._in_force.on(host.name):
            drifts.add(host.name, drift.gain)
        oscillators.drift(host.name, sum(drifts.on(host.name)))

    def _await_measurable(self, drift: _Drift) -> None:
        """Let a drift that is smaller than the uncertainty of a reading continue until it is measurable."""
        ends_s = drift.before.at_s + _TIMES_TOLERANCE * 2 * drift.before.uncertainty_s / abs(drift.gain)
        self.site.scheduler.sleep(max(0.0, ends_s - self.site.scheduler.monotonic()))


def _judge(drift: _Drift, reading: ClockReading, gained_s: float) -> Evidence:
    before, gain = drift.before, drift.gain
    moved = change(before, reading)
    passed_s = reading.at_s - before.at_s
    tolerance_s = before.uncertainty_s + reading.uncertainty_s
    detail = {"passed_s": round(passed_s, 3), "moved": moved.to_json(), "tolerance_s": round(tolerance_s, 4)}
    if abs(gain) * passed_s <= tolerance_s:
        return Evidence("inconclusive", {**detail, "error": "smaller than the uncertainty of a reading"})
    off_s = abs(moved.steady_s - (gained_s - drift.gained_s))
    return Evidence("confirmed" if off_s <= tolerance_s + 0.01 * abs(gain) * passed_s else "mismatch", detail)


_PERCENT = Parameter(
    "percent",
    "%",
    "how much faster, or (negative) slower, the node's clocks run",
    0.5,
    20,
    signed=True,
    drawn=(0.5, 10.0),
)


class ClockDrift(NodeKind[Drift]):
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

    def phrase(self, facts: Facts, heal: Facts) -> str:
        moved = heal.get("moved")
        if moved is None:
            return "its clocks were not read afterwards"
        return f"its time since boot was off by {moved['steady_s']:+.3f} s after {heal.get('passed_s', 0):g} s"
