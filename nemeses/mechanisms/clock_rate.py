"""Lets clocks run too fast or too slow."""

from __future__ import annotations

from collections.abc import Collection

from nemeses.fault import Evidence, combine, worst
from nemeses.mechanism import Mechanism
from nemeses.mechanisms.clocks import ClockReading, change, read_clocks, set_right
from nemeses.mechanisms.parallel import on_each
from nemeses.ports import Host, Site

_TIMES_TOLERANCE = 3  # the smallest measurable drift, in multiples of the reading's tolerance
LACKING = "this world cannot change the rate of clocks"


class Drift(Mechanism):
    """The rate of the hosts' clocks, and the clocks' readings before the rate was changed."""

    stage = 45
    part = "pace of clocks"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._drifting: dict[str, tuple[ClockReading, float]] = {}

    def begin(self, targets: Collection[str], gain: float) -> Evidence:
        """Let clocks gain `gain` seconds per second; the effect is measured at the end."""
        oscillators = self.site.oscillators
        if oscillators is None:
            return Evidence("inconclusive", {"error": LACKING})

        def act(host: Host) -> Evidence:
            self._drifting[host.name] = read_clocks(host, self.site.scheduler), gain
            oscillators.drift(host.name, gain)
            return Evidence("confirmed", {"gain": gain})

        return combine(on_each(self.site, targets, act))

    def end(self, targets: Collection[str]) -> Evidence:
        """Restore the rate of clocks, measure how far they deviated, and correct them."""
        oscillators = self.site.oscillators
        if oscillators is None:
            return Evidence("inconclusive", {"error": LACKING})

        def act(host: Host) -> Evidence:
            self._await_measurable(host)
            oscillators.drift(host.name, 0.0)
            found = read_clocks(host, self.site.scheduler)
            judged = self._judge(host, found)
            righted = set_right(host, self.site.scheduler, found)
            return Evidence(worst([judged.status, righted.status]), {**judged.detail, "set_right": righted.detail})

        return combine(on_each(self.site, targets, act))

    def heal_all(self) -> Evidence | None:
        if self.site.oscillators is None:
            return None
        return self.end([*self._drifting]) if self._drifting else Evidence("confirmed", {})

    def _await_measurable(self, host: Host) -> None:
        """Let a drift that is smaller than the uncertainty of a reading continue until it is measurable."""
        if host.name in self._drifting:
            before, gain = self._drifting[host.name]
            ends_s = before.at_s + _TIMES_TOLERANCE * 2 * before.uncertainty_s / abs(gain)
            self.site.scheduler.sleep(max(0.0, ends_s - self.site.scheduler.monotonic()))

    def _judge(self, host: Host, found: ClockReading) -> Evidence:
        if host.name not in self._drifting:
            return Evidence("confirmed", {})
        before, gain = self._drifting.pop(host.name)
        moved = change(before, found)
        passed_s = found.at_s - before.at_s
        tolerance_s = before.uncertainty_s + found.uncertainty_s
        detail = {"passed_s": round(passed_s, 3), "moved": moved.to_json(), "tolerance_s": round(tolerance_s, 4)}
        if abs(gain) * passed_s <= tolerance_s:
            return Evidence("inconclusive", {**detail, "error": "smaller than the uncertainty of a reading"})
        off_s = abs(moved.steady_s - gain * passed_s)
        return Evidence("confirmed" if off_s <= tolerance_s + 0.01 * abs(gain) * passed_s else "mismatch", detail)
