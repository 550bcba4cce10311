"""Client processes against librdkafka's own mock cluster: their records agree with the real operations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from history.reader import History, read_run
from history.record.record_payload import record_bytes
from history.record.schemas import APPEND, END, INFO, OK, READ
from history.record.values import NOT_A_VALUE, decode_value, encode_value
from workloads.process import ClientError, ClientProcess
from workloads.settings import ClientSettings

TOPIC, PARTITIONS = "log", 4  # the number of partitions that a mock broker gives a topic


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Three mock brokers, for as long as the client that owns them lives."""
    owner = Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(TOPIC, timeout=60).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)


def settings(tmp_path: Path, bootstrap: str, client: str, number: int, **changes: object) -> ClientSettings:
    fields: dict[str, object] = {
        "client": client,
        "process": number,
        "producer": number if client.startswith("p") else -1,
        "session": 1,
        "seed": number,
        "bootstrap": bootstrap,
        "topic": TOPIC,
        "partitions": PARTITIONS,
        "directory": str(tmp_path / "history" / "operations"),
        "rate": 200.0,
        "parameters": {"record_bytes": 128},
    }
    return ClientSettings(**{**fields, **changes})  # type: ignore[arg-type]


def start(role: str, its: ClientSettings, tmp_path: Path) -> ClientProcess:
    client = ClientProcess("log", role, its, tmp_path / "clients" / f"{its.client}.log")
    client.wait_ready(20)
    return client


def rows(history: History, f: int) -> list[dict[str, Any]]:
    return [row for row in history.logs.rows.to_pylist() if row["f"] == f]


def test_values_appended_under_load_are_read_back_whole(tmp_path: Path, bootstrap: str) -> None:
    producer = start("producer", settings(tmp_path, bootstrap, "p1", 1), tmp_path)
    consumer = start("consumer", settings(tmp_path, bootstrap, "c1", 2), tmp_path)
    reader = start("reader", settings(tmp_path, bootstrap, "r1", 3), tmp_path)
    for client in (producer, consumer):
        client.start()
    assert producer.first_ack.wait(60)
    while producer.counts.ok < 100:
        assert producer.alive
    for client in (producer, consumer):
        client.stop()
    assert [client.wait_stopped(60) for client in (producer, consumer)] == [0, 0]
    reader.phase("final")
    answers = [reader.read_all(partition, 60.0) for partition in range(PARTITIONS)]
    for client in (producer, consumer, reader):
        client.close()

    history = read_run(tmp_path)
    acked = {row["value"]: (row["partition"], row["offset"]) for row in rows(history, APPEND) if row["type"] == OK}
    assert all(answer.complete for answer in answers)
    assert sum(answer.end for answer in answers) == len(acked) >= 100
    final = {
        value: (row["partition"], offset)
        for row in rows(history, READ)
        if row["phase"] == "final"
        for offset, value in zip(row["offsets"], row["values"], strict=True)
    }
    assert final == acked
    assert {decode_value(value).producer for value in acked} == {1}
    assert [row["lo"] == row["hi"] for row in rows(history, END)].count(False) == 0
    assert history.unfinished == 0


def test_records_of_other_bytes_than_their_value_makes_are_read_as_no_value(tmp_path: Path, bootstrap: str) -> None:
    value, topic = encode_value(1, 8, 0), "bytes"
    whole = record_bytes(value, 128)
    sender = Producer({"bootstrap.servers": bootstrap})
    sender.produce(topic, whole, partition=0)
    sender.flush(10)
    for content, extra in (
        (whole[:100] + b"x" + whole[101:], {}),
        (whole[:8] + bytes(120), {}),
        (b"tiny", {}),
        (whole, {"key": b"k"}),
        (whole, {"headers": {"h": b"x"}}),
    ):
        sender.produce(topic, content, partition=0, **extra)
        sender.flush(10)
    reader = start("reader", settings(tmp_path, bootstrap, "r8", 8, topic=topic), tmp_path)
    assert reader.read_all(0, 60.0).complete
    reader.close()
    read = [seen for row in rows(read_run(tmp_path), READ) for seen in row["values"]]
    assert read == [value] + [NOT_A_VALUE] * 5


def test_an_append_without_an_answer_is_info(tmp_path: Path) -> None:
    closed_port = "127.0.0.1:1"
    its = settings(tmp_path, closed_port, "p9", 9, message_timeout_s=0.3)
    producer = start("producer", its, tmp_path)
    results = producer.append(0, acks=-1, count=3, timeout_s=0.3)
    producer.close()
    assert [result.outcome for result in results] == ["info"]
    assert [row["type"] for row in rows(read_run(tmp_path), APPEND)] == [INFO]


def test_a_killed_client_is_named_with_its_log(tmp_path: Path, bootstrap: str) -> None:
    producer = start("producer", settings(tmp_path, bootstrap, "p5", 5), tmp_path)
    producer.kill()
    with pytest.raises(ClientError, match=r"client p5 ended with -9; it printed nothing"):
        producer.append(0, acks=-1, count=1, timeout_s=1)


def test_an_unknown_command_is_reported(tmp_path: Path, bootstrap: str) -> None:
    reader = start("reader", settings(tmp_path, bootstrap, "r7", 7), tmp_path)
    reader.start()
    reader.phase("final")
    reader.close()
    assert reader.trouble == ["a reader does not know the command 'start'"]
