"""Delays and losses: netem is believed when packets are seen to be late or gone."""

import pytest

from nemeses import Evidence, Fault, Nemesis, Site
from tests.nemeses.machines import FakeMachine, FakeTime

DELAY = Fault("packet-delay", ("n1",), parameters={"delay_ms": 80.0, "jitter_ms": 20.0})
LOSS = Fault("packet-loss", ("n1",), parameters={"percent": 12.5})


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine("n1", FakeTime())


def nemesis(machine: FakeMachine) -> Nemesis:
    return Nemesis(Site({"n1": machine, "n2": FakeMachine("n2", machine.clock)}, scheduler=machine.clock))


def inject(machine: FakeMachine, fault: Fault) -> Evidence:
    return nemesis(machine).inject(fault)


def test_a_delay_is_connects_that_take_longer(machine: FakeMachine) -> None:
    site = nemesis(machine)
    injected = site.inject(DELAY)
    assert injected.status == "confirmed"
    detail = injected.detail["n1"]
    assert (detail["device"], detail["to"], detail["connect_before_ms"], detail["connect_ms"]) == ("eth0", "n2", 2, 65)
    assert detail["queue"]["options"] == "delay 80ms 20ms"
    healed = site.heal(DELAY)
    assert (healed.status, healed.detail["n1"]["connect_ms"], machine.queue) == ("confirmed", 2, None)
    assert site.heal(DELAY).status == "confirmed"


def test_a_loss_is_probes_dropped_and_counted(machine: FakeMachine) -> None:
    site = nemesis(machine)
    injected = site.inject(LOSS)
    assert injected.status == "confirmed"
    assert injected.detail["n1"]["percent"] == pytest.approx(12.5, abs=0.5)
    healed = site.heal(LOSS)
    assert healed.status == "confirmed"
    assert healed.detail["n1"]["dropped"]["eth0"] == injected.detail["n1"]["dropped"] > 0


def test_a_queue_without_delay_or_loss_is_a_mismatch(machine: FakeMachine) -> None:
    machine.delay_broken = machine.loss_broken = True
    assert inject(machine, DELAY).status == "mismatch"
    assert inject(machine, LOSS).status == "mismatch"


