"""Stalls, freezes, clock jumps: the readings of clocks that confirm them."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from analysis.checkers.faults import contradictions
from nemeses import KINDS, Evidence, Fault, Nemesis, Result, Site
from nemeses.ports import HostError
from tests.nemeses.fakes import FakeHost, FakePower, unreachable
from tests.nemeses.machines import FakeMachine, FakeSuspender, FakeTime, greeting


@pytest.fixture
def clock() -> FakeTime:
    return FakeTime()


@pytest.fixture
def machine(clock: FakeTime) -> Iterator[FakeMachine]:
    made = FakeMachine("n1", clock, offset_s=0.75)
    with greeting(made):
        yield made


STALL, FREEZE = Fault("stall", ("n1",)), Fault("clock-freeze", ("n1",))


def stop(fault: Fault, machine: FakeMachine, suspender: Any, seconds: float = 3.0) -> tuple[Evidence, Evidence]:
    """What is seen of a fault, and of its heal some seconds later."""
    nemesis = Nemesis(Site({"n1": machine}, suspender=suspender, scheduler=machine.clock))
    injected = nemesis.inject(fault)
    machine.clock.sleep(seconds)
    return injected, nemesis.heal(fault)


def test_a_stalled_machine_is_silent_and_its_clocks_continue(machine: FakeMachine) -> None:
    injected, healed = stop(STALL, machine, FakeSuspender(machine))
    assert (injected.status, healed.status) == ("confirmed", "confirmed")
    assert injected.detail["n1"]["state"] == "stalled"
    assert injected.detail["n1"]["by"] == "test"
    assert injected.detail["n1"]["silent_s"] >= 0.2
    moved = healed.detail["n1"]["moved"]
    assert abs(moved["real_s"]) <= moved["tolerance_s"] < 0.1
    assert machine.offset_s == 0.75, "a stall's heal sets no clock"


def test_a_frozen_machine_is_behind_and_then_set_right(machine: FakeMachine) -> None:
    injected, healed = stop(FREEZE, machine, FakeSuspender(machine))
    assert (injected.status, healed.status) == ("confirmed", "confirmed")
    detail = healed.detail["n1"]
    assert detail["moved"]["real_s"] == pytest.approx(-3, abs=detail["moved"]["tolerance_s"])
    assert detail["moved"]["steady_s"] == pytest.approx(-3, abs=detail["moved"]["tolerance_s"])
    assert abs(machine.offset_s) <= detail["set_right"]["tolerance_s"]


def test_a_frozen_machine_with_a_corrected_clock_counts_as_frozen(machine: FakeMachine) -> None:
    nemesis = Nemesis(Site({"n1": machine}, suspender=(suspender := FakeSuspender(machine)), scheduler=machine.clock))
    nemesis.inject(FREEZE)
    machine.clock.now += 3
    suspender.resume(["n1"])
    machine.offset_s = 0.75
    assert nemesis.heal(FREEZE).status == "confirmed"


@pytest.mark.parametrize("fault", [STALL, FREEZE])
def test_a_machine_that_answers_was_not_stopped(machine: FakeMachine, fault: Fault) -> None:
    injected, _ = stop(fault, machine, FakeSuspender(machine, does="running"))
    assert injected.status == "mismatch"
    assert injected.detail["n1"]["answers_after_s"] >= 0


def test_a_machine_reported_as_running_is_not_suspended(machine: FakeMachine) -> None:
    assert stop(STALL, machine, FakeSuspender(machine, says="running"))[0].status == "mismatch"
    assert stop(STALL, machine, FakeSuspender(machine, says="frozen"))[1].status == "mismatch", "it does not go on"


def test_a_stall_with_stopped_clocks_and_a_freeze_with_running_clocks_are_mismatches(machine: FakeMachine) -> None:
    assert stop(STALL, machine, FakeSuspender(machine, does="frozen"))[1].status == "mismatch"
    machine.offset_s = 0.0
    assert stop(FREEZE, machine, FakeSuspender(machine, does="stalled"))[1].status == "mismatch"


def test_a_stop_shorter_than_a_round_trip_is_inconclusive(machine: FakeMachine) -> None:
    assert stop(STALL, machine, FakeSuspender(machine), seconds=0.01)[1].status == "inconclusive"


def test_silence_of_a_host_that_never_answered_is_inconclusive(clock: FakeTime) -> None:
    machine = FakeMachine("n1", clock)
    machine.probe_port = 9  # no service listens; a refusal counts as an answer
    injected, _ = stop(STALL, machine, FakeSuspender(machine))
    assert injected.status == "mismatch"
    machine.address = "not.an.address.invalid"
    assert stop(STALL, machine, FakeSuspender(machine))[0].status == "inconclusive"


def test_a_world_without_a_suspender_is_inconclusive(machine: FakeMachine) -> None:
    for fault in (STALL, FREEZE):
        for evidence in stop(fault, machine, None):
            assert (evidence.status, list(evidence.detail)) == ("inconclusive", ["error"])


class Muffled(FakeMachine):
    """Its first word comes, and then its clocks cannot be read for a while."""

    lost = True

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        if self.lost and "/proc/uptime" in command:
            raise HostError(f"{self.name}: the connection was lost")
        return super().run(command, timeout_s=timeout_s)


def test_a_clock_left_wrong_by_a_freeze_is_corrected_by_the_next_nemesis(clock: FakeTime) -> None:
    with greeting(machine := Muffled("n1", clock)):
        machine.lost = False
        site = Site({"n1": machine}, suspender=FakeSuspender(machine), scheduler=clock)
        lost = Nemesis(site)
        assert lost.inject(FREEZE).status == "confirmed"
        clock.sleep(3)
        machine.lost = True
        assert lost.heal(FREEZE).status == "inconclusive"
        machine.lost = False
        assert machine.offset_s == pytest.approx(-3, abs=0.5)
        assert Nemesis(site).clear_leftovers().status == "confirmed"
    assert abs(machine.offset_s) < 0.1
    assert machine.files == set()


@pytest.mark.parametrize(("fault", "does"), [(STALL, "frozen"), (FREEZE, "stalled")])
def test_clocks_that_could_not_be_read_before_can_never_be_compared(clock: FakeTime, fault: Fault, does: Any) -> None:
    """They have the effect of the other kind, which only the clocks could show."""
    with greeting(machine := Muffled("n1", clock)):
        nemesis = Nemesis(Site({"n1": machine}, suspender=FakeSuspender(machine, does=does), scheduler=clock))
        injected = nemesis.inject(fault)
        machine.lost = False
        clock.sleep(3)
        healed = nemesis.heal(fault)
    assert (injected.status, injected.detail["n1"]["error"]) == ("inconclusive", "n1: the connection was lost")
    assert injected.detail["n1"]["silent_s"] >= 0.2
    must = [each.to_json() for each in KINDS[fault.kind].healed]
    assert contradictions(must, healed.detail, ["n1"]) == ["n1: moved is missing"]


def test_a_failed_suspender_is_inconclusive(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    suspender = FakeSuspender(machine)

    def fail(_: Any) -> Any:
        raise HostError("the hypervisor does not answer")

    for name in ("stall", "resume"):
        monkeypatch.setattr(suspender, name, fail)
    for evidence in stop(STALL, machine, suspender):
        assert evidence == Evidence("inconclusive", {"error": "the hypervisor does not answer"})


def test_a_stop_may_be_healed_twice(machine: FakeMachine) -> None:
    nemesis = Nemesis(Site({"n1": machine}, suspender=FakeSuspender(machine), scheduler=machine.clock))
    for fault in (STALL, FREEZE):
        nemesis.inject(fault)
        machine.clock.now += 2
        assert [nemesis.heal(fault).status, nemesis.heal(fault).status] == ["confirmed"] * 2


def jump(machine: FakeMachine, by_s: float) -> tuple[Nemesis, Fault, Evidence]:
    nemesis, fault = (
        Nemesis(Site({"n1": machine}, scheduler=machine.clock)),
        Fault("clock-jump", ("n1",), parameters={"jump_s": by_s}),
    )
    return nemesis, fault, nemesis.inject(fault)


@pytest.mark.parametrize("by_s", [2.0, -2.0, 3600.0, -3600.0])
def test_a_clock_jumps_and_is_set_right(machine: FakeMachine, by_s: float) -> None:
    nemesis, fault, injected = jump(machine, by_s)
    assert injected.status == "confirmed"
    assert machine.offset_s == pytest.approx(0.75 + by_s)
    assert "clock-moved" in machine.files
    healed = nemesis.heal(fault)
    assert healed.status == "confirmed"
    assert abs(machine.offset_s) <= healed.detail["n1"]["tolerance_s"] < 0.1, "to this machine's time"
    assert machine.files == set()
    assert nemesis.heal(fault).status == "confirmed"


def test_a_clock_that_may_not_be_set_is_a_mismatch(machine: FakeMachine) -> None:
    machine.date_broken = True
    nemesis, fault, injected = jump(machine, 60)
    assert injected.status == "mismatch"
    assert "not permitted" in injected.detail["n1"]["date"]
    assert nemesis.heal(fault).status == "mismatch", "it was off by 0.75 s, and still is"


def test_time_since_boot_must_not_jump(machine: FakeMachine) -> None:
    machine.steady_broken = True
    assert jump(machine, 60)[2].status == "mismatch"


def test_a_clock_reset_by_another_program_is_a_mismatch(machine: FakeMachine) -> None:
    nemesis, fault, injected = jump(machine, 60)
    assert injected.status == "confirmed"
    machine.offset_s = 0.0
    healed = nemesis.heal(fault)
    assert healed.status == "mismatch"
    assert "another program" in healed.detail["n1"]["error"]


class ThisMachine(FakeHost):
    """Runs commands here, as the hosts of worlds do that share this machine's kernel."""

    def run(self, command: str, *, timeout_s: float = 10.0) -> Result:
        assert "date -s" not in command, "this machine's clock would have been set"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=timeout_s, check=False)
        return Result(done.returncode, done.stdout, done.stderr)


