"""Replicas that a script adds: where they start, and with which epochs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.checker import Outcome
from analysis.checkers.bootstrap import CHECKER, figures
from tests.analysis.segment_files import log_bytes, write_checkpoint, write_replica

JOINED: dict[str, Any] = {
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
WIPED = {"event": "fault_invoked", "id": "f1", "t": 1, "targets": ["n3"], "may_destroy": ["whole-disk"]}
TIERED = {"remote.storage.enable": "true"}
EPOCHS = ((0, 0), (2, 700))

Judge = Callable[..., Outcome]


def write(
    run: Path, node: str, *, first: int = 1000, epochs: Sequence[tuple[int, int]] = EPOCHS, log_start: int = 0
) -> Path:
    """The files of a node's replica at the end of a run; `first`: the offset of its first segment."""
    data = run / "nodes" / node / "data"
    directory = write_replica(data, "log", 0, {first: log_bytes([2] * 5, range(5), start=first)}, epochs=epochs)
    write_checkpoint(data / "log-start-offset-checkpoint", {("log", 0): log_start})
    return directory


@pytest.fixture
def judged(tmp_path: Path) -> Judge:
    """The checker's outcome for a journal. What a test does not write are the files of a leader, n1, and of n3."""

    def judge(
        *journal: dict[str, Any], topic: dict[str, str] | None = None, feature: str = "false", events: Any = None
    ) -> Outcome:
        for node in {"n1", "n3"} - {place.name for place in tmp_path.glob("nodes/*")}:
            write(tmp_path, node, first=1050)
        described = SimpleNamespace(
            workload=SimpleNamespace(topic="log", topic_settings=topic or {}),
            node_settings={"n3": {"follower.fetch.last.tiered.offset.enable": feature}},
            metadata=SimpleNamespace(traced=events is not None),
            has_replica_files=True,
        )
        history = SimpleNamespace(journal=journal)
        run = SimpleNamespace(directory=tmp_path, history=history, description=described, events=events or {})
        return CHECKER.check(run)  # type: ignore[arg-type]

    return judge


def names(outcome: Outcome) -> list[str]:
    return [anomaly.name for anomaly in outcome.anomalies]


def test_a_replica_that_starts_at_the_first_offset_that_is_not_tiered_passes(judged: Judge) -> None:
    outcome = judged(REASSIGNED, JOINED)
    assert outcome.verdict == "pass"
    assert "n3 was in sync 2.5 s after" in outcome.detail
    assert "starts at 1000 and has 4,096 bytes" in outcome.detail


@pytest.mark.parametrize(("start", "verdict"), [(1000, "pass"), (800, "unknown"), (None, "unknown")])
def test_a_broker_reports_where_it_starts_a_new_log(judged: Judge, start: int | None, verdict: str) -> None:
    report = {"event": "bootstrapped", "topic": "log", "partition": 0, "local_start_offset": start}
    events = {"n3": [] if start is None else [report]}
    assert judged(REASSIGNED, JOINED, events=events).verdict == verdict


@pytest.mark.parametrize(
    ("reported", "verdict"),
    [
        pytest.param([("bootstrapped", 850), ("replica_starts", 1000)], "pass", id="retention moved it"),
        pytest.param([("bootstrapped", 700), ("replica_starts", 1000)], "fail", id="it was too low at first"),
        pytest.param([("replica_starts", 1000), ("bootstrapped", 850)], "unknown", id="it was there before"),
        pytest.param([("bootstrapped", 850), ("replica_starts", 900)], "unknown", id="it was never there"),
    ],
)
def test_local_retention_may_move_the_start_of_a_new_log(
    judged: Judge, reported: list[tuple[str, int]], verdict: str
) -> None:
    place = {"topic": "log", "partition": 0}
    events = [{"event": event, **place, "local_start_offset": start} for event, start in reported]
    assert judged(REASSIGNED, JOINED | {"starts_at": "local-start"}, events={"n3": events}).verdict == verdict


def test_uploads_meanwhile_move_the_offset_at_which_it_may_start(judged: Judge) -> None:
    assert judged(REASSIGNED, JOINED | {"segments": [1050]}).verdict == "pass"


@pytest.mark.parametrize("start", [0, 800, 999, 1051])
def test_a_replica_that_starts_elsewhere_is_an_anomaly(judged: Judge, start: int) -> None:
    outcome = judged(REASSIGNED, JOINED | {"segments": [start]})
    assert outcome.verdict == "fail"
    assert names(outcome) == ["wrong-bootstrap-offset"]
    assert f"starts at {start}; the leader's pending-upload was 1000 to 1050" in outcome.anomalies[0].sentence


def test_without_the_feature_it_starts_where_the_leaders_own_files_start(judged: Judge) -> None:
    off = JOINED | {"starts_at": "local-start", "segments": [800]}
    assert judged(REASSIGNED, off).verdict == "pass"
    assert names(judged(REASSIGNED, off | {"segments": [1000]})) == ["wrong-bootstrap-offset"]


