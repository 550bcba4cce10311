"""The sentence that names the cause of an anomaly, for each anomaly that the checkers know."""

import re
from typing import Any

import pytest

from analysis.checker_registry import CHECKERS
from analysis.core.anomaly import NOT_SHOWN, Anomaly
from analysis.page.causes import EXPLAINED_BY, LACKING, cause_of
from analysis.page.run_facts import RunFacts, run_facts
from history.journal.timeline import RunClock, fault_spans
from history.record.values import encode_value
from installation.files import PROJECT_ROOT

WALL = 1_700_000_000_000_000_000
CLOCK = RunClock(0, WALL)
VALUES = [encode_value(1, 1, sequence) for sequence in range(3)]
KNOWN = sorted({kind.name for checker in CHECKERS for kind in checker.anomalies})


def event(at_s: float, name: str, **fields: Any) -> dict[str, Any]:
    return {"event": name, "wall": WALL + round(at_s * 1e9), **fields}


def of_log(at_s: float, name: str, **fields: Any) -> dict[str, Any]:
    return event(at_s, name, topic="log", partition=0, **fields)


def line(at_s: float, name: str, **fields: Any) -> dict[str, Any]:
    return {"event": name, "t": round(at_s * 1e9), **fields}


JOURNAL = [
    line(0.42, "fault_invoked", id="f1", kind="kill", targets=["n2"], group="process"),
    line(0.43, "fault_injected", id="f1"),
    line(0.44, "fault_healed", id="f1"),
    line(0.1, "note", endpoints={"n2": "10.0.0.2:7000"}),
    line(5.5, "service_exit", node="n3", exit_code=70, signal=None, last_words="bad"),
]
EVENTS = {
    "n1": [
        of_log(0.3, "partition_role", role="leader", leader=1, leader_epoch=0, isr=[1, 2]),
        of_log(0.9, "records_deleted", low_watermark=2, leader_epoch=0),
        event(1.0, "quorum_vote", epoch=4, candidate=2),
        event(1.5, "quorum_restored", epoch=4, leader=2, voted=-1),
        of_log(2.0, "remote_segment", id="8b1f", state="COPY_SEGMENT_FINISHED", base_offset=0, end_offset=2),
        of_log(4.01, "partition_role", role="follower", leader=2, leader_epoch=1, isr=[2]),
        of_log(4.02, "truncated", from_offset=3, to_offset=0, rule="high-watermark", lossy=False, leader_epoch=1),
        of_log(4.5, "replica_progress", log_end_offset=1, high_watermark=1, leader_epoch=1),
    ],
    "n2": [
        of_log(0.45, "replica_progress", log_end_offset=3, high_watermark=0, leader_epoch=0),
        of_log(0.46, "truncated", from_offset=3, to_offset=0, rule="high-watermark", lossy=True, leader_epoch=0),
        of_log(3.97, "partition_role", role="leader", leader=2, leader_epoch=1, isr=[2]),
        of_log(3.98, "replica_progress", log_end_offset=0, high_watermark=0, leader_epoch=1),
        of_log(3.99, "log_start_moved", log_start_offset=0),
    ],
    "n3": [
        event(3.0, "truncated", topic="__consumer_offsets", partition=0, from_offset=9, to_offset=7, rule="epoch"),
    ],
}  # fmt: skip


def facts_of(events: dict[str, list[dict[str, Any]]], journal: list[dict[str, Any]] = JOURNAL) -> RunFacts:
    return run_facts(journal, {node: list(enumerate(rows, 1)) for node, rows in events.items()}, CLOCK)


def append(offset: int, at_s: float) -> dict[str, Any]:
    inv, ret = round((at_s - 0.01) * 1e9), round(at_s * 1e9)
    return {
        "op": "append",
        "client": "p",
        "type": "ok",
        "inv": inv,
        "ret": ret,
        "offset": offset,
        "value": VALUES[offset],
    }


def read(at_s: float, **fields: Any) -> dict[str, Any]:
    return {"op": "read", "client": "r", "type": "ok", "inv": 0, "ret": round(at_s * 1e9), "offset": 0} | fields


