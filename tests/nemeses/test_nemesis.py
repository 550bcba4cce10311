"""What holds for all faults: silence proves nothing, and healing everything leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from nemeses import Evidence, Nemesis, Site
from nemeses.fault import combine, worst
from tests.nemeses.fakes import FakeHost, FakeNetwork, FakePower, inject, lines, unreachable


@pytest.mark.parametrize("kind", ["kill", "pause"])
def test_who_was_not_there_proves_nothing(kind: str) -> None:
    host = FakeHost("n1")
    host.pid = None
    assert inject(kind, host).status == "inconclusive"
    assert host.commands == []


@pytest.mark.parametrize("kind", ["kill", "pause"])
@pytest.mark.parametrize("answer", [unreachable, lambda _: "", lambda _: "no such file\n"])
def test_who_does_not_answer_proves_nothing(kind: str, answer: Any) -> None:
    evidence = inject(kind, FakeHost("n1", answer))
    assert evidence.status == "inconclusive"
    assert evidence.detail["n1"]["error"]


def test_heal_all_leaves_nothing_behind() -> None:
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


def test_heal_all_says_what_it_could_not_heal() -> None:
    host = FakeHost("n1", unreachable)
    evidence = Nemesis(Site({"n1": host})).heal_all()
    assert evidence.status == "inconclusive"
    assert "cannot be reached" in evidence.detail["services"]["n1"]["error"]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="known: clock-freeze"):
        inject("earthquake", FakeHost("n1"))


def test_the_worst_of_several_counts() -> None:
    assert worst(["confirmed", "inconclusive", "mismatch", "confirmed"]) == "mismatch"
    assert worst(["confirmed", "inconclusive"]) == "inconclusive"
    assert worst([]) == "inconclusive"
    parts = {"n1": Evidence("confirmed", {"pid": 1}), "n2": Evidence("inconclusive", {})}
    assert combine(parts) == Evidence("inconclusive", {"n1": {"pid": 1}, "n2": {}})
