"""Duration of requests about thousands of topics, by a client with its default timeouts, to three brokers.

    python -m benchmarks.many_topics [--count 3000] [--directory DIR]

`--count` topics of one partition with three replicas, and one topic with as many partitions, are created, described,
configured, enlarged and deleted. Each line has the seconds until the client has all answers (`answered`), until every
partition has a leader and all of its replicas in sync (`in_sync`), or until no broker has its files (`deleted`), the
processor time of all brokers meanwhile, and the errors by their text.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.broker.clients.harness import Cluster, cluster, until

PATIENCE_S = 600.0
REPLICAS = 3
WIDE = "wide"
Answers = Mapping[Any, Future[Any]]


def errors_of(answers: Answers) -> dict[str, int]:
    """How often each error was answered."""
    errors: Counter[str] = Counter()
    for answer in answers.values():
        try:
            answer.result(PATIENCE_S)
        except KafkaException as error:
            errors[str(error)] += 1
    return dict(errors)


def processor_s(nodes: Cluster) -> float:
    """Processor time of all brokers so far, in seconds."""
    ticks = 0
    for broker in nodes.brokers.values():
        assert broker.process is not None
        fields = Path(f"/proc/{broker.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(nodes: Cluster, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    names = [f"topic-{number}" for number in range(count)]
    change = ConfigEntry("retention.ms", "86400001", incremental_operation=AlterConfigOpType.SET)

    def in_sync(partitions: int) -> bool:
        topics = admin.list_topics(timeout=PATIENCE_S).topics
        states = [state for topic in topics.values() for state in topic.partitions.values()]
        return len(states) == partitions and all(len(state.isrs) == REPLICAS for state in states)

    def deleted() -> bool:
        logs = [broker.log_dir for broker in nodes.brokers.values()]
        return not any(name.startswith(("topic-", f"{WIDE}-")) for log in logs for name in os.listdir(log))

    def step(name: str, request: Callable[[], Answers], then: str, condition: Callable[[], bool]) -> None:
        started, processor_before = time.monotonic(), processor_s(nodes)
        errors = errors_of(request())
        answered = time.monotonic() - started
        until(condition, then, PATIENCE_S)
        row = {"case": name, "answered": round(answered, 2), then: round(time.monotonic() - started, 2)}
        print(json.dumps({**row, "processor": round(processor_s(nodes) - processor_before, 1), "errors": errors}))
        sys.stdout.flush()

    def resources(**options: Any) -> list[ConfigResource]:
        return [ConfigResource(ResourceType.TOPIC, name, **options) for name in names]

    steps: list[tuple[str, Callable[[], Answers], int]] = [
        ("create topics", lambda: admin.create_topics([NewTopic(name, 1, REPLICAS) for name in names]), count),
        ("create one topic", lambda: admin.create_topics([NewTopic(WIDE, count, REPLICAS)]), 2 * count),
        ("describe configs", lambda: admin.describe_configs(resources()), 2 * count),
        (
            "alter configs",
            lambda: admin.incremental_alter_configs(resources(incremental_configs=[change])),
            2 * count,
        ),
        ("enlarge topics", lambda: admin.create_partitions([NewPartitions(name, 2) for name in names]), 3 * count),
    ]
    for name, request, partitions in steps:
        step(name, request, "in_sync", lambda partitions=partitions: in_sync(partitions))  # type: ignore[misc]
    step("delete topics", lambda: admin.delete_topics([*names, WIDE]), "deleted", deleted)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_topics", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=3_000, help="number of topics (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where the data is kept (default: a temporary one)")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="brownout-bench-", dir=options.directory))
    try:
        with cluster(directory / "brokers", 3, min_insync_replicas=2) as nodes:
            measure(nodes, options.count)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
