"""A broker with an unreachable S3 service: its topics are available, and its credentials are in no output."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.broker.clients.harness import PATIENCE, cluster, free_ports, until
from tests.broker.tiered.s3_service import traces_of_credentials, write_credentials

pytest.importorskip("obstore", reason="the extra [s3] is not installed")

TOPIC = "tiered"


@pytest.mark.rotating(4, among="brokers with tiered storage")
def test_an_unreachable_service_is_reported_without_credentials(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    file = tmp_path / "credentials"
    write_credentials(file)
    settings = {
        "remote.log.storage.system.enable": "true",
        "rsm.config.url": "s3://bucket/prefix",
        "rsm.config.endpoint": f"http://127.0.0.1:{port}",
        "rsm.config.credentials.file": file,
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "remote.log.manager.task.interval.ms": 100,
        "log.retention.check.interval.ms": 100,
    }
    with cluster(tmp_path / "brokers", 1, **settings) as nodes:
        broker = nodes.brokers[1]
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        config = {"remote.storage.enable": "true", "segment.bytes": "4096", "local.retention.bytes": "1"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(PATIENCE)
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "batch.num.messages": 1})
        for number in range(20):
            producer.produce(TOPIC, b"%04d" % number * 250)
        assert producer.flush(PATIENCE) == 0
        until(lambda: "the object store fails (put)" in broker.output.read_text(), "the failure is reported")
        assert [each[:4] for each in values(nodes.bootstrap, 20)] == [b"%04d" % number for number in range(20)]
        resource = ConfigResource(ResourceType.BROKER, "1")
        described = str(admin.describe_configs([resource])[resource].result(PATIENCE))
        shown = [broker.output.read_text(), broker.events.read_text(), described]
    assert shown[0].count("the object store fails (put)") == 1
    for text in shown:
        assert not traces_of_credentials(text.encode())


def values(bootstrap: str, count: int) -> list[bytes]:
    """The first records of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
    consumer.close()
    return found
