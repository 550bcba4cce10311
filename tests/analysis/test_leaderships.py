"""The leaders of a partition in epoch files, in the metadata log and in reports."""

from typing import Any

import pytest

from analysis.checkers.leaderships import Leaderships, fallen, never_led, not_elected, unreported

LED = Leaderships("log", 0, {"n1": [(0, 0), (2, 9)], "n2": [(0, 0), (2, 9)]}, {0: "n1", 1: "", 2: "n2"})


def role(epoch: int, *, leads: bool = True, seq: int = 0) -> dict[str, Any]:
    return {"event": "partition_role", "role": "leader" if leads else "follower", "leader_epoch": epoch, "seq": seq}


def progress(mark: int, epoch: int = 0, seq: int = 1, end: int = 9) -> dict[str, Any]:
    return {
        "event": "replica_progress",
        "high_watermark": mark,
        "log_end_offset": end,
        "leader_epoch": epoch,
        "seq": seq,
    }


@pytest.mark.parametrize(("epoch", "wrong"), [(2, False), (1, True), (3, True)])
def test_an_epoch_without_an_elected_leader_is_an_anomaly(epoch: int, wrong: bool) -> None:
    found = list(never_led(Leaderships("log", 0, {"n1": [(0, 0), (epoch, 9)]}, LED.leaders)))
    assert [each.name for each in found] == (["epoch-never-led"] if wrong else [])


def test_an_epoch_before_the_first_known_election_is_not_judged() -> None:
    assert not list(never_led(Leaderships("log", 0, {"n1": [(0, 0), (5, 9)]}, {5: "n1"})))


@pytest.mark.parametrize(("node", "epoch", "wrong"), [("n1", 0, False), ("n2", 0, True), ("n1", 1, True)])
def test_a_leader_that_was_not_elected_is_an_anomaly(node: str, epoch: int, wrong: bool) -> None:
    found = list(not_elected(LED, {node: [role(epoch)]}))
    assert [each.name for each in found] == (["leader-not-elected"] if wrong else [])


def test_a_leader_that_never_reported_is_named() -> None:
    reports = {"n1": [role(0), progress(1)], "n2": [role(2, leads=False), progress(1, epoch=2, end=10)]}
    assert list(unreported(LED, ["n1", "n2"], reports)) == [
        "n2 led epoch 2 of log-0 by the metadata log, and never reported that it did"
    ]
    assert not list(unreported(LED, ["n1", "n2"], reports, ["n2"])), "it may have ended before the report"
    assert "n2 never reported replica_progress of log-0" in list(unreported(LED, ["n2"], {"n2": [role(2)]}))


@pytest.mark.parametrize(
    ("entries", "end", "is_named"),
    [
        pytest.param([(0, 0), (2, 9)], 9, False, id="the epoch has no record"),
        pytest.param([(0, 0), (2, 9)], 10, True, id="the epoch has a record"),
        pytest.param([(0, 0), (2, 9), (3, 10)], 9, True, id="a later epoch starts after it"),
        pytest.param([(0, 0), (2, 0)], 0, False, id="the log is empty"),
    ],
)
def test_a_process_may_end_before_it_reports_an_epoch_without_records(
    entries: list[tuple[int, int]], end: int, is_named: bool
) -> None:
    # Each node stops at a run's end. The next leader may have its epoch on disk then, and not lead yet.
    partition = Leaderships("log", 0, {"n1": [(0, 0)], "n2": entries}, {**LED.leaders, 3: "n1"})
    reports = {"n1": [role(0), role(3), progress(1)], "n2": [role(0, leads=False), progress(1, epoch=2, end=end)]}
    assert len(list(unreported(partition, ["n1", "n2"], reports))) == is_named


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ([role(0), progress(3), progress(5)], False),
        ([role(0), progress(5), progress(3)], True),
        ([role(0, leads=False), progress(5), progress(3)], False),
        ([role(0), progress(5), role(1), progress(3, epoch=1)], False),
        ([role(1), role(0)], True),
        ([role(1), {"event": "partition_removed", "seq": 3}, role(0)], False),
    ],
)
def test_a_report_of_a_leader_that_falls_within_its_epoch_is_an_anomaly(
    events: list[dict[str, Any]], wrong: bool
) -> None:
    found = list(fallen(LED, "n1", events))
    assert [each.name for each in found] == (["reported-value-fell"] if wrong else [])
