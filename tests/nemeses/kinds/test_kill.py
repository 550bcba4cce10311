"""Kills: the evidence from the host, and the restart of the service."""

import pytest

from nemeses import Fault, Nemesis, Site
from tests.nemeses.fakes import ENDINGS, FakeHost, heal, inject, lines

GONE = {"start": "7", "signalled": "yes", "state": "gone", "port": "closed"}


@pytest.mark.parametrize(("change", "status"), ENDINGS)
def test_a_kill_is_confirmed_by_an_ended_process_and_a_closed_port(change: dict[str, str], status: str) -> None:
    evidence = inject("kill", FakeHost("n1", lambda _: lines(**{**GONE, **change})))
    assert evidence.status == status
    assert evidence.detail["n1"]["pid"] == 42


def test_a_killed_broker_is_started_again_once() -> None:
    host = FakeHost("n1", lambda _: lines(port="open"))
    host.pid = None
    nemesis = Nemesis(Site({"n1": host}))
    fault = Fault("kill", ("n1",))
    assert [nemesis.heal(fault).status, nemesis.heal(fault).status] == ["confirmed", "confirmed"]
    assert host.starts == 1


@pytest.mark.parametrize("problem", ["port stays closed", "ends at once"])
def test_a_broker_that_does_not_restart_is_a_mismatch(problem: str) -> None:
    host = FakeHost("n1", lambda _: lines(port="closed"))
    host.pid, host.comes_up = None, problem != "ends at once"
    assert heal("kill", host).status == "mismatch"
