"""The logs of the metadata quorum: committed records, and the agreement of the nodes' logs."""

import shutil

import pytest

from history.checksummed_lines import read_lines, text_of
from tests.analysis_pipeline.judged_quorum import LOG, found, judged, reasons_of, replace
from tests.analysis_pipeline.stored_quorum import (
    Event,
    StoredQuorum,
    leader_change,
    mark,
    metadata,
)

# --- what is committed


def test_m1_a_high_watermark_that_falls(quorum: StoredQuorum) -> None:
    quorum.traces["n2"][-1:-1] = [mark(6, 2), mark(10, 2)]
    assert found(quorum) == {
        "metadata-high-watermark-regression": "the metadata high watermark of n2 fell from 10 to 6"
    }


def test_m2_a_later_leader_without_committed_records(quorum: StoredQuorum) -> None:
    replace(quorum, "n1", mark(5, 1), mark(6, 1))
    assert found(quorum)["lost-committed-metadata"] == (
        "n1 knew in epoch 1 that the metadata below offset 6 was committed, but node 2 opened epoch 2 at offset 5, "
        "without it"
    )


def test_m3_a_majority_without_committed_records(quorum: StoredQuorum) -> None:
    for node in ("n1", "n3"):
        replace(quorum, node, mark(10, 2), mark(8, 2))
        del quorum.logs[node][8:]
    assert found(quorum)["lost-committed-metadata"].endswith(
        "the logs of n1, n3 end before it: no majority of 3 voters has it"
    )


