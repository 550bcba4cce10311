"""Evidence of the metadata quorum that is missing, damaged or of another node."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analysis_pipeline.judged_quorum import LOG, judged, reasons_of, replace
from tests.analysis_pipeline.stored_quorum import (
    StoredQuorum,
    metadata,
    restored,
)


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
def test_missing_or_damaged_evidence_is_unknown_with_a_reason(
    quorum: StoredQuorum, damage: Callable[[Path], object], complaint: str
) -> None:
    run = quorum.write()
    damage(run / "nodes" / "n3")
    outcome = judged(run)
    assert outcome.verdict == "unknown", outcome
    assert complaint in reasons_of(outcome)


def test_a_leader_on_disk_that_the_trace_lacks_is_reported(quorum: StoredQuorum) -> None:
    last = next(event for event in reversed(quorum.traces["n3"]) if event["event"] == "quorum_persisted")
    replace(quorum, "n3", last, last | {"leader": -1})
    outcome = judged(quorum.write())
    assert outcome.verdict == "unknown", outcome
    assert "the quorum-state file of n3 has epoch 2, leader 2 and vote" in reasons_of(outcome)
    assert "that it had written epoch 2, leader -1" in reasons_of(outcome)


def test_a_torn_line_of_a_killed_process_does_not_count_as_damage(quorum: StoredQuorum) -> None:
    run = quorum.write()
    path = run / "nodes" / "n3" / "events.jsonl"
    first, second = path.read_text().rsplit('{"node": 3, "seq": 0,', 1)
    path.write_text(first + '{"event": "quo\n{"node": 3, "seq": 0,' + second)
    assert judged(run).verdict == "pass"


def test_a_trace_of_another_node_is_reported(quorum: StoredQuorum) -> None:
    run = quorum.write()
    (run / "nodes" / "n3" / "events.jsonl").write_bytes((run / "nodes" / "n1" / "events.jsonl").read_bytes())
    assert "n3 is node 3 by its files, and its trace is of another" in reasons_of(judged(run))


def test_a_node_that_was_not_stopped_is_not_at_rest(quorum: StoredQuorum) -> None:
    run = quorum.write()
    journal = run / "history" / "journal.jsonl"
    kept = [line for line in journal.read_text().splitlines() if '"stopped"' not in line]
    journal.write_text("\n".join(kept) + "\n")
    outcome = judged(run)
    assert outcome.verdict == "unknown"
    assert "n1 was not stopped in order before its files were read" in reasons_of(outcome)


def test_traces_without_committed_metadata_are_reported(quorum: StoredQuorum) -> None:
    for node, events in quorum.traces.items():
        quorum.traces[node] = [event for event in events if event["event"] != "quorum_high_watermark"]
    assert "n1 reported no committed metadata" in reasons_of(judged(quorum.write()))


def test_logs_without_an_election_are_reported(quorum: StoredQuorum) -> None:
    quorum.traced = False
    for log in quorum.logs.values():
        log[0], log[5] = metadata(0, 1, b"x"), metadata(5, 2, b"y")
    assert "no log holds the election of a leader" in reasons_of(judged(quorum.write()))


# --- identities


@pytest.mark.parametrize(
    ("node", "file", "old", "new", "words"),
    [
        ("n2", "meta.properties", r"directory.id=.*", "directory.id=AAAAAAAAAAAAAAAAAAAAAg", "are of another disk"),
        ("n2", "meta.properties", r"directory.id=.*\n", "", "directory.id none, but its trace names"),
        ("n2", "meta.properties", r"cluster.id=.*\n", "", "meta.properties of n2 has no cluster.id"),
        ("n2", "log-0/partition.metadata", r"topic_id: .*\n", "", "log-0 on n2 has records, but"),
    ],
)
def test_an_identity_that_is_missing_or_another_is_a_doubt(
    quorum: StoredQuorum, node: str, file: str, old: str, new: str, words: str
) -> None:
    run = quorum.write()
    path = run / "nodes" / node / "data" / file
    path.write_text(re.sub(old, new, path.read_text()))
    outcome = judged(run)
    assert outcome.verdict == "unknown"
    assert words in reasons_of(outcome)


def test_a_trace_of_another_disk_is_a_doubt(quorum: StoredQuorum) -> None:
    replace(quorum, "n1", restored(1, 0, -1, -1), restored(2, 0, -1, -1))
    assert "but its trace names" in reasons_of(judged(quorum.write()))
