"""Apache Kafka's DumpLogSegments reads this broker's files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.protocol.uuids import parse_id
from tests.broker.clients.harness import PATIENCE, cluster
from tests.broker.clients.kafkas_tools import dump, needed

FIRST = "00000000000000000000.log"


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that had a topic with records."""
    needed()
    with cluster(tmp_path_factory.mktemp("dumped")) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        topic = NewTopic("dumped", 2, 1, config={"min.insync.replicas": "1"})
        admin.create_topics([topic])["dumped"].result(PATIENCE)
        producer = Producer({"bootstrap.servers": nodes.bootstrap})
        for number in range(10):
            producer.produce("dumped", b"value-%d" % number, key=b"key-%d" % number, partition=0)
        assert producer.flush(PATIENCE) == 0
        assert nodes.brokers[1].terminate() == 0
        return nodes.brokers[1].log_dir


def records(text: str) -> list[dict[str, Any]]:
    """The metadata records that a dump shows."""
    return [json.loads(found) for found in re.findall(r"payload: (\{.*\})$", text, re.MULTILINE)]


@pytest.mark.conforms("H32", "K595-21", "K595-46")
def test_kafka_reads_our_metadata_log(left_behind: Path) -> None:
    text = dump(left_behind / "__cluster_metadata-0" / FIRST, "--cluster-metadata-decoder")
    assert "rror" not in text, text
    (change,) = re.findall(r"LeaderChange: (\{.*\})", text)
    assert json.loads(change)["leaderId"] == 1
    found = records(text)
    types = {record["type"] for record in found}
    assert {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"} <= types
    configs = [record["data"] for record in found if record["type"] == "CONFIG_RECORD"]
    (stored,) = re.findall(r"cluster.id=(.*)", (left_behind / "meta.properties").read_text())
    cluster_id = {"resourceType": 4, "resourceName": "", "name": "cluster.id", "value": stored}
    topic = {"resourceType": 2, "resourceName": "dumped", "name": "min.insync.replicas", "value": "1"}
    assert configs == [cluster_id, topic]
    partitions = [record["data"] for record in found if record["type"] == "PARTITION_RECORD"]
    assert [(it["partitionId"], it["leader"], it["isr"]) for it in partitions] == [(0, 1, [1]), (1, 1, [1])]


def test_kafka_reads_our_partitions(left_behind: Path) -> None:
    text = dump(left_behind / "dumped-0" / FIRST, "--print-data-log")
    assert re.findall(r"payload: (.*)$", text, re.MULTILINE) == [f"value-{number}" for number in range(10)]
    assert "isvalid: false" not in text


def test_no_file_has_a_name_of_kafkas_and_another_format(left_behind: Path) -> None:
    assert not [*left_behind.rglob("*.index"), *left_behind.rglob("*.timeindex")]
    meta = dict(line.split("=") for line in (left_behind / "meta.properties").read_text().split())
    parse_id(meta["directory.id"])
    parse_id(meta["cluster.id"])
    assert (meta["version"], meta["node.id"]) == ("1", "1")


def test_kafka_reads_our_snapshots(tmp_path: Path) -> None:
    needed()
    with cluster(tmp_path, metadata_log_max_record_bytes_between_snapshots=300) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        for number in range(5):
            topic = NewTopic(f"t{number}", 1, 1, config={"retention.ms": "77"})
            admin.create_topics([topic])[f"t{number}"].result(PATIENCE)
        assert nodes.brokers[1].terminate() == 0
        (snapshot,) = (nodes.brokers[1].log_dir / "__cluster_metadata-0").glob("*.checkpoint")
        text = dump(snapshot, "--cluster-metadata-decoder")
        assert "rror" not in text, text
        assert "SnapshotHeader" in text
        assert "SnapshotFooter" in text
        topics = [record["data"]["name"] for record in records(text) if record["type"] == "TOPIC_RECORD"]
        assert topics == [f"t{number}" for number in range(len(topics))]
        assert topics