def test_m3_a_minority_may_lag_behind(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", mark(10, 2), mark(8, 2))
    del quorum.logs["n3"][8:]
    for events in quorum.traces.values():
        events[-2] |= {"wall": 1 << 62}  # it was committed when the cluster had been left alone
    assert judged(quorum.write()).verdict == "pass"


def test_m4_a_node_that_applied_other_records(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", mark(5, 1), mark(5, 1) | {"digest": 7})
    assert found(quorum) == {
        "applied-metadata-mismatch": "the metadata below offset 5 that n3 has applied differs from what the log of "
        "n1 has there"
    }


def without_digests(quorum: StoredQuorum, node: str, *, behind: Event | None) -> None:
    """All processes of a node report no digest; each starts with an event."""
    reasons_of = [each | {"digest": None} if "digest" in each else each for each in quorum.traces[node]]
    quorum.traces[node] = [
        event
        for each in reasons_of
        for event in ([each, behind] if each["event"] == "broker_started" and behind is not None else [each])
    ]


def snapshot(offset: int) -> Event:
    return {"event": "quorum_snapshot", "offset": offset, "epoch": 1, "records": 1}


def test_a_node_that_started_from_a_snapshot_has_no_digest(quorum: StoredQuorum) -> None:
    without_digests(quorum, "n3", behind=snapshot(1))
    outcome = judged(quorum.write())
    assert outcome.verdict == "pass", outcome
    assert "by digest what 2 of 3 nodes applied" in outcome.detail


def test_a_snapshot_received_later_also_ends_the_digest(quorum: StoredQuorum) -> None:
    events = quorum.traces["n3"]
    at = events.index(mark(5, 1))
    quorum.traces["n3"] = [*events[:at], snapshot(5), mark(5, 1) | {"digest": None}, *events[at + 1 :]]
    assert judged(quorum.write()).verdict == "pass"


@pytest.mark.parametrize("nodes", [("n3",), ("n1", "n2", "n3")])
def test_a_digest_that_is_missing_without_a_snapshot_leaves_the_run_undecided(
    nodes: tuple[str, ...], quorum: StoredQuorum
) -> None:
    for node in nodes:
        without_digests(quorum, node, behind=None)
    outcome = judged(quorum.write())
    assert outcome.verdict == "unknown"
    reasons_of = [doubt for doubt in outcome.doubts if "without its digest" in doubt]
    assert [doubt.split()[0] for doubt in reasons_of] == list(nodes)


def test_a_snapshot_of_the_nodes_own_keeps_the_digest(quorum: StoredQuorum) -> None:
    events = quorum.traces["n3"]
    at = events.index(mark(10, 2))
    quorum.traces["n3"] = [*events[:at], snapshot(6), mark(10, 2) | {"digest": None}, *events[at + 1 :]]
    assert judged(quorum.write()).verdict == "unknown"


def test_a_node_without_a_digest_is_in_doubt(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", mark(10, 2), {key: value for key, value in mark(10, 2).items() if key != "digest"})
    assert judged(quorum.write()).verdict != "pass"


def test_m4_every_log_has_the_same_forged_record(quorum: StoredQuorum) -> None:
    for log in quorum.logs.values():
        log[3] = metadata(3, 1, b"forged")
    assert list(found(quorum)) == ["applied-metadata-mismatch"]


def test_m4_a_log_without_records_that_its_node_applied(quorum: StoredQuorum) -> None:
    del quorum.logs["n3"][8:]
    assert found(quorum) == {"applied-metadata-mismatch": "n3 has applied the metadata below 10, but its log ends at 8"}


def test_m5_a_node_that_never_applied_committed_records(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", mark(10, 2), None)
    assert found(quorum)["not-converged"].endswith("but in the end n3 has applied it up to 6")


@pytest.mark.parametrize(("step_s", "verdict"), [(-60, "unknown"), (60, "pass"), (-0.4, "pass")])
def test_m5_is_undecided_after_the_clock_was_set_back(quorum: StoredQuorum, step_s: float, verdict: str) -> None:
    """What is committed a second after the cluster was left alone looks as if it had been before."""
    run = quorum.write()
    lines = [line for _, line in read_lines(run / "history/journal.jsonl").contents]
    at = next(index for index, line in enumerate(lines) if line.get("name") == "quiesce")
    replace(quorum, "n3", mark(10, 2), mark(8, 2))
    del quorum.logs["n3"][8:]
    for events in quorum.traces.values():
        events[-2] |= {"wall": round((lines[at]["wall"] + 1 + step_s) * 1e9)}
    shutil.rmtree(run)
    quorum.write()
    after = [line | {"wall": line["wall"] + step_s} for line in lines[at + 1 :]]
    (run / "history/journal.jsonl").write_bytes(text_of([*lines[: at + 1], *after]))
    outcome = judged(run)
    assert (outcome.verdict, outcome.anomalies) == (verdict, ()), reasons_of(outcome)
    assert ("the wall clock was set back by 60.0 s" in reasons_of(outcome)) == (verdict == "unknown")


# --- the logs


def test_d1_different_records_below_the_high_watermarks(quorum: StoredQuorum) -> None:
    quorum.logs["n3"][7] = metadata(7, 2, b"another")
    assert "n1 and n3 hold different records of the same epoch at offset 7" in found(quorum)["replica-divergence"]


def test_d2_different_records_of_one_epoch_beyond_them(quorum: StoredQuorum) -> None:
    quorum.logs["n1"] += [metadata(10, 2, b"one")]
    quorum.logs["n3"] += [metadata(10, 2, b"another")]
    assert list(found(quorum)) == ["replica-divergence"]


def test_d3_epochs_that_fall(quorum: StoredQuorum) -> None:
    quorum.logs["n1"] += [metadata(10, 1, b"old")]
    assert list(found(quorum)) == ["epoch-regression"]


def test_d4_an_epoch_that_starts_elsewhere(quorum: StoredQuorum) -> None:
    quorum.epochs["n3"] = [(1, 0), (2, 6)]
    assert list(found(quorum)) == ["epoch-start-mismatch"]


def test_d1_without_traces_a_snapshot_shows_the_committed_records(quorum: StoredQuorum) -> None:
    quorum.traced = False
    quorum.logs["n3"][5:] = [leader_change(5, 3, 3, (1, 3))]
    quorum.epochs["n3"] = [(1, 0), (3, 5)]
    run = quorum.write()
    assert judged(run).verdict == "pass", "nothing says that the suffixes were committed"
    for node in ("n1", "n3"):
        (run / "nodes" / node / LOG / f"{6:020d}-{2:010d}.checkpoint").write_bytes(b"")
    assert [anomaly.name for anomaly in judged(run).anomalies] == ["replica-divergence"]


def test_a_log_may_start_at_the_end_of_a_snapshot(quorum: StoredQuorum) -> None:
    quorum.traced = False
    run = quorum.write()
    log = run / "nodes" / "n3" / LOG
    (log / f"{0:020d}.log").unlink()
    (log / f"{5:020d}.log").write_bytes(b"".join(quorum.logs["n3"][5:]))
    (log / "leader-epoch-checkpoint").write_text("0\n1\n2 5\n")
    assert "starts at 5, and no snapshot has what was before" in reasons_of(judged(run))
    (log / f"{5:020d}-{1:010d}.checkpoint").write_bytes(b"")
    assert judged(run).verdict == "pass"


@pytest.mark.parametrize("traced", [True, False])
def test_a_log_may_be_replaced_by_its_snapshot_as_a_whole(quorum: StoredQuorum, traced: bool) -> None:
    quorum.traced = traced
    run = quorum.write()
    log = run / "nodes" / "n3" / LOG
    (log / f"{0:020d}.log").unlink()
    (log / f"{10:020d}.log").write_bytes(b"")
    (log / "leader-epoch-checkpoint").write_text("0\n1\n2 10\n")
    snapshot = log / f"{10:020d}-{2:010d}.checkpoint"
    whole = b"".join(quorum.logs["n3"][:3])
    for content in (b"", whole[:-1], b"x" * 100):
        snapshot.write_bytes(content)
        assert "the metadata log of n3 is empty" in reasons_of(judged(run)), "a snapshot that is not whole has nothing"
    snapshot.write_bytes(whole)
    assert judged(run).verdict == "pass"
    snapshot.rename(snapshot.with_name(f"{9:020d}-{2:010d}.checkpoint"))
    assert "the metadata log of n3 is empty" in reasons_of(judged(run)), "the records after the snapshot are missing"
