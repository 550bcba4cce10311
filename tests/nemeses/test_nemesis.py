"""The rules for all faults: a silent host is inconclusive, and a heal of all faults leaves none."""

from typing import Any

import pytest

from nemeses import Evidence, Fault, HostError, Nemesis, Result, Site
from nemeses.fault import combine, worst
from nemeses.mechanisms.shell import process_script
from tests.nemeses.fakes import FakeHost, FakeNetwork, FakePower, inject, lines, unreachable


@pytest.mark.parametrize("kind", ["kill", "pause"])
def test_a_host_without_its_service_is_inconclusive(kind: str) -> None:
    host = FakeHost("n1")
    host.pid = None
    assert inject(kind, host).status == "inconclusive"
    assert host.commands == []


@pytest.mark.parametrize("kind", ["kill", "pause"])
@pytest.mark.parametrize("answer", [unreachable, lambda _: "", lambda _: "no such file\n"])
def test_a_host_that_does_not_answer_is_inconclusive(kind: str, answer: Any) -> None:
    evidence = inject(kind, FakeHost("n1", answer))
    assert evidence.status == "inconclusive"
    assert evidence.detail["n1"]["error"]


DOWN: dict[str, dict[str, Any]] = {
    "its service had ended before": {"pid": None},
    "its service was suspended before": {"threads": "T"},
    "its service could not be observed": {"silent": True},
}


class DownHost(FakeHost):
    """A host whose service may be down before anything is done to it; everything else works."""

    def look(self, command: str) -> Result | None:
        if getattr(self, "silent", False) and command == process_script(42):
            raise HostError("n1 does not say")
        return super().look(command)


def sound(command: str) -> str:
    """What a host answers on which every fault takes effect."""
    if command == "cat /proc/sys/kernel/random/boot_id":
        return "boot-0\n"
    return lines(start="7", before="S", signalled="yes", after="T", state="gone", port="closed", n1="open", sent="1")


@pytest.mark.parametrize("kind", ["kill", "stop", "pause", "power-loss", "power-loss-all"])
@pytest.mark.parametrize("wrong", DOWN)
def test_a_fault_on_a_stopped_service_is_not_confirmed(kind: str, wrong: str) -> None:
    host = DownHost("n1", sound)
    assert inject(kind, host, power=FakePower()).status == "confirmed"
    host = DownHost("n1", sound)
    vars(host).update(DOWN[wrong])
    evidence = inject(kind, host, power=FakePower())
    assert evidence.status == "inconclusive"
    assert evidence.detail["already"] == [f"n1: {wrong}"]


def test_an_exit_caused_by_a_fault_is_expected() -> None:
    host = DownHost("n1", sound)
    nemesis = Nemesis(Site({"n1": host}, FakePower()))
    kill, cut = Fault("kill", ("n1",)), Fault("power-loss", ("n1",))
    assert nemesis.inject(kill).status == "confirmed"
    host.pid = None
    assert nemesis.inject(cut).status == "confirmed"
    assert nemesis.heal(cut).detail["n1"]["service"] == {"withheld_by": "kill"}
    assert host.starts == 0
    nemesis.heal(kill)
    assert host.starts == 1
    host.pid = None
    assert nemesis.inject(cut).status == "inconclusive", "the heal had started it"


def test_heal_all_leaves_no_fault() -> None:
    power, network = FakePower(), FakeNetwork(("n1",))

    def answer(command: str) -> str:
        return (
            lines(start="7", before="T", signalled="yes", after="S") if "kill -CONT" in command else lines(port="open")
        )

    host = FakeHost("n1", answer)
    host.pid = None
    power.off.add("n1")
    evidence = Nemesis(Site({"n1": host}, power, network)).heal_all()
    assert evidence.status == "confirmed", evidence
    assert (power.off, host.starts) == (set(), 1)


def test_heal_all_names_faults_that_it_could_not_heal() -> None:
    host = FakeHost("n1", unreachable)
    evidence = Nemesis(Site({"n1": host})).heal_all()
    assert evidence.status == "inconclusive"
    assert "cannot be reached" in evidence.detail["services"]["n1"]["error"]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="known: clock-drift"):
        inject("earthquake", FakeHost("n1"))


def test_the_worst_of_several_counts() -> None:
    assert worst(["confirmed", "inconclusive", "mismatch", "confirmed"]) == "mismatch"
    assert worst(["confirmed", "inconclusive"]) == "inconclusive"
    assert worst([]) == "inconclusive"
    parts = {"n1": Evidence("confirmed", {"pid": 1}), "n2": Evidence("inconclusive", {})}
    assert combine(parts) == Evidence("inconclusive", {"n1": {"pid": 1}, "n2": {}})
