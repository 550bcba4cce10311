"""Kafka Streams counts words on three brokers, where Maven brings its jars."""

import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import systems.maven as maven
from systems.lock_file import Coordinate
from tests.broker.clients.harness import ROOT, cluster, until
from tests.broker.clients.kafkas_tools import VERSION

STREAMS = Coordinate.parse(f"org.apache.kafka:kafka-streams:{VERSION}")
SOURCE = ROOT / "tests/compatibility/java/WordCount.java"
LINES = 100
WORDS = {"one": LINES, "two": 2 * LINES, "three": 3 * LINES}


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka Streams, what it needs, and the compiled program."""
    absent = [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]
    if absent:
        pytest.skip(f"there is no {', '.join(absent)}")
    directory = tmp_path_factory.mktemp("streams")
    try:
        jars = maven.download([STREAMS], directory / "maven", lambda _: None, dependencies=True)
    except maven.MavenError as error:
        pytest.skip(f"Maven did not bring {STREAMS}: {error}")
    path = ":".join(map(str, jars.values()))
    subprocess.run(["javac", "-cp", path, "-d", str(directory), str(SOURCE)], check=True)
    return f"{directory}:{path}"


@contextmanager
def word_count(class_path: str, *arguments: str) -> Iterator[list[str]]:
    """The program while it runs, and what it has printed so far."""
    command = ["java", "-Xmx256m", "-cp", class_path, "WordCount", *arguments]
    said: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        output = process.stdout
        listener = threading.Thread(target=lambda: said.extend(output), daemon=True)
        listener.start()
        try:
            yield said
            process.stdin.close()
            process.wait(120)
        finally:
            process.kill()
            listener.join(10)


@pytest.mark.rotating(3, among="real brokers")
def test_words_are_counted_at_least_once(tmp_path: Path, class_path: str) -> None:
    with cluster(tmp_path, 3) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        for created in admin.create_topics([NewTopic("lines", 3, 3), NewTopic("counts-out", 3, 3)]).values():
            created.result(60)
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all"})
        for _ in range(LINES):
            producer.produce("lines", value=b"one two two three three three")
        assert producer.flush(60) == 0
        reader = Consumer({"bootstrap.servers": nodes.bootstrap, "group.id": "counts", "auto.offset.reset": "earliest"})
        reader.subscribe(["counts-out"])
        counts: dict[str, int] = {}

        def counted() -> bool:
            assert not any(line.startswith("UNCAUGHT") for line in said), said
            for message in reader.consume(100, 0.5):
                assert message.error() is None
                word, count = message.key() or b"", message.value() or b""
                counts[word.decode()] = struct.unpack(">q", count)[0]
            return counts == WORDS

        with word_count(class_path, nodes.bootstrap, "lines", "counts-out", str(tmp_path / "state")) as said:
            until(lambda: "STATE RUNNING\n" in said, "Kafka Streams runs")
            until(counted, f"the counts are {WORDS}")
        reader.close()
        assert "STATE NOT_RUNNING\n" in said
        internal = admin.list_topics(timeout=60).topics
        assert {"word-count-counts-changelog", "word-count-counts-repartition"} <= internal.keys()
