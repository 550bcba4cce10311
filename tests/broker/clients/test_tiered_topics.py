"""Real brokers with a directory as object store: clients read a topic with its first records only there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker.clients.harness import PATIENCE, Cluster, cluster, until
from tests.broker.clients.test_three_brokers import produce

TIERED = {
    "remote_log_storage_system_enable": "true",
    "remote_log_manager_task_interval_ms": 200,
    "log_retention_check_interval_ms": 200,
    "rlmm_config_remote_log_metadata_topic_num_partitions": 2,
    "min_insync_replicas": 2,
}
CONFIG = {"remote.storage.enable": "true", "segment.bytes": "65536", "local.retention.bytes": "1"}
VALUES = [b"%06d " % number + b"v" * 500 for number in range(2_000)]


@contextmanager
def tiered_cluster(directory: Path, store: Path, **more: object) -> Iterator[Cluster]:
    with cluster(directory / "brokers", 3, **TIERED, rsm_config_url=f"file://{store}", **more) as nodes:
        yield nodes


def tiered_topic(nodes: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.create_topics([NewTopic("log", 1, 3, config=CONFIG)])["log"].result(PATIENCE)
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all", "batch.size": 16_384})
    assert len(produce(producer, "log", VALUES)) == len(VALUES)


def consumed(nodes: Cluster, start: int = 0) -> list[bytes]:
    """All values from an offset on."""
    consumer = Consumer({"bootstrap.servers": nodes.bootstrap, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition("log", 0, start)])
    found: list[bytes] = []

    def all_found() -> bool:
        for message in consumer.consume(500, 1.0):
            assert message.error() is None, message.error()
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
        return len(found) >= len(VALUES) - start

    until(all_found, "all records are consumed")
    consumer.close()
    return found


def local_bytes(nodes: Cluster) -> int:
    """The bytes of the smallest local log."""
    logs = (broker.log_dir / "log-0" for broker in nodes.brokers.values())
    return min(sum(map(size_of, log.glob("*.log"))) for log in logs)


def size_of(path: Path) -> int:
    """The size of a file; 0 if the broker has removed it since it was listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.rotating(4, among="brokers with tiered storage")
def test_clients_read_records_that_are_only_in_the_directory(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    with tiered_cluster(tmp_path, store) as nodes:
        tiered_topic(nodes)
        until(lambda: local_bytes(nodes) < 200_000, "local copies are removed")
        assert sum(path.stat().st_size for path in store.rglob("*.log")) > 800_000
        assert consumed(nodes) == VALUES
        assert consumed(nodes, 777) == VALUES[777:]


@pytest.mark.rotating(4, among="brokers with tiered storage")
@pytest.mark.parametrize("damage", ["missing", "a file"])
def test_with_an_unusable_directory_the_topic_is_available_and_the_reason_is_logged_once(
    tmp_path: Path, damage: str
) -> None:
    store = tmp_path / "store"
    if damage == "a file":
        store.write_text("this is a file")
    with tiered_cluster(tmp_path, store) as nodes:
        tiered_topic(nodes)
        assert consumed(nodes) == VALUES
        logs = [broker.output for broker in nodes.brokers.values()]
        until(lambda: any("the object store fails" in log.read_text() for log in logs), "the failure is logged")
        assert consumed(nodes) == VALUES
        for log in logs:
            lines = [line for line in log.read_text().splitlines() if "the object store fails (put)" in line]
            assert len(lines) <= 1
        assert local_bytes(nodes) > 1_000_000
