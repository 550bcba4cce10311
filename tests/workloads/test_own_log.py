"""A log for a user's client: its record agrees with the real operations, and a broken client is named."""

import time
from pathlib import Path

import pytest

from history.reader import read_run
from history.record.client_reader import StreamRecord, read_recordings
from history.record.schemas import APPEND, FAIL, INFO, OK, READ
from history.record.shapes import LOG
from history.record.values import NOT_A_VALUE, decode_value
from tests.analysis.log_checks import check
from tests.workloads.running import own, settings, start
from workloads.process import ClientError


def test_an_append_log_is_recorded_with_honest_outcomes(tmp_path: Path) -> None:
    mine = own(tmp_path, "Log")
    producer = start("append-log", "producer", settings(tmp_path, "append-log", "p1", 1, own=mine), tmp_path)
    consumer = start(
        "append-log", "consumer", settings(tmp_path, "append-log", "c1", 2, own=mine, producer=-1), tmp_path
    )
    for client in (producer, consumer):
        client.start()
    assert producer.first_ack.wait(60)
    give_up_s = time.monotonic() + 60
    while producer.counts.ok < 60:
        assert producer.alive
        assert time.monotonic() < give_up_s
    for client in (producer, consumer):
        client.stop()
    assert [client.wait_stopped(60) for client in (producer, consumer)] == [0, 0]
    consumer.phase("final")
    answers = [consumer.read_all(partition, 60.0) for partition in range(2)]
    for client in (producer, consumer):
        client.close()

    assert all(answer.complete for answer in answers)
    rows = read_run(tmp_path).logs.rows.to_pylist()
    appends = [row for row in rows if row["f"] == APPEND]
    by_type = {kind: [row for row in appends if row["type"] == kind] for kind in (OK, FAIL, INFO)}
    final = {
        value: (row["partition"], offset)
        for row in rows
        if row["f"] == READ and row["phase"] == "final"
        for offset, value in zip(row["offsets"], row["values"], strict=True)
    }
    assert {row["value"]: (row["partition"], row["offset"]) for row in by_type[OK]}.items() <= final.items()
    assert {row["value"] for row in by_type[INFO]} <= final.keys(), "this client did each append that it did not answer"
    assert not {row["value"] for row in by_type[FAIL]} & final.keys()
    assert len(by_type[FAIL]) > 3
    assert len(by_type[INFO]) > 1
    assert {decode_value(row["value"]).producer for row in appends} == {1}


def test_a_reopened_client_has_a_new_session(tmp_path: Path) -> None:
    producer = start(
        "append-log", "producer", settings(tmp_path, "append-log", "p1", 1, own=own(tmp_path, "Log")), tmp_path
    )
    outcomes: list[str] = []
    for _ in range(12):  # each ends at an append that is not ok
        outcomes += [result.outcome for result in producer.append(0, acks=-1, count=30, timeout_s=1)]
    producer.close()
    assert outcomes.count("info") >= 2
    rows = [row for row in read_run(tmp_path).logs.rows.to_pylist() if row["f"] == APPEND]
    infos = [index for index, row in enumerate(rows) if row["type"] == INFO]
    some = rows[: infos[0] + 2]
    assert [(row["process"], row["session"]) for row in some] == [(1, 1)] * (infos[0] + 1) + [(1, 2)]
    assert [decode_value(row["value"]).session for row in some] == [row["session"] for row in some]
    assert rows[infos[1] + 1]["session"] == 3


def test_a_probe_reports_whether_a_partition_accepts_appends(tmp_path: Path) -> None:
    producer = start(
        "append-log", "producer", settings(tmp_path, "append-log", "p1", 1, own=own(tmp_path, "Log")), tmp_path
    )
    answers = [producer.probe(1, 60.0) for _ in range(9)]
    producer.close()
    assert [answer.ok for answer in answers] == [True] * 8 + [False]
    assert answers[-1].error == "not now"


def whole(tmp_path: Path, client: str) -> bool:
    stream = tmp_path / "history" / "operations" / f"{client}-1.arrows"
    (part,) = read_recordings(LOG, [StreamRecord(stream)])
    return part.closed and part.defects == []


def test_an_impossible_value_is_recorded_and_found(tmp_path: Path) -> None:
    mine = own(tmp_path, "OverflowingLog")
    producer = start("append-log", "producer", settings(tmp_path, "append-log", "p1", 1, own=mine), tmp_path)
    assert [each.outcome for each in producer.append(0, acks=-1, count=3, timeout_s=5)] == ["ok"] * 3
    consumer = start(
        "append-log", "consumer", settings(tmp_path, "append-log", "c1", 2, own=mine, producer=-1), tmp_path
    )
    assert consumer.read_all(0, 60.0).complete
    for client in (producer, consumer):
        client.close()
    assert [whole(tmp_path, name) for name in ("p1", "c1")] == [True, True]
    operations = read_run(tmp_path).logs.rows
    (read,) = [row for row in operations.to_pylist() if row["f"] == READ]
    assert (read["values"][0], len(read["values"])) == (NOT_A_VALUE, 3)
    assert [each.name for each in check(operations).anomalies] == ["lost-acknowledged-write"]


def test_a_log_longer_than_any_is_a_mistake_of_the_client(tmp_path: Path) -> None:
    mine = own(tmp_path, "BeyondTheLog")
    consumer = start(
        "append-log", "consumer", settings(tmp_path, "append-log", "c1", 2, own=mine, producer=-1), tmp_path
    )
    answer = consumer.read_all(0, 5.0)  # a read is repeated until its time is over
    consumer.close()
    assert not answer.complete
    assert "returned 9223372036854775808, which is not an offset" in answer.error
    assert whole(tmp_path, "c1")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Missing", r"own_clients\.py has no class Missing"),
        ("NOT_A_CLASS", r"own_clients\.py has no class NOT_A_CLASS"),
        ("Registers", r"own_clients\.py:\d+: Registers is not a LogClient"),
    ],
)
def test_an_invalid_class_ends_the_client_with_file_and_line(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(ClientError, match=rf"client p1 ended with 1: ClientClassError: .*{words}"):
        start("append-log", "producer", settings(tmp_path, "append-log", "p1", 1, own=own(tmp_path, name)), tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\nimport no_such_thing\n", r"broken\.py:2: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("x = 1\n\nclass C(:\n", r"broken\.py:3: SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    mine = own(tmp_path, "", client_class=f"{tmp_path / 'broken.py'}:C")
    with pytest.raises(ClientError, match=words):
        start("append-log", "producer", settings(tmp_path, "append-log", "p1", 1, own=mine), tmp_path)
