"""Replicas that a script adds: where they start, and with which epochs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from analysis.checker import Outcome
from analysis.checkers.bootstrap import CHECKER, figures

JOINED = {
    "event": "joined",
    "node": "n3",
    "partition": 0,
    "leader": "n1",
    "seconds": 2.5,
    "before": {"log-start": 0, "local-start": 800, "last-tiered": 999, "pending-upload": 1000, "committed-end": 1100},
    "after": {"log-start": 0, "local-start": 900, "last-tiered": 1049, "pending-upload": 1050, "committed-end": 1200},
    "segments": [1000, 1100],
    "moved": 4096,
    "epochs": [[0, 0], [2, 700]],
    "leader_epochs": [[0, 0], [2, 700]],
    "starts_at": "pending-upload",
}
REASSIGNED = {"event": "reassigned", "partition": 0, "replicas": [1, 2, 3]}


TIERED = {"remote.storage.enable": "true"}


def judged(
    *journal: dict[str, Any], topic: dict[str, str] | None = None, feature: str = "false", events: Any = None
) -> Outcome:
    settings = {"n3": {"follower.fetch.last.tiered.offset.enable": feature}}
    described = SimpleNamespace(
        topic="log", topic_settings=topic or {}, node_settings=settings, metadata_traced=events is not None
    )
    run = SimpleNamespace(history=SimpleNamespace(journal=journal), description=described, events=events or {})
    return CHECKER.check(run)  # type: ignore[arg-type]


def names(outcome: Outcome) -> list[str]:
    return [anomaly.name for anomaly in outcome.anomalies]


def test_a_replica_that_starts_at_the_first_offset_that_is_not_tiered_passes() -> None:
    outcome = judged(REASSIGNED, JOINED)
    assert outcome.verdict == "pass"
    assert "n3 was in sync 2.5 s after" in outcome.detail
    assert "starts at 1000 and has 4,096 bytes" in outcome.detail


@pytest.mark.parametrize(("start", "verdict"), [(1000, "pass"), (800, "unknown"), (None, "unknown")])
def test_a_broker_reports_where_it_starts_a_new_log(start: int | None, verdict: str) -> None:
    report = {"event": "bootstrapped", "topic": "log", "partition": 0, "local_start_offset": start}
    events = {"n3": [] if start is None else [report]}
    assert judged(REASSIGNED, JOINED, events=events).verdict == verdict


def test_uploads_meanwhile_move_the_offset_at_which_it_may_start() -> None:
    assert judged(REASSIGNED, JOINED | {"segments": [1050]}).verdict == "pass"


@pytest.mark.parametrize("start", [0, 800, 999, 1051])
def test_a_replica_that_starts_elsewhere_is_an_anomaly(start: int) -> None:
    outcome = judged(REASSIGNED, JOINED | {"segments": [start]})
    assert outcome.verdict == "fail"
    assert names(outcome) == ["wrong-bootstrap-offset"]
    assert f"starts at {start}; the leader's pending-upload was 1000 to 1050" in outcome.anomalies[0].sentence


def test_without_the_feature_it_starts_where_the_leaders_own_files_start() -> None:
    off = JOINED | {"starts_at": "local-start", "segments": [800]}
    assert judged(REASSIGNED, off).verdict == "pass"
    assert names(judged(REASSIGNED, off | {"segments": [1000]})) == ["wrong-bootstrap-offset"]


@pytest.mark.parametrize("epochs", [[[2, 1000]], [[0, 0], [2, 701]], [[0, 0], [1, 500], [2, 700]], []])
def test_a_replica_has_the_leaders_epochs_also_before_its_start(epochs: list[list[int]]) -> None:
    outcome = judged(REASSIGNED, JOINED | {"epochs": epochs})
    assert names(outcome) == ["bootstrap-epochs-differ"]


def test_a_leader_that_was_elected_meanwhile_may_have_a_later_epoch() -> None:
    later = JOINED | {"leader_epochs": [*JOINED["leader_epochs"], [3, 1190]]}  # type: ignore[misc]
    assert judged(REASSIGNED, later).verdict == "pass"


def test_an_offset_that_the_leader_did_not_state_is_undecided() -> None:
    blind = JOINED | {"before": {**JOINED["before"], "pending-upload": -1}}  # type: ignore[dict-item]
    outcome = judged(REASSIGNED, blind)
    assert (outcome.verdict, names(outcome)) == ("unknown", [])


def test_a_replica_without_evidence_of_being_in_sync_is_undecided() -> None:
    assert judged(REASSIGNED).verdict == "unknown"
    assert judged(REASSIGNED, JOINED | {"segments": []}).verdict == "unknown"
    assert judged().verdict == "n/a"


def test_the_figures_of_a_run() -> None:
    found = figures([REASSIGNED, JOINED])
    assert (found["join_start"], found["join_bytes"], found["join_s"]) == (1000, 4096, 2.5)
    assert (found["join_local_start"], found["join_pending_upload"]) == (800, 1000)
    assert found["join_epochs_below"] == 2
    assert figures([JOINED | {"segments": [600]}])["join_epochs_below"] == 1
    assert figures([REASSIGNED]) == {}


@pytest.mark.parametrize(
    ("topic", "feature", "start"), [({}, "true", 0), (TIERED, "false", 800), (TIERED, "true", 1000)]
)
def test_without_a_requirement_the_settings_decide_where_it_starts(
    topic: dict[str, str], feature: str, start: int
) -> None:
    """K1023-1: the feature is per node, and only for topics in remote storage."""
    free = JOINED | {"starts_at": None}
    for tried in (0, 800, 1000):
        outcome = judged(REASSIGNED, free | {"segments": [tried]}, topic=topic, feature=feature)
        assert (outcome.verdict == "pass") == (tried == start), tried
