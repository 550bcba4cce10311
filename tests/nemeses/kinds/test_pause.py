"""Pauses: the conclusions from the states of a process's threads."""

import pytest

from nemeses import Fault, Nemesis, Site
from tests.nemeses.fakes import FakeHost, heal, inject, lines

STOPPED = {"start": "7", "before": "S", "signalled": "yes", "after": "T"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "confirmed"),
        ({"after": "S"}, "mismatch"),
        ({"after": "ST"}, "mismatch"),
        ({"signalled": ""}, "mismatch"),
        ({"start": "", "after": ""}, "inconclusive"),
    ],
)
def test_a_pause_is_every_thread_stopped(change: dict[str, str], status: str) -> None:
    assert inject("pause", FakeHost("n1", lambda _: lines(**{**STOPPED, **change}))).status == status


@pytest.mark.parametrize(
    ("after", "status"), [("S", "confirmed"), ("RS", "confirmed"), ("T", "mismatch"), ("", "mismatch")]
)
def test_a_pause_ends_when_no_thread_is_stopped(after: str, status: str) -> None:
    assert heal("pause", FakeHost("n1", lambda _: lines(**{**STOPPED, "after": after}))).status == status


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"before": "T"}, "confirmed"),
        ({"before": "S"}, "mismatch"),
        ({"before": "ST"}, "mismatch"),
        ({"before": "S", "start": "8"}, "confirmed"),  # another process: what stood has ended since
    ],
)
def test_a_suspended_process_stays_suspended_until_it_is_resumed(change: dict[str, str], status: str) -> None:
    answer = {**STOPPED, "port": "open"}
    nemesis = Nemesis(Site({"n1": FakeHost("n1", lambda _: lines(**answer))}))
    fault = Fault("pause", ("n1",))
    assert nemesis.inject(fault).status == "confirmed"
    answer.update({"after": "S", **change})
    assert nemesis.heal(fault).status == status
    assert nemesis.heal(fault).status == "confirmed", "a second heal has no evidence to show"
    assert nemesis.heal_all().detail["awake"]["n1"]["after"] == "S"