LOST = (append(0, 0.35), append(1, 0.36), append(2, 0.37), read(4.1))
RECORD = ({"node": "n1", "offset": 0, "epoch": 0}, {"node": "n2", "offset": 0, "epoch": 1})
AT_REST = ({"node": "n3", "offset": 0},)
FETCHED = tuple({"kind": "fetched", "offset": 2, "ret": at_ms * 1_000_000} for at_ms in (350, 4_100))
REPORTS = tuple({"node": "n2", "wall": WALL + at_ms * 1_000_000} for at_ms in (450, 3_980))
DELETED = ({"node": "n2", "epoch": 1, "start": 0, "answered": 2},)
VOTE = ({"node": "n1", "epoch": 4},)
REGISTER = ({"op": "read", "key": "k", "endpoint": "10.0.0.2:7000", "type": "ok", "inv": 0, "ret": 450_000_000},)

WITNESSES = {
    "_lost_records": (LOST, "n2 truncated log-0 from 3 to 0 at 0.460 s to its high watermark, below its high "
                            "watermark, became leader in epoch 1 at 3.970 s; then n1 truncated log-0 from 3 to 0"),
    "_incomplete": (LOST, "n2 truncated log-0 from 3 to 0 at 0.460 s to its high watermark"),
    "_lost_commit": (FETCHED, "Between the commit shown at 0.350 s and the answer at 4.100 s, n3 truncated "
                              "__consumer_offsets-0 from 9 to 7 at 3.000 s by leader epochs"),
    "_diverged": (RECORD, "n1 has epoch 0 there, led by n1 from 0.300 s; n2 has epoch 1 there, "
                          "led by n2"),
    "_stale_answer": ((*LOST[:1], read(4.0)), "n1 took itself for the leader of log-0 in epoch 0 at 4.000 s, although "
                                              "n2 led epoch 1 since 3.970 s"),
    "_stale_register": (REGISTER, "n2 gave all contradicting answers at 0.450 s, without a fault"),
    "_own_promise": ((*LOST[:1], read(4.0)), "n1 took itself for the leader of log-0 in epoch 0 at 4.000 s, although "
                                             "n2 led epoch 1 since 3.970 s"),
    "_repeated": ((append(0, 0.35), append(1, 5.0)), "n2 became leader of log-0 in epoch 1 at 3.970 s"),
    "_election": (VOTE, "n1 voted for n2 in epoch 4 at 1.000 s; n1 restarted with epoch 4 and no vote on its disk"),
    "_at_rest": (AT_REST, "n2 leads log-0 in epoch 1 since 3.970 s; the in-sync set of log-0 is [n2] since 4.010 s; "
                          "the logs end at 1 on n1, 0 on n2"),
    "_remote": (RECORD, "n1 declared remote segment 0 to 2: copy segment finished at 2.000 s"),
    "_ended": (AT_REST, "The process of n3 ended with exit code 70 at 5.500 s, after kill n2 (f1, 0.430 s)"),
    "_reported_less": (REPORTS, "Between the reports at 0.450 s and 3.980 s, n2 truncated log-0 from 3 to 0 at "
                                "0.460 s to its high watermark, below its high watermark; n2 led log-0 in epoch 1"),
    "_start_fell": (DELETED, "n1 answered DeleteRecords of log-0 with 2 at 0.900 s; n2 led log-0 in epoch 1 from "
                             "3.970 s; the logs start at 0 on n2"),
    "_lookup": (RECORD, "n1 declared remote segment 0 to 2: copy segment finished at 2.000 s"),
    "_remote_states": (AT_REST, "n1 declared remote segment 0 to 2: copy segment finished at 2.000 s"),
    "_altered": (RECORD, "n1 led log-0 in epoch 0 since 0.300 s"),
    "_offsets_answered": (FETCHED[1:], "n3 truncated __consumer_offsets-0 from 9 to 7 at 3.000 s by leader epochs"),
}  # fmt: skip
SENTENCES = {"_remote_states": "segment 8b1f of log-0: unknown to DELETE_SEGMENT_FINISHED"}
ELSEWHERE = {
    "_remote_states": ("__remote_log_metadata", -1),
    "_stale_register": ("k", -1),
    "_election": ("", -1),
    "_ended": ("", -1),
}


def anomaly(name: str, witness: tuple[dict[str, Any], ...]) -> Anomaly:
    explain = EXPLAINED_BY[name].__name__
    topic, partition = ELSEWHERE.get(explain, ("log", 0))
    return Anomaly(name, topic, partition, SENTENCES.get(explain, "it is wrong"), witness)


