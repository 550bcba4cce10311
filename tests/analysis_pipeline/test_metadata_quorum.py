"""The metadata quorum: its verdict, the systems that it applies to, and the rules of elections."""

import pytest

from analysis.pipeline import analyze
from history.checksummed_lines import read_lines, text_of
from history.damage import Damage
from tests.analysis_pipeline.judged_quorum import found, judged, reasons_of, replace
from tests.analysis_pipeline.stored_quorum import (
    TOPIC,
    Event,
    StoredQuorum,
    leader_change,
    metadata,
    on_disk,
    opened,
    restored,
    role,
    vote,
)


def test_a_quorum_that_keeps_its_promises_passes(quorum: StoredQuorum) -> None:
    outcome = judged(quorum.write())
    assert outcome.verdict == "pass", outcome
    assert outcome.detail == (
        "the files and traces of n1, n2, n3 agree: 2 epochs with one leader each, 30 records compared, "
        "committed up to 10, by digest what 3 of 3 nodes applied"
    )


def test_the_metadata_quorum_is_part_of_every_verdict(quorum: StoredQuorum) -> None:
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


@pytest.mark.parametrize(
    ("said", "verdict", "detail"),
    [
        ('format = "none"', "n/a", "this system has no metadata quorum whose files can be read"),
        ('format = "zab"', "unknown", "of the format 'zab' cannot be read; known are kraft and none"),
        ("", "unknown", "of the format '' cannot be read"),
    ],
)
def test_the_system_description_states_whether_it_has_a_quorum(
    quorum: StoredQuorum, said: str, verdict: str, detail: str
) -> None:
    run = quorum.write()
    text = (run / "run.toml").read_text()
    assert 'format = "kraft"' in text
    (run / "run.toml").write_text(text.replace('format = "kraft"', said))
    outcome = judged(run)
    assert outcome.verdict == verdict
    assert detail in outcome.detail


def test_without_traces_the_checker_decides_by_files_alone(quorum: StoredQuorum) -> None:
    quorum.traced = False
    outcome = judged(quorum.write())
    assert outcome.verdict == "pass", outcome
    assert outcome.detail.startswith(
        "the files of n1, n2, n3 agree: 2 epochs with one leader each, 30 records compared"
    )


# --- elections


def test_e1_traces_show_two_leaders_in_one_epoch(quorum: StoredQuorum) -> None:
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
    """Replace the log up to the last election by snapshots; n1 reported these events before."""
    for node, log in quorum.logs.items():
        del log[:6]
        quorum.epochs[node] = [(2, 6)]
    quorum.traces["n1"][-1:-1] = told_of


def test_elections_missing_from_every_log_are_checked_by_traces(quorum: StoredQuorum) -> None:
    without_elections(quorum, opened(0, 1, 1, (1, 2)), opened(5, 2, 2, (1, 2)))
    outcome = judged(quorum.write())
    assert (outcome.verdict, outcome.doubts) == ("pass", ()), outcome
    assert "2 epochs with one leader each" in outcome.detail


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (opened(5, 2, 2, (2,)), {"elected-by-minority": "node 2 led epoch 2 by the votes of 1 of 3 voters"}),
        (
            opened(5, 2, 2, (2, 3)),  # n3 followed another node in epoch 1, and did not vote in epoch 2
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
def test_elections_in_traces_are_checked_by_the_same_rules(
    quorum: StoredQuorum, event: Event, expected: dict[str, str] | None
) -> None:
    without_elections(quorum, event)
    if expected is None:
        assert judged(quorum.write()).verdict == "pass"
    else:
        assert found(quorum) == expected


def test_a_traced_election_without_votes_does_not_count(quorum: StoredQuorum) -> None:
    event = opened(5, 2, 2, (1, 2))
    without_elections(quorum, {key: event[key] for key in ("event", "offset", "epoch", "leader")})
    assert "no log holds the election of a leader, and no node reported one" in reasons_of(judged(quorum.write()))


@pytest.mark.parametrize("voters", [None, 3, [1, "2"], [1, True]])
def test_unreadable_votes_are_reported(quorum: StoredQuorum, voters: object) -> None:
    without_elections(quorum, {**opened(5, 2, 2, (1, 2)), "voters": voters})
    assert "of the trace of n1 cannot be read" in reasons_of(judged(quorum.write()))


@pytest.mark.parametrize(("node", "epoch"), [("n1", 2), ("n2", 2), ("n1", 1)])
def test_e4_a_vote_that_is_sent_before_it_is_on_disk(quorum: StoredQuorum, node: str, epoch: int) -> None:
    replace(quorum, node, on_disk("persisted", epoch, -1, epoch), None)
    sentence = f"{node} voted in epoch {epoch} for node {epoch}, but its disk did not hold that vote"
    assert found(quorum) == {"vote-not-on-disk": sentence}


def test_e5_an_epoch_missing_on_disk(quorum: StoredQuorum) -> None:
    replace(quorum, "n3", restored(3, 1, 1, -1), restored(3, 0, -1, -1))
    assert found(quorum) == {"election-state-regression": "n3 knew epoch 1, but later (quorum_restored) only epoch 0"}


@pytest.mark.parametrize(
    ("node", "damage", "excused"),
    [
        pytest.param("n3", Damage.DISK, True, id="its disk was wiped"),
        pytest.param("n3", Damage.NEWER_STATE, True, id="an older disk came back"),
        pytest.param("n3", Damage.UNSYNCED, False, id="unsynced data does not explain it"),
        pytest.param("n2", Damage.DISK, False, id="another node's disk was wiped"),
        pytest.param("n3", None, False, id="the node says that its disk is another one, and no fault replaced it"),
    ],
)
def test_e5_only_a_replaced_disk_excuses_a_forgotten_vote(
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


def test_e5_a_vote_missing_on_disk(quorum: StoredQuorum) -> None:
    quorum.states["n1"] = (2, -1, -1)
    sentence = found(quorum)["election-state-regression"]
    assert sentence.startswith("n1 had voted in epoch 2 for node 2, but later its disk (quorum-state file) held no")


def test_e5_a_vote_may_be_dropped_when_the_leader_is_known(quorum: StoredQuorum) -> None:
    quorum.states["n1"] = (2, 2, -1)
    replace(quorum, "n1", on_disk("persisted", 2, 2, 2), on_disk("persisted", 2, 2, -1))
    assert judged(quorum.write()).verdict == "pass"


def test_e5_a_forgotten_vote_that_the_node_did_not_report_is_a_doubt(quorum: StoredQuorum) -> None:
    """The file of n3, which did not vote, in place of the one of n1, which did."""
    quorum.states["n1"] = quorum.states["n3"]
    outcome = judged(quorum.write())
    assert outcome.verdict == "unknown"
    assert "the quorum-state file of n1 has epoch 2, leader 2 and vote -1" in reasons_of(outcome)


def test_e5_an_epoch_that_falls_while_a_process_runs(quorum: StoredQuorum) -> None:
    quorum.traces["n2"][-1:-1] = [role("follower", 1, 1)]
    assert list(found(quorum)) == ["election-state-regression"]
