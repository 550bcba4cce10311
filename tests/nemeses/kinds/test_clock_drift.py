"""Clocks with a wrong pace: confirmed when the time since boot differs by the pace times the duration."""

import pytest

from nemeses import Evidence, Fault, Nemesis, Site
from tests.nemeses.machines import ROUND_TRIP_S, FakeMachine, FakeTime


class FakeOscillators:
    """Changes the pace of one machine's clocks, by the factor `heeds` of the requested change."""

    def __init__(self, machine: FakeMachine, heeds: float = 1.0) -> None:
        self.gain = 0.0
        self._machine = machine
        self._heeds = heeds

    def drift(self, name: str, gain: float) -> None:
        assert name == self._machine.name
        self.gain = gain * self._heeds

    def pass_time(self, seconds: float) -> None:
        self._machine.clock.sleep(seconds)
        self._machine.uptime_ahead_s += self.gain * seconds
        self._machine.offset_s += self.gain * seconds


def drift(seconds: float, percent: float = 5.0, heeds: float = 1.0) -> tuple[Evidence, FakeMachine]:
    """The evidence of a drift that is healed after this time."""
    machine = FakeMachine("n1", FakeTime())
    oscillators = FakeOscillators(machine, heeds)
    site = Nemesis(Site({"n1": machine}, oscillators=oscillators, scheduler=machine.clock))
    fault = Fault("clock-drift", ("n1",), parameters={"percent": percent})
    assert site.inject(fault).status == "confirmed"
    oscillators.pass_time(seconds)
    healed = site.heal(fault)
    assert oscillators.gain == 0.0
    return healed, machine


@pytest.mark.parametrize("percent", [5.0, -5.0, 20.0])
def test_a_clock_that_drifted_is_off_by_as_much_and_set_right(percent: float) -> None:
    healed, machine = drift(10.0, percent)
    assert healed.status == "confirmed"
    assert healed.detail["n1"]["moved"]["steady_s"] == pytest.approx(percent / 10, abs=0.1)
    assert abs(machine.offset_s) < 0.1


@pytest.mark.parametrize("heeds", [0.0, 0.5, 2.0])
def test_a_clock_that_kept_another_pace_is_a_mismatch(heeds: float) -> None:
    assert drift(10.0, heeds=heeds)[0].status == "mismatch"


def test_a_drift_below_the_resolution_lasts_until_it_can_be_measured() -> None:
    began_s = FakeTime().now
    _, machine = drift(0.1, 0.5)
    assert machine.clock.now - began_s >= 3 * ROUND_TRIP_S / 0.005


def test_a_world_without_clock_drift_is_inconclusive() -> None:
    machine = FakeMachine("n1", FakeTime())
    fault = Fault("clock-drift", ("n1",), parameters={"percent": 5.0})
    assert Nemesis(Site({"n1": machine}, scheduler=machine.clock)).inject(fault).status == "inconclusive"