def test_the_cause_of_each_anomaly_of_the_checkers_is_derived_and_of_no_other() -> None:
    """Those of docs/anomalies.md: a row has the anomaly, the class of its promise, the promise and a meaning."""
    page = (PROJECT_ROOT / "docs" / "anomalies.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `([a-z0-9-]+)` \| [^|]+ \| [^|]+ \| [^|]+ \|(?:[^|]+\|)?$", page, re.MULTILINE)
    assert sorted(EXPLAINED_BY) == KNOWN == sorted(set(documented))
    assert set(EXPLAINED_BY.values()) == set(LACKING)


@pytest.mark.parametrize("name", KNOWN)
def test_the_events_show_the_cause_of_each_anomaly(name: str) -> None:
    witness, text = WITNESSES[EXPLAINED_BY[name].__name__]
    assert text in cause_of(anomaly(name, witness), facts_of(EVENTS))


@pytest.mark.parametrize("name", KNOWN)
def test_a_run_without_events_has_no_cause_and_says_so(name: str) -> None:
    witness, _ = WITNESSES[EXPLAINED_BY[name].__name__]
    shown = cause_of(anomaly(name, witness), facts_of({}, []))
    if EXPLAINED_BY[name].__name__ not in ("_stale_register", "_own_promise"):  # of these, clients record enough
        assert shown.startswith(f"{NOT_SHOWN}the nodes recorded no protocol events")
        assert ("; the contradicting operation" in shown) == any(isinstance(row.get("ret"), int) for row in witness)


@pytest.mark.parametrize("name", KNOWN)
def test_a_witness_without_operations_has_no_invented_cause(name: str) -> None:
    empty = anomaly(name, ())
    cause = cause_of(empty, facts_of({"n1": [event(0.1, "broker_started")]}, []))
    assert cause.startswith(NOT_SHOWN + LACKING[EXPLAINED_BY[name]])


def test_a_fault_on_the_node_of_a_corrupt_record_is_named() -> None:
    cause = cause_of(anomaly("corrupt-record", ({"node": "n2", "offset": 0, "epoch": 7},)), facts_of(EVENTS))
    assert cause == "n2 had kill n2 (f1, 0.430 s)"


def test_the_first_sentence_names_records_and_their_acknowledgement() -> None:
    cause = cause_of(anomaly("lost-acknowledged-write", LOST), facts_of(EVENTS))
    assert cause.startswith("After kill n2 (f1, 0.430 s), n2 truncated")
    assert cause.endswith(": records 1.1.0, 1.1.1, 1.1.2, acknowledged at 0.350 s, are gone")


def test_a_follower_that_fetches_its_records_again_is_not_the_cause() -> None:
    events = {
        "n1": [of_log(0.3, "partition_role", role="leader", leader_epoch=0)],
        "n2": [
            of_log(0.4, "truncated", from_offset=3, to_offset=0, rule="epoch"),
            of_log(0.5, "replica_progress", log_end_offset=3),
            of_log(2.0, "partition_role", role="leader", leader_epoch=2),
        ],
        "n3": [
            of_log(0.6, "truncated", from_offset=3, to_offset=1, rule="none"),
            of_log(1.0, "partition_role", role="leader", leader_epoch=1),
        ],
    }
    cause = cause_of(anomaly("lost-acknowledged-write", LOST), facts_of(events, []))
    assert cause.startswith("n3 truncated log-0 from 3 to 1 at 0.600 s")


def test_a_leader_with_a_short_log_is_the_cause_where_no_replica_removed_records() -> None:
    events = {
        "n1": [of_log(0.3, "partition_role", role="leader", leader_epoch=0)],
        "n3": [
            of_log(0.3, "replica_progress", log_end_offset=0),
            of_log(1.0, "partition_role", role="leader", leader_epoch=1),
        ],
    }
    cause = cause_of(anomaly("lost-acknowledged-write", LOST[:1]), facts_of(events, []))
    assert cause == (
        "n3 became leader of log-0 in epoch 1 at 1.000 s after n1, the leader of epoch 0; its log ended at 0: "
        "record 1.1.0, acknowledged at 0.350 s, is gone"
    )


