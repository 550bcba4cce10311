"""Apache Kafka's command-line tools of version 4.3 on a topic with its first segments only in remote storage."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker.clients.harness import PATIENCE, cluster, free_ports, until
from tests.broker.clients.kafkas_tools import jars, needed, run_tool

VERSION = "4.3.1"
TOPIC = "tiered"
RECORDS, SIZE = 40, 100_000
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "retention.ms": "-1",
    "local.retention.bytes": "1000000",
}
COMMON = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
    "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
    "remote.log.manager.task.interval.ms": 500,
    "log.retention.check.interval.ms": 500,
    "offsets.topic.replication.factor": 1,
}
TIMES = ("-1", "-2", "-4", "-5", "-6")

pytestmark = pytest.mark.thorough


@contextmanager
def our_broker(directory: Path) -> Iterator[str]:
    """The address of a broker with tiered storage."""
    (directory / "store").mkdir()
    with cluster(directory, 1, **COMMON, **{"rsm.config.url": f"file://{directory / 'store'}"}) as nodes:
        yield nodes.bootstrap


@contextmanager
def kafkas_broker(directory: Path) -> Iterator[str]:
    """The same for a broker of Apache Kafka, with the remote storage of its own tests."""
    client, controller = free_ports(2)
    properties = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": directory / "log",
        "log.initial.task.delay.ms": 500,
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": directory / "store",
        "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": 500,
        **COMMON,
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    environment = {**os.environ, "CLASSPATH": f"{jars(VERSION)}/*"}
    java = ["java", "-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    made = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(file)]
    subprocess.run(made, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(file)], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: listens(client), "Apache Kafka listens")
        yield f"127.0.0.1:{client}"
    finally:
        process.kill()
        process.wait(PATIENCE)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fill(bootstrap: str) -> None:
    """Create the topic and write one record per batch, so that all brokers have the same segments."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=TIERED)])[TOPIC].result(PATIENCE)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"{number:08d}".encode() * (SIZE // 8))
    assert producer.flush(PATIENCE) == 0


def offsets(bootstrap: str) -> dict[str, int]:
    """What kafka-get-offsets prints for each special time."""
    return {time: offset(bootstrap, time) for time in TIMES}


def offset(bootstrap: str, time: str) -> int:
    asked = ("--bootstrap-server", bootstrap, "--topic", TOPIC, "--time", time)
    printed = run_tool("org.apache.kafka.tools.GetOffsetShell", *asked, version=VERSION)
    (line,) = [line for line in printed.splitlines() if line.startswith(f"{TOPIC}:0:")]
    return int(line.rpartition(":")[2] or -1)


def removed_local_segments(directory: Path) -> bool:
    """Whether local retention has removed what it does not keep: all but the last closed segment at most."""
    found = list(directory.rglob(f"{TOPIC}-0/*.log"))
    return 0 < len(found) <= 2


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of our broker, after local retention."""
    needed(VERSION)
    directory = tmp_path_factory.mktemp("ours")
    with our_broker(directory) as bootstrap:
        fill(bootstrap)
        until(lambda: removed_local_segments(directory / "n1"), "local segments are removed")
        yield bootstrap


@pytest.mark.conforms("K1023-2")
def test_get_offsets_prints_the_borders_of_remote_storage_as_apache_kafka_does(filled: str, tmp_path: Path) -> None:
    ours = offsets(filled)
    assert (ours["-2"], ours["-1"]) == (0, RECORDS)
    assert 0 < ours["-4"] <= ours["-6"] == ours["-5"] + 1 < RECORDS
    with kafkas_broker(tmp_path) as theirs:
        fill(theirs)
        until(lambda: removed_local_segments(tmp_path / "log"), "Apache Kafka removes local segments")
        assert offsets(theirs) == ours


def test_the_console_consumer_reads_from_offset_0_across_the_border(filled: str) -> None:
    asked = ("--topic", TOPIC, "--partition", "0", "--offset", "0", "--max-messages", str(RECORDS))
    printed = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", filled, *asked, "--timeout-ms", "60000"),
        version=VERSION,
    )
    lines = [line for line in printed.splitlines() if len(line) == SIZE]
    assert [int(line[:8]) for line in lines] == list(range(RECORDS))