@pytest.mark.parametrize(("first", "verdict"), [(999, "fail"), (1000, "pass"), (1300, "pass")])
def test_collected_files_do_not_start_below(tmp_path: Path, judged: Judge, first: int, verdict: str) -> None:
    """Local retention removes the oldest files, and nothing adds older ones."""
    write(tmp_path, "n3", first=first)
    outcome = judged(REASSIGNED, JOINED)
    assert outcome.verdict == verdict
    assert ("the log of n3 starts at 999 in the collected files" in str(outcome.anomalies)) == (verdict == "fail")


def test_a_replica_may_have_started_again_below(tmp_path: Path, judged: Judge) -> None:
    write(tmp_path, "n3", first=900)
    report = {"event": "bootstrapped", "topic": "log", "partition": 0, "local_start_offset": 1000}
    cut = {"event": "truncated", "topic": "log", "partition": 0, "to_offset": 900}
    assert judged(REASSIGNED, JOINED, WIPED).verdict == "pass"
    assert judged(REASSIGNED, JOINED, events={"n3": [report, cut]}).verdict == "pass"
    assert judged(REASSIGNED, JOINED, events={"n3": [report, cut | {"partition": 1}]}).verdict == "fail"


@pytest.mark.parametrize("node", ["n1", "n3"])
@pytest.mark.parametrize("epochs", [((2, 1000),), ((0, 0), (2, 701)), ((0, 0), (1, 500), (2, 700)), ()])
def test_a_replica_has_the_leaders_epochs_also_before_its_start(
    tmp_path: Path, judged: Judge, node: str, epochs: Sequence[tuple[int, int]]
) -> None:
    write(tmp_path, node, epochs=epochs)
    # A leader that knows epochs from 1000 on has an older log start than it wrote: what is below is not compared.
    is_cut = node == "n1" and epochs == ((2, 1000),)
    assert names(judged(REASSIGNED, JOINED)) == ([] if is_cut else ["bootstrap-epochs-differ"])


def test_the_epochs_in_the_journal_do_not_excuse_those_of_the_files(tmp_path: Path, judged: Judge) -> None:
    write(tmp_path, "n3", epochs=((2, 1000),))
    (anomaly,) = judged(REASSIGNED, JOINED).anomalies
    assert anomaly.sentence == (
        "the epoch file of n3 has epoch 2 from 1000 from offset 0 to 1000 in the end; that of the leader n1 has epoch "
        "0 from 0, epoch 2 from 700"
    )


@pytest.mark.parametrize("epochs", [[[2, 1000]], [[0, 0], [2, 701]], [[0, 0], [1, 500], [2, 700]], []])
def test_the_epochs_when_a_replica_was_in_sync_are_compared(judged: Judge, epochs: list[list[int]]) -> None:
    """A replica that leads afterwards makes others truncate their logs to its epochs: the files of the end agree."""
    assert names(judged(REASSIGNED, JOINED | {"epochs": epochs})) == ["bootstrap-epochs-differ"]


def test_a_leader_that_was_elected_meanwhile_may_have_a_later_epoch(judged: Judge) -> None:
    assert judged(REASSIGNED, JOINED | {"leader_epochs": [*JOINED["leader_epochs"], [3, 1190]]}).verdict == "pass"


def test_epochs_after_the_start_may_differ(tmp_path: Path, judged: Judge) -> None:
    """Other checkers compare them with the records."""
    write(tmp_path, "n1", epochs=(*EPOCHS, (3, 1190)))
    assert judged(REASSIGNED, JOINED).verdict == "pass"


@pytest.mark.parametrize("node", ["n1", "n3"])
def test_the_oldest_epoch_moves_with_the_start_of_the_log(tmp_path: Path, judged: Judge, node: str) -> None:
    write(tmp_path, node, epochs=((0, 650), (2, 700)), log_start=650)
    assert judged(REASSIGNED, JOINED).verdict == "pass"


@pytest.mark.parametrize("node", ["n1", "n3"])
@pytest.mark.parametrize("lack", ["leader-epoch-checkpoint", "00000000000000001050.log", "damage", "all"])
def test_files_that_are_missing_or_damaged_leave_a_bootstrap_undecided(
    tmp_path: Path, judged: Judge, node: str, lack: str
) -> None:
    directory = write(tmp_path, node, first=1050)
    if lack == "damage":
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n")
    for path in directory.iterdir():
        if lack in ("all", path.name):
            path.unlink()
    outcome = judged(REASSIGNED, JOINED)
    assert (outcome.verdict, names(outcome)) == ("unknown", [])
    assert any(f"log-0 on {node}" in doubt for doubt in outcome.doubts)


def test_an_offset_that_the_leader_did_not_state_is_undecided(judged: Judge) -> None:
    outcome = judged(REASSIGNED, JOINED | {"before": {**JOINED["before"], "pending-upload": -1}})
    assert (outcome.verdict, names(outcome)) == ("unknown", [])


def test_a_replica_without_evidence_of_being_in_sync_is_undecided(judged: Judge) -> None:
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
    judged: Judge, topic: dict[str, str], feature: str, start: int
) -> None:
    """K1023-1: the feature is per node, and only for topics in remote storage."""
    free = JOINED | {"starts_at": None}
    for tried in (0, 800, 1000):
        outcome = judged(REASSIGNED, free | {"segments": [tried]}, topic=topic, feature=feature)
        assert (outcome.verdict == "pass") == (tried == start), tried