def test_an_unhealed_fault_has_no_end_and_an_uninjected_one_its_invocation() -> None:
    spans = fault_spans([line(1.0, "fault_invoked", id="f1", kind="kill", targets=["n1"])], CLOCK)
    assert [(span.id, span.name, span.start_s, span.end_s) for span in spans] == [("f1", "kill n1", 1.0, float("inf"))]


def test_a_killed_process_leads_no_partition() -> None:
    events = {
        "n1": [of_log(0.3, "partition_role", role="leader", leader_epoch=0)],
        "n3": [
            of_log(1.0, "partition_role", role="leader", leader_epoch=1),
            of_log(1.0, "replica_progress", log_end_offset=3, high_watermark=2),
            of_log(9.0, "truncated", from_offset=3, to_offset=0, rule="epoch"),
        ],
    }
    kill = [line(0.5, "fault_invoked", id="f1", kind="kill", targets=["n1"])]
    cause = cause_of(anomaly("session-violation", (read(0.4), read(3.0))), facts_of(events, kill))
    assert cause == (
        "Between the contradicting answers the leader of log-0 changed: n3 in epoch 1 at 1.000 s, with the high "
        "watermark 2"
    )


def test_later_events_do_not_explain_the_finding_of_an_oracle() -> None:
    of = Anomaly("phantom-commit", "log", 0, "it is wrong (0.400 s after the simulation started)", AT_REST)
    assert cause_of(of, facts_of(EVENTS, [])).endswith("before it, n1 became leader of log-0 in epoch 0 at 0.300 s")


def test_the_cause_names_the_one_leader_that_appended_a_batch_twice() -> None:
    events = {"n1": [of_log(0.3, "partition_role", role="leader", leader_epoch=0)]}
    cut = [line(0.4, "fault_invoked", id="f1", kind="partition-one", targets=["n1"])]
    twice = ({"op": "record", "node": "n1", "offset": 3}, {"op": "record", "node": "n1", "offset": 4})
    cause = cause_of(anomaly("duplicate-on-replica", twice), facts_of(events, cut))
    assert cause == (
        "n1 appended all these batches as the leader of log-0 in epoch 0, since 0.300 s, after partition-one n1 (f1, "
        "0.400 s), without another leader or a truncation"
    )


def test_a_leader_without_the_record_precedes_the_removal_by_its_follower() -> None:
    events = {
        "n1": [
            of_log(0.3, "partition_role", role="leader", leader_epoch=0, isr=[1]),
            event(4.9, "broker_started"),
            of_log(5.0, "log_shortened", log_end_offset=0, lost_bytes=0),
        ],
        "n3": [
            of_log(0.3, "replica_progress", log_end_offset=0),
            of_log(1.0, "partition_role", role="leader", leader_epoch=1),
        ],
    }
    cause = cause_of(anomaly("lost-acknowledged-write", (LOST[0], read(9.0))), facts_of(events, []))
    assert cause == (
        "n3 became leader of log-0 in epoch 1 at 1.000 s after n1, the leader of epoch 0; its log ended at 0; then the "
        "recovery of n1 found log-0 only up to 0 at 5.000 s; the in-sync set of log-0 was [n1] at the "
        "acknowledgement: record 1.1.0, acknowledged at 0.350 s, is gone"
    )


def test_the_cause_names_the_epoch_without_a_leader() -> None:
    cause = cause_of(
        Anomaly("epoch-never-led", "log", 0, "it is wrong", ({"node": "n1", "epoch": 7, "offset": 2},)),
        facts_of(EVENTS),
    )
    assert cause.startswith("No node reported that it led log-0 in epoch 7; ")


def test_a_replica_that_started_again_dropped_its_log_at_that_time() -> None:
    """The offset of the witness is the new start of the log, which no dropped record has."""
    started = of_log(2.5, "bootstrapped", from_offset=3, log_start_offset=0, local_start_offset=9)
    facts = facts_of({**EVENTS, "n2": [started]})
    witness = ({"op": "bootstrapped", "node": "n2", "topic": "log", "partition": 0, "offset": 9},)
    assert cause_of(anomaly("local-records-dropped", witness), facts) == (
        "n2 dropped its log of log-0, which ended at 3, at 2.500 s and started again from remote storage"
    )
