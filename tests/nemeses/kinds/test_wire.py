"""Packets that are doubled or overtaken, connections that are reset: believed when a burst of probes has met it."""

import pytest

from nemeses import Evidence, Fault, Nemesis, Site
from nemeses.ports import Burst
from tests.nemeses.fakes import FakeHost, lines
from tests.nemeses.machines import FakeTime

DUPLICATE = Fault("packet-duplicate", ("n1",), parameters={"percent": 20.0})
REORDER = Fault("packet-reorder", ("n1",), parameters={"percent": 20.0})
RESET = Fault("connection-reset", ("n1",), parameters={"every_ms": 100})


class FakeWire:
    """Applies the requested faults to packets, unless it does not work."""

    def __init__(self) -> None:
        self.shares = {"twice": 0.0, "overtaken": 0.0}
        self.connections = 6
        self.resetting: float | None = None
        self.arriving = 1.0
        self.works = self.heals = True
        self.times = 0

    def duplicate(self, name: str, share: float) -> None:
        self._set(name, "twice", share)

    def reorder(self, name: str, share: float) -> None:
        self._set(name, "overtaken", share)

    def _set(self, _: str, effect: str, share: float) -> None:
        if share or self.heals:
            self.shares[effect] = share if self.works else 0.0

    def reset(self, name: str) -> int:
        del name
        return self.connections

    def keep_resetting(self, name: str, every_s: float | None) -> int:
        del name
        self.resetting = every_s if every_s or self.heals else self.resetting
        return self.connections

    def times_reset(self, name: str) -> int:
        """Time passes between two looks."""
        del name
        self.times += self.resetting is not None
        return self.times

    def burst(self, name: str, to: str, count: int) -> Burst:
        del name, to
        arrived = round(count * self.arriving)
        return Burst(count, arrived, *(round(count * share) for share in self.shares.values()))


@pytest.fixture
def wire() -> FakeWire:
    return FakeWire()


def nemesis(wire: FakeWire | None, *names: str) -> Nemesis:
    hosts = {
        name: FakeHost(name, lambda _: lines(port="open", start="7", after="S", signalled="yes"))
        for name in names or ("n1", "n2")
    }
    return Nemesis(Site(hosts, wire=wire, scheduler=FakeTime()))


def outcome_of(evidence: Evidence) -> tuple[str, object]:
    return evidence.status, evidence.detail.get("n1", {}).get("error")


@pytest.mark.parametrize(("fault", "effect"), [(DUPLICATE, "twice"), (REORDER, "overtaken")])
def test_effects_on_packets_are_counted_at_the_receiver(wire: FakeWire, fault: Fault, effect: str) -> None:
    site = nemesis(wire)
    seen = site.inject(fault)
    assert seen.status == "confirmed"
    assert seen.detail["n1"][effect] == pytest.approx(0.2 * seen.detail["n1"]["sent"], abs=1)
    assert wire.shares[effect] == 0.2
    assert site.heal(fault).status == "confirmed"
    assert wire.shares[effect] == 0.0


@pytest.mark.parametrize("fault", [DUPLICATE, REORDER])
def test_a_wire_without_effect_is_a_mismatch(wire: FakeWire, fault: Fault) -> None:
    wire.works = False
    assert nemesis(wire).inject(fault).status == "mismatch"


def test_an_effect_above_the_requested_rate_is_a_mismatch(wire: FakeWire) -> None:
    wire.duplicate = lambda name, share: wire.shares.update(twice=0.9)  # type: ignore[method-assign] # noqa: ARG005
    assert nemesis(wire).inject(DUPLICATE).status == "mismatch"


def test_lost_probes_are_inconclusive(wire: FakeWire) -> None:
    wire.arriving = 0.0
    assert outcome_of(nemesis(wire).inject(DUPLICATE)) == ("inconclusive", "the probes did not reach n2")


def test_connections_are_reset_until_the_heal(wire: FakeWire) -> None:
    site = nemesis(wire)
    seen = site.inject(RESET)
    assert (seen.status, seen.detail["n1"]["broken"], wire.resetting) == ("confirmed", 6, 0.1)
    assert site.heal(RESET).status == "confirmed"
    assert wire.resetting is None


def test_a_node_without_connections_is_inconclusive(wire: FakeWire) -> None:
    wire.connections = 0
    assert nemesis(wire).inject(RESET).status == "inconclusive"


@pytest.mark.parametrize("fault", [DUPLICATE, REORDER, RESET])
def test_a_world_without_wire_faults_is_inconclusive(fault: Fault) -> None:
    seen = nemesis(None).inject(fault)
    assert (seen.status, "cannot manipulate packets" in seen.detail["error"]) == ("inconclusive", True)


def test_a_single_node_without_peers_is_inconclusive(wire: FakeWire) -> None:
    assert nemesis(wire, "n1").inject(DUPLICATE).status == "inconclusive"


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("packet-duplicate", {"percent": 0.5}),
        ("packet-reorder", {"percent": 51}),
        ("packet-reorder", {}),
        ("connection-reset", {"every_ms": 1}),
    ],
)
def test_parameters_that_cannot_be_measured_are_refused(
    wire: FakeWire, kind: str, parameters: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match=r"is not|missing"):
        nemesis(wire).inject(Fault(kind, ("n1",), parameters=parameters))


def test_every_wire_fault_ends_at_the_end_of_a_run(wire: FakeWire) -> None:
    site = nemesis(wire)
    for fault in (DUPLICATE, REORDER, RESET):
        site.inject(fault)
    site.heal_all()
    assert (wire.shares, wire.resetting) == ({"twice": 0.0, "overtaken": 0.0}, None)


@pytest.mark.parametrize("fault", [DUPLICATE, REORDER, RESET])
def test_a_heal_without_effect_is_a_mismatch(wire: FakeWire, fault: Fault) -> None:
    rare = Fault(
        fault.kind,
        fault.targets,
        parameters={**fault.parameters, "percent": 1.0} if fault != RESET else RESET.parameters,
    )
    site = nemesis(wire)
    assert site.inject(rare).status == "confirmed"
    wire.heals = False
    assert site.heal(rare).status == "mismatch"


@pytest.mark.parametrize("fault", [DUPLICATE, REORDER, RESET])
def test_a_heal_of_all_faults_without_effect_is_a_mismatch(wire: FakeWire, fault: Fault) -> None:
    site = nemesis(wire)
    site.inject(fault)
    wire.heals = False
    assert site.heal_all().status == "mismatch"