def test_a_loss_above_the_requested_rate_is_a_mismatch(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = machine._answer_about_packets

    def lose_much(command: str) -> tuple[int, str]:
        if "i <" in command and machine.queue is not None:
            machine.queue["loss"] = 0.9
        return answer(command)

    monkeypatch.setattr(machine, "_answer_about_packets", lose_much)
    assert inject(machine, LOSS).status == "mismatch"


@pytest.mark.parametrize("fault", [DELAY, LOSS])
@pytest.mark.parametrize("trouble", ["tc_broken", "unreached", "stopped"])
def test_a_failed_packet_fault_is_inconclusive(machine: FakeMachine, fault: Fault, trouble: str) -> None:
    setattr(machine, trouble, True)
    evidence = inject(machine, fault)
    assert evidence.status == "inconclusive"
    assert evidence.detail["n1"]["error"]


def test_the_loopback_device_is_not_changed(machine: FakeMachine) -> None:
    machine.device = "lo"
    assert inject(machine, DELAY).status == "inconclusive"
    assert machine.queue is None


def test_a_delay_without_a_measuring_host_is_inconclusive(machine: FakeMachine) -> None:
    assert Nemesis(Site({"n1": machine}, scheduler=machine.clock)).inject(DELAY).status == "inconclusive"


def test_a_queue_that_stays_is_a_mismatch(machine: FakeMachine) -> None:
    site = nemesis(machine)
    site.inject(DELAY)
    machine.deletion_broken = True
    assert site.heal(DELAY).status == "mismatch"
    machine.deletion_broken, machine.connect_ms = False, 70.0
    site.inject(DELAY)
    assert site.heal(DELAY).status == "mismatch", "no queue, but packets are as late as with it"


def test_delay_and_loss_are_in_force_together_and_end_one_by_one(machine: FakeMachine) -> None:
    site = nemesis(machine)
    assert [site.inject(DELAY).status, site.inject(LOSS).status] == ["confirmed", "confirmed"]
    assert machine.queue is not None
    assert machine.queue["options"] == "delay 80ms 20ms loss 12.5%"
    assert site.heal(DELAY).detail["n1"] == {"remaining": ["packet-loss"], "connect_ms": 2}
    assert machine.queue["options"] == "loss 12.5%"
    assert site.heal(LOSS).status == "confirmed"
    assert machine.queue is None


def test_a_fault_that_one_of_two_hosts_has_not_ended_is_a_mismatch(machine: FakeMachine) -> None:
    site = nemesis(machine)
    for one, other in ((DELAY, LOSS), (LOSS, DELAY)):
        site.inject(DELAY)
        site.inject(LOSS)
        machine.replacing_broken = True
        assert site.heal(one).status == "mismatch"
        machine.replacing_broken = False
        site.heal(other)
        site.heal_all()


@pytest.fixture
def three(machine: FakeMachine) -> dict[str, FakeMachine]:
    """Machines whose connects take as long as both ends make them."""
    machines = {"n1": machine, **{name: FakeMachine(name, machine.clock) for name in ("n2", "n3")}}
    for one in machines.values():
        one.address, one.peers = (
            f"10.0.0.{one.name[1]}",
            {f"10.0.0.{name[1]}": other for name, other in machines.items()},
        )
    return machines


def of_all(machines: dict[str, FakeMachine]) -> Nemesis:
    return Nemesis(Site(dict(machines), scheduler=machines["n1"].clock))


def late(name: str, delay_ms: float = 80.0) -> Fault:
    return Fault("packet-delay", (name,), parameters={"delay_ms": delay_ms, "jitter_ms": 0.0})


def test_overlapping_delays_are_measured_from_an_undisturbed_host(three: dict[str, FakeMachine]) -> None:
    site = of_all(three)
    short, long = late("n2", 20.0), late("n1", 400.0)
    assert [site.inject(long).status, site.inject(short).status] == ["confirmed", "confirmed"]
    healed = site.heal(short)
    assert (healed.status, healed.detail["n2"]["connect_ms"]) == ("confirmed", 2)
    again = site.inject(short)
    assert (again.status, again.detail["n2"]["to"], again.detail["n2"]["connect_before_ms"]) == ("confirmed", "n3", 2)
    assert site.heal(long).status == "confirmed"
    assert site.heal(short).status == "confirmed"


def test_a_delay_that_is_not_in_force_is_not_proven_by_anothers(three: dict[str, FakeMachine]) -> None:
    site = of_all(three)
    three["n2"].delay_broken = True
    both = Fault("packet-delay", ("n1", "n2"), parameters={"delay_ms": 80.0, "jitter_ms": 0.0})
    assert site.inject(both).status == "mismatch"


def test_without_an_undisturbed_host_a_delay_is_inconclusive(three: dict[str, FakeMachine]) -> None:
    site = of_all(three)
    assert site.inject(late("n1")).status == "confirmed"
    assert site.inject(late("n2")).status == "confirmed"
    crowded = site.inject(late("n3"))
    assert (crowded.status, crowded.detail["n3"]["error"]) == ("inconclusive", "every other host is disturbed as well")
    assert three["n3"].queue is None
    assert site.heal(late("n2")).status == "confirmed"
    assert site.inject(late("n3")).status == "confirmed"


def test_the_end_of_a_delay_without_an_undisturbed_host_is_inconclusive(three: dict[str, FakeMachine]) -> None:
    site = of_all(three)
    site.inject(late("n1"))
    site.inject(late("n2"))  # seen by n3 alone
    assert site.heal(late("n1")).status == "confirmed"
    assert site.inject(late("n3")).status == "confirmed"
    healed = site.heal(late("n2"))
    assert (healed.status, healed.detail["n2"]["error"]) == ("inconclusive", "every other host is disturbed as well")


def test_queues_of_a_killed_run_are_removed(machine: FakeMachine) -> None:
    for remove in (Nemesis.arm, Nemesis.heal_all):
        inject(machine, DELAY)
        assert machine.queue is not None
        assert remove(nemesis(machine)).status == "confirmed"
        assert machine.queue is None
    machine.queue = {"kind": "netem", "handle": "8001:", "dev": "eth0", "options": "the user's own"}
    nemesis(machine).heal_all()
    assert machine.queue is not None, "queues of others are left alone"


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("packet-loss", {"percent": 0.5}),
        ("packet-loss", {"percent": 60}),
        ("packet-delay", {"delay_ms": 10, "jitter_ms": 10}),
        ("packet-delay", {"delay_ms": 0}),
    ],
)
def test_parameters_that_cannot_be_measured_are_refused(
    machine: FakeMachine, kind: str, parameters: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match=r"jitter must be smaller|is not 1 to"):
        inject(machine, Fault(kind, ("n1",), parameters=parameters))