def test_this_machines_own_clock_is_never_set() -> None:
    nemesis, fault = Nemesis(Site({"n1": ThisMachine("n1")})), Fault("clock-jump", ("n1",), parameters={"jump_s": 60})
    injected = nemesis.inject(fault)
    assert injected.status == "inconclusive"
    assert "never set" in injected.detail["n1"]["error"]
    assert nemesis.heal(fault).status == "confirmed"


@pytest.mark.parametrize("answer", [unreachable, lambda _: "up=1.0\nreal=soon\nswitches=1\n", lambda _: "up=1.0\n"])
def test_unreadable_clocks_are_inconclusive(answer: Any, clock: FakeTime) -> None:
    site = Site({"n1": FakeHost("n1", answer)}, scheduler=clock)
    nemesis, fault = Nemesis(site), Fault("clock-jump", ("n1",), 0, {"jump_s": 9})
    assert nemesis.inject(fault).status == "inconclusive"
    assert nemesis.heal(fault).status == "inconclusive"


def test_heal_all_wakes_machines_first_and_sets_every_moved_clock(clock: FakeTime) -> None:
    machines = [FakeMachine(name, clock) for name in ("n1", "n2", "n3")]
    site = Site(
        {each.name: each for each in machines}, FakePower(), suspender=FakeSuspender(*machines), scheduler=clock
    )
    lost = Nemesis(site)  # of a killed run: no other process has its state
    lost.inject(Fault("clock-jump", ("n1",), parameters={"jump_s": -500.0}))
    for fault, name in (("stall", "n2"), ("clock-freeze", "n3")):
        machines[int(name[1]) - 1].address = "not.an.address.invalid"
        lost.inject(Fault(fault, (name,)))
    clock.now += 10
    healed = Nemesis(site).heal_all()
    assert healed.status == "confirmed", healed
    assert list(healed.detail)[:2] == ["suspended", "power"]
    assert [abs(each.offset_s) < 0.1 for each in machines] == [True] * 3
    assert not any(each.stopped or each.files for each in machines)
