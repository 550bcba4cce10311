"""A full disk: the broker reports it and exits, and records acknowledged before are there."""

import resource
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker.clients.harness import PATIENCE, cluster
from tests.broker.clients.test_one_broker import read_all

GAVE_UP = 70
MOST_BYTES = 1 << 20  # a file of the broker may not grow beyond this


def test_a_full_disk_ends_the_broker_with_a_clear_message(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        broker = nodes.brokers[1]
        assert broker.process is not None
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        admin.create_topics([NewTopic("log", 1, 1)])["log"].result(PATIENCE)
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
        acknowledged: list[bytes] = []

        def delivered(error: object, message: object) -> None:
            if error is None:
                acknowledged.append(message.value())  # type: ignore[attr-defined]

        producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all", "message.timeout.ms": 20_000})
        for number in range(100):
            producer.produce("log", b"%04d" % number + bytes(20_000), partition=0, on_delivery=delivered)
            producer.poll(0)
        assert broker.process.wait(PATIENCE) == GAVE_UP
        assert "gives up: the disk failed: " in broker.output.read_text()
        assert "File too large" in broker.output.read_text()
        producer.purge()
        producer.flush(PATIENCE)

        assert 0 < len(acknowledged) < 100
        broker.output.write_bytes(b"")
        broker.start()
        broker.wait_ready()
        assert read_all(nodes.bootstrap, "log", len(acknowledged))[: len(acknowledged)] == acknowledged
