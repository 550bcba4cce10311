"""The metadata quorum: each rule by members that keep it and members that break it, and what is missing is told."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.checker import CheckedRun, Outcome
from analysis.checkers.metadata_quorum import CHECKER
from analysis.evidence.run_directory import describe, events_by_node
from analysis.pipeline import analyze
from history.checksummed_lines import read_lines, text_of
from history.damage import Damage
from history.reader import read_run
from tests.analysis_pipeline.stored_quorum import (
    TOPIC,
    Event,
    StoredQuorum,
    leader_change,
    mark,
    metadata,
    on_disk,
    opened,
    registration,
    restored,
    role,
    vote,
)

LOG = f"data/{TOPIC}-0"


def judged(run: Path) -> Outcome:
    return CHECKER.check(CheckedRun(run, describe(run), read_run(run), events_by_node(run)))


def told(outcome: Outcome) -> str:
    """All that is said of it."""
    return "; ".join((outcome.detail, *outcome.doubts))


def found(quorum: StoredQuorum) -> dict[str, str]:
    """The anomalies of a quorum, their sentences by their names."""
    outcome = judged(quorum.write())
    assert outcome.verdict == "fail", outcome.detail
    assert all(anomaly.witness for anomaly in outcome.anomalies)
    return {anomaly.name: anomaly.sentence for anomaly in outcome.anomalies}


@pytest.fixture
def quorum(tmp_path: Path) -> StoredQuorum:
    return StoredQuorum(tmp_path / "run")


def replace(quorum: StoredQuorum, node: str, old: dict[str, object], new: dict[str, object] | None) -> None:
    """In the trace of a node, put one event in the place of another (the last that is equal), or none."""
    events = quorum.traces[node]
    at = len(events) - 1 - events[::-1].index(old)
    events[at : at + 1] = [] if new is None else [new]


def test_a_quorum_that_keeps_its_promises_passes(quorum: StoredQuorum) -> None:
    outcome = judged(quorum.write())
    assert outcome.verdict == "pass", outcome
    assert outcome.detail == (
        "the files and traces of n1, n2, n3 agree: 2 epochs with one leader each, 30 records compared, "
        "committed up to 10, by digest what 3 of 3 nodes applied"
    )


def test_it_is_part_of_every_verdict(quorum: StoredQuorum) -> None:
    verdict = analyze(quorum.write(), engine="in-process", plots=True)
    assert [check.verdict for check in verdict.checks if check.name == "metadata quorum"] == ["pass"]


def test_a_finding_is_drawn_with_its_witness(quorum: StoredQuorum) -> None:
    quorum.logs["n3"][7] = metadata(7, 2, b"another")
    verdict = analyze(quorum.write(), engine="in-process", plots=True)
    assert verdict.verdict == "fail"
    assert {anomaly.where for anomaly in verdict.anomalies} == {f"{TOPIC}-0"}


def test_suffixes_that_are_not_committed_may_differ(quorum: StoredQuorum) -> None:
    quorum.logs["n1"] += [metadata(10, 2, b"not committed")]
    assert judged(quorum.write()).verdict == "pass"


# --- elections


def test_e1_two_leaders_in_one_epoch_by_what_nodes_told(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", role("follower", 2, 2), role("follower", 2, 1))
    assert found(quorum) == {
        "two-leaders": "epoch 2 of the metadata quorum was led by node 2 (leader change of n1) and by node 1 "
        "(quorum_role of n3)"
    }


def test_e1_two_leaders_in_one_epoch_by_the_files(quorum: StoredQuorum) -> None:
    quorum.traced = False
    quorum.states["n3"] = (2, 3, -1)
    assert list(found(quorum)) == ["two-leaders"]


def test_e2_two_votes_of_a_voter_that_was_restarted_in_between(quorum: StoredQuorum) -> None:
    again = [on_disk("persisted", 1, -1, 3), vote(1, 3)]
    at = quorum.traces["n3"].index({"event": "broker_started"}, 1)
    quorum.traces["n3"][at:at] = [on_disk("persisted", 1, -1, 2), vote(1, 2)]
    quorum.traces["n3"][at + 4 : at + 4] = again
    assert found(quorum)["two-votes"] == (
        "node 3 voted in epoch 1 for node 2 (quorum_persisted of n3) and for node 3 (quorum_persisted of n3)"
    )


def test_e2_a_vote_that_elected_one_node_and_is_remembered_for_another(quorum: StoredQuorum) -> None:
    quorum.traced = False
    quorum.states["n1"] = (2, 2, 3)
    assert found(quorum) == {
        "two-votes": "node 1 voted in epoch 2 for node 2 (leader change of n1) and for node 3 (quorum-state file of n1)"
    }


@pytest.mark.parametrize("version", [0, 1])
def test_e3_a_leader_by_the_votes_of_a_minority(quorum: StoredQuorum, version: int) -> None:
    quorum.traced = False
    for log in quorum.logs.values():
        log[5] = leader_change(5, 2, 2, (2,), version=version)
    assert found(quorum) == {"elected-by-minority": "node 2 led epoch 2 by the votes of 1 of 3 voters"}


def without_elections(quorum: StoredQuorum, *told_of: Event) -> None:
    """Have snapshots replace the log up to behind the last election; n1 told of these while it was there."""
    for node, log in quorum.logs.items():
        del log[:6]
        quorum.epochs[node] = [(2, 6)]
    quorum.traces["n1"][-1:-1] = told_of


def test_elections_are_judged_by_what_was_told_where_no_log_has_them(quorum: StoredQuorum) -> None:
    without_elections(quorum, opened(0, 1, 1, (1, 2)), opened(5, 2, 2, (1, 2)))
    outcome = judged(quorum.write())
    assert (outcome.verdict, outcome.doubts) == ("pass", ()), outcome
    assert "2 epochs with one leader each" in outcome.detail


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (opened(5, 2, 2, (2,)), {"elected-by-minority": "node 2 led epoch 2 by the votes of 1 of 3 voters"}),
        (
            opened(5, 2, 2, (2, 3)),  # n3 followed another in epoch 1, and has voted for nobody in epoch 2
            None,
        ),
        (
            opened(0, 1, 3, (2, 3)),
            {
                "two-leaders": "epoch 1 of the metadata quorum was led by node 1 (quorum_persisted of n1) and by node "
                "3 (quorum_leader_change of n1)",
                "two-votes": "node 2 voted in epoch 1 for node 3 (quorum_leader_change of n1) and for node 1 "
                "(quorum_persisted of n2)",
            },
        ),
    ],
)
def test_what_was_told_of_elections_breaks_the_same_rules(
    quorum: StoredQuorum, event: Event, expected: dict[str, str] | None
) -> None:
    without_elections(quorum, event)
    if expected is None:
        assert judged(quorum.write()).verdict == "pass"
    else:
        assert found(quorum) == expected


def test_a_told_election_without_its_votes_is_none(quorum: StoredQuorum) -> None:
    event = opened(5, 2, 2, (1, 2))
    without_elections(quorum, {key: event[key] for key in ("event", "offset", "epoch", "leader")})
    assert "no log holds the election of a leader, and no node reported one" in told(judged(quorum.write()))


@pytest.mark.parametrize("voters", [None, 3, [1, "2"], [1, True]])
def test_votes_that_nobody_can_read_are_told(quorum: StoredQuorum, voters: object) -> None:
    without_elections(quorum, {**opened(5, 2, 2, (1, 2)), "voters": voters})
    assert "of the trace of n1 cannot be read" in told(judged(quorum.write()))


@pytest.mark.parametrize(("node", "epoch"), [("n1", 2), ("n2", 2), ("n1", 1)])
def test_e4_a_vote_that_is_told_before_it_is_on_disk(quorum: StoredQuorum, node: str, epoch: int) -> None:
    replace(quorum, node, on_disk("persisted", epoch, -1, epoch), None)
    sentence = f"{node} voted in epoch {epoch} for node {epoch}, but its disk did not hold that vote"
    assert found(quorum) == {"vote-not-on-disk": sentence}


def test_e5_an_epoch_that_the_disk_forgot(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", restored(3, 1, 1, -1), restored(3, 0, -1, -1))
    assert found(quorum) == {"election-state-regression": "n3 knew epoch 1, but later (quorum_restored) only epoch 0"}


@pytest.mark.parametrize(
    ("node", "damage", "excused"),
    [
        pytest.param("n3", Damage.DISK, True, id="its disk was wiped"),
        pytest.param("n3", Damage.NEWER_STATE, True, id="an older disk came back"),
        pytest.param("n3", Damage.UNSYNCED, False, id="what was not synced does not explain it"),
        pytest.param("n2", Damage.DISK, False, id="another node's disk was wiped"),
        pytest.param("n3", None, False, id="the node says that its disk is another one, and no fault replaced it"),
    ],
)
def test_e5_only_a_fault_that_replaces_the_nodes_disk_excuses_what_it_forgot(
    quorum: StoredQuorum, node: str, damage: Damage | None, excused: bool
) -> None:
    replace(quorum, "n3", restored(3, 0, -1, -1), restored(3, 0, -1, -1) | {"directory": "the first disk"})
    replace(quorum, "n3", restored(3, 1, 1, -1), restored(3, 0, -1, -1))
    run = quorum.write()
    path = run / "history/journal.jsonl"
    lines = [line for _, line in read_lines(path).contents]
    at = next(index for index, line in enumerate(lines) if line.get("name") == "main") + 1
    fault = {key: lines[at - 1][key] for key in ("t", "wall")} | {
        "event": "fault_invoked",
        "id": "w",
        "kind": "disk-wipe",
    }
    fault |= {"targets": [node], "parameters": {}, "may_destroy": [] if damage is None else [damage]}
    path.write_bytes(text_of([*lines[:at], fault, *lines[at:]]))
    assert [each.name for each in judged(run).anomalies] == ([] if excused else ["election-state-regression"])


def test_e5_a_vote_that_the_disk_forgot(quorum: StoredQuorum) -> None:
    quorum.states["n1"] = (2, -1, -1)
    sentence = found(quorum)["election-state-regression"]
    assert sentence.startswith("n1 had voted in epoch 2 for node 2, but later its disk (quorum-state file) held no")


def test_e5_a_vote_may_be_forgotten_once_the_leader_is_known(quorum: StoredQuorum) -> None:
    quorum.states["n1"] = (2, 2, -1)
    assert judged(quorum.write()).verdict == "pass"


def test_e5_an_epoch_that_falls_while_a_process_runs(quorum: StoredQuorum) -> None:
    quorum.traces["n2"][-1:-1] = [role("follower", 1, 1)]
    assert list(found(quorum)) == ["election-state-regression"]


# --- what is committed


def test_m1_a_high_watermark_that_falls(quorum: StoredQuorum) -> None:
    quorum.traces["n2"][-1:-1] = [mark(6, 2), mark(10, 2)]
    assert found(quorum) == {
        "metadata-high-watermark-regression": "the metadata high watermark of n2 fell from 10 to 6"
    }


def test_m2_a_later_leader_without_what_was_committed(quorum: StoredQuorum) -> None:
    replace(quorum, "n1", mark(5, 1), mark(6, 1))
    assert found(quorum)["lost-committed-metadata"] == (
        "n1 knew in epoch 1 that the metadata below offset 6 was committed, but node 2 opened epoch 2 at offset 5, "
        "without it"
    )


def test_m3_a_majority_without_what_was_committed(quorum: StoredQuorum) -> None:
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


def test_m4_a_node_that_acted_on_something_else(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", mark(5, 1), mark(5, 1) | {"digest": 7})
    assert found(quorum) == {
        "applied-metadata-mismatch": "the metadata below offset 5 that n3 has applied differs from what the log of "
        "n1 has there"
    }


def without_digests(quorum: StoredQuorum, node: str, *, behind: Event | None) -> None:
    """All processes of a node tell of no digest; each has begun with an event."""
    told = [each | {"digest": None} if "digest" in each else each for each in quorum.traces[node]]
    quorum.traces[node] = [
        event
        for each in told
        for event in ([each, behind] if each["event"] == "broker_started" and behind is not None else [each])
    ]


def snapshot(offset: int) -> Event:
    return {"event": "quorum_snapshot", "offset": offset, "epoch": 1, "records": 1}


def test_a_node_that_began_with_a_snapshot_knows_no_digest(quorum: StoredQuorum) -> None:
    without_digests(quorum, "n3", behind=snapshot(1))
    outcome = judged(quorum.write())
    assert outcome.verdict == "pass", outcome
    assert "by digest what 2 of 3 nodes applied" in outcome.detail


def test_a_snapshot_that_comes_on_the_way_takes_the_digest_too(quorum: StoredQuorum) -> None:
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
    told = [doubt for doubt in outcome.doubts if "without its digest" in doubt]
    assert [doubt.split()[0] for doubt in told] == list(nodes)


def test_a_snapshot_that_a_node_made_itself_leaves_it_the_digest(quorum: StoredQuorum) -> None:
    events = quorum.traces["n3"]
    at = events.index(mark(10, 2))
    quorum.traces["n3"] = [*events[:at], snapshot(6), mark(10, 2) | {"digest": None}, *events[at + 1 :]]
    assert judged(quorum.write()).verdict == "unknown"


def test_a_node_that_does_not_speak_of_the_digest_is_in_doubt(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", mark(10, 2), {key: value for key, value in mark(10, 2).items() if key != "digest"})
    assert judged(quorum.write()).verdict != "pass"


def test_m4_logs_that_were_all_forged_alike(quorum: StoredQuorum) -> None:
    for log in quorum.logs.values():
        log[3] = metadata(3, 1, b"forged")
    assert list(found(quorum)) == ["applied-metadata-mismatch"]


def test_m4_a_log_that_lost_what_its_node_had_applied(quorum: StoredQuorum) -> None:
    del quorum.logs["n3"][8:]
    assert found(quorum) == {"applied-metadata-mismatch": "n3 has applied the metadata below 10, but its log ends at 8"}


def test_m5_a_node_that_never_learned_what_was_committed(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", mark(10, 2), None)
    assert found(quorum)["not-converged"].endswith("but in the end n3 has applied it up to 6")


@pytest.mark.parametrize(("step_s", "verdict"), [(-60, "unknown"), (60, "pass"), (-0.4, "pass")])
def test_m5_says_nothing_where_the_clock_was_set_back(quorum: StoredQuorum, step_s: float, verdict: str) -> None:
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
    assert (outcome.verdict, outcome.anomalies) == (verdict, ()), told(outcome)
    assert ("the wall clock was set back by 60.0 s" in told(outcome)) == (verdict == "unknown")


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


def test_d1_without_traces_a_snapshot_says_what_is_committed(quorum: StoredQuorum) -> None:
    quorum.traced = False
    quorum.logs["n3"][5:] = [leader_change(5, 3, 3, (1, 3))]
    quorum.epochs["n3"] = [(1, 0), (3, 5)]
    run = quorum.write()
    assert judged(run).verdict == "pass", "nothing says that the suffixes were committed"
    for node in ("n1", "n3"):
        (run / "nodes" / node / LOG / f"{6:020d}-{2:010d}.checkpoint").write_bytes(b"")
    assert [anomaly.name for anomaly in judged(run).anomalies] == ["replica-divergence"]


def test_a_log_may_begin_where_a_snapshot_ends(quorum: StoredQuorum) -> None:
    quorum.traced = False
    run = quorum.write()
    log = run / "nodes" / "n3" / LOG
    (log / f"{0:020d}.log").unlink()
    (log / f"{5:020d}.log").write_bytes(b"".join(quorum.logs["n3"][5:]))
    (log / "leader-epoch-checkpoint").write_text("0\n1\n2 5\n")
    assert "starts at 5, and no snapshot has what was before" in told(judged(run))
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
        assert "the metadata log of n3 is empty" in told(judged(run)), "a snapshot that is not whole has nothing"
    snapshot.write_bytes(whole)
    assert judged(run).verdict == "pass"
    snapshot.rename(snapshot.with_name(f"{9:020d}-{2:010d}.checkpoint"))
    assert "the metadata log of n3 is empty" in told(judged(run)), "nobody has what lies behind the snapshot"


# --- what is missing


def lines(change: Callable[[list[bytes]], object]) -> Callable[[Path], None]:
    """Change the lines of a trace."""

    def edit(node: Path) -> None:
        path = node / "events.jsonl"
        found = path.read_bytes().splitlines(keepends=True)
        change(found)
        path.write_bytes(b"".join(found))

    return edit


def without(name: str) -> Callable[[Path], object]:
    return lambda node: (node / name).unlink()


def renamed(name: str, new: str) -> Callable[[Path], object]:
    return lambda node: (node / name).rename((node / name).with_name(new))


def holding(name: str, content: bytes) -> Callable[[Path], None]:
    def write(node: Path) -> None:
        (node / name).write_bytes(content)

    return write


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (without("events.jsonl"), "n3 left no trace"),
        (holding("events.jsonl", b""), "the trace of n3 is empty"),
        (lines(lambda found: found.pop(4)), "the trace of n3 goes from event 3 to event 5 at line 5"),
        (lines(lambda found: found.pop(0)), "the trace of n3 goes from event -1 to event 1 at line 1"),
        (lines(lambda found: found.pop()), "the trace of n3 ends early"),
        (lines(lambda found: found.insert(5, b'{"event": "quo\n')), "line 6 of the trace of n3 cannot be read"),
        (lines(lambda found: found.append(b'{"event": "quo')), "line 18 of the trace of n3 cannot be read"),
        (without(f"{LOG}/{0:020d}.log"), "n3 has no metadata log"),
        (holding(f"{LOG}/{0:020d}.log", b""), "the metadata log of n3 is empty"),
        (holding(f"{LOG}/{0:020d}.log", b"x" * 100), "on n3 could not be read to its end"),
        (renamed(f"{LOG}/{0:020d}.log", f"{7:020d}.log"), "n3 ends early"),
        (without(f"{LOG}/leader-epoch-checkpoint"), "n3 has no leader-epoch-checkpoint"),
        (without(f"{LOG}/quorum-state"), "n3 has no quorum-state file"),
        (holding(f"{LOG}/quorum-state", b'{"leaderId":'), "the quorum-state file of n3 cannot be understood"),
        (holding(f"{LOG}/quorum-state", b'{"leaderId":-7}'), "the quorum-state file of n3 cannot be understood"),
        (without("data/meta.properties"), "n3 has no meta.properties"),
        (holding("data/meta.properties", b"version=1\n"), "does not say which node it is"),
        (lambda node: shutil.rmtree(node), "n3"),
        (lambda node: shutil.rmtree(node / "data"), "n3"),
    ],
)
def test_evidence_that_is_missing_or_damaged_is_told(
    quorum: StoredQuorum, damage: Callable[[Path], object], complaint: str
) -> None:
    run = quorum.write()
    damage(run / "nodes" / "n3")
    outcome = judged(run)
    assert outcome.verdict == "unknown", outcome
    assert complaint in told(outcome)


def test_a_leader_on_a_disk_that_its_node_never_told_of_is_told(quorum: StoredQuorum) -> None:
    last = next(event for event in reversed(quorum.traces["n3"]) if event["event"] == "quorum_persisted")
    replace(quorum, "n3", last, last | {"leader": -1})
    outcome = judged(quorum.write())
    assert outcome.verdict == "unknown", outcome
    assert "the quorum-state file of n3 has epoch 2, leader 2 and vote" in told(outcome)
    assert "that it had written epoch 2, leader -1" in told(outcome)


def test_a_line_that_a_killed_process_left_torn_is_no_damage(quorum: StoredQuorum) -> None:
    run = quorum.write()
    path = run / "nodes" / "n3" / "events.jsonl"
    first, second = path.read_text().rsplit('{"node": 3, "seq": 0,', 1)
    path.write_text(first + '{"event": "quo\n{"node": 3, "seq": 0,' + second)
    assert judged(run).verdict == "pass"


def test_a_trace_of_another_node_is_told(quorum: StoredQuorum) -> None:
    run = quorum.write()
    (run / "nodes" / "n3" / "events.jsonl").write_bytes((run / "nodes" / "n1" / "events.jsonl").read_bytes())
    assert "n3 is node 3 by its files, and its trace is of another" in told(judged(run))


def test_a_node_that_was_not_stopped_is_not_at_rest(quorum: StoredQuorum) -> None:
    run = quorum.write()
    journal = run / "history" / "journal.jsonl"
    kept = [line for line in journal.read_text().splitlines() if '"stopped"' not in line]
    journal.write_text("\n".join(kept) + "\n")
    outcome = judged(run)
    assert outcome.verdict == "unknown"
    assert "n1 was not stopped in order before its files were read" in told(outcome)


def test_traces_that_tell_of_nothing_committed_compare_nothing(quorum: StoredQuorum) -> None:
    for node, events in quorum.traces.items():
        quorum.traces[node] = [event for event in events if event["event"] != "quorum_high_watermark"]
    assert "n1 reported no committed metadata" in told(judged(quorum.write()))


def test_logs_without_an_election_compare_nothing(quorum: StoredQuorum) -> None:
    quorum.traced = False
    for log in quorum.logs.values():
        log[0], log[5] = metadata(0, 1, b"x"), metadata(5, 2, b"y")
    assert "no log holds the election of a leader" in told(judged(quorum.write()))


# --- to which systems it applies


@pytest.mark.parametrize(
    ("said", "verdict", "detail"),
    [
        ('format = "none"', "n/a", "this system has no metadata quorum whose files can be read"),
        ('format = "zab"', "unknown", "of the format 'zab' cannot be read; known are kraft and none"),
        ("", "unknown", "of the format '' cannot be read"),
    ],
)
def test_the_system_says_whether_it_has_a_quorum(quorum: StoredQuorum, said: str, verdict: str, detail: str) -> None:
    run = quorum.write()
    text = (run / "run.toml").read_text()
    assert 'format = "kraft"' in text
    (run / "run.toml").write_text(text.replace('format = "kraft"', said))
    outcome = judged(run)
    assert outcome.verdict == verdict
    assert detail in outcome.detail


def test_files_alone_are_judged_where_nodes_tell_nothing(quorum: StoredQuorum) -> None:
    quorum.traced = False
    outcome = judged(quorum.write())
    assert outcome.verdict == "pass", outcome
    assert outcome.detail.startswith(
        "the files of n1, n2, n3 agree: 2 epochs with one leader each, 30 records compared"
    )


# --- identities


@pytest.mark.parametrize(
    ("node", "file", "old", "new", "words"),
    [
        ("n2", "meta.properties", r"directory.id=.*", "directory.id=AAAAAAAAAAAAAAAAAAAAAg", "no broker of its number"),
        ("n2", "meta.properties", r"directory.id=.*", "directory.id=AwQFBgcICQoLDA0ODxAREg", "no broker of its number"),
        ("n2", "meta.properties", r"directory.id=.*\n", "", "directory.id none, but its trace says"),
        (
            "n2",
            "log-0/partition.metadata",
            r"topic_id: .*",
            "topic_id: AAAAAAAAAAAAAAAAAAAAAg",
            "no topic of that name",
        ),
    ],
)
def test_an_identity_that_the_metadata_log_does_not_have_is_a_doubt(
    quorum: StoredQuorum, node: str, file: str, old: str, new: str, words: str
) -> None:
    run = quorum.write()
    path = run / "nodes" / node / "data" / file
    path.write_text(re.sub(old, new, path.read_text()))
    outcome = judged(run)
    assert outcome.verdict == "unknown"
    assert words in told(outcome)


def test_a_trace_of_another_disk_is_a_doubt(quorum: StoredQuorum) -> None:
    replace(quorum, "n1", restored(1, 0, -1, -1), restored(2, 0, -1, -1))
    assert "but its trace says" in told(judged(quorum.write()))


def test_a_system_without_traces_need_not_register_disks(quorum: StoredQuorum) -> None:
    quorum.traced = False
    for node in quorum.logs:
        quorum.logs[node][1:4] = [metadata(base, 1, registration(base)[:-16]) for base in (1, 2, 3)]
    assert judged(quorum.write()).verdict == "pass"
    quorum.path = quorum.path.with_name("other")
    quorum.logs["n1"][1] = metadata(1, 1, registration(1))
    assert judged(quorum.write()).verdict != "pass"
