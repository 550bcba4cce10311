"""Recovery time of brokers with very many partitions after a kill -9 of all of them.

    python -m benchmarks.unclean_start [--partitions 5000] [--nodes 1] [--directory DIR]

Every partition has `--nodes` replicas and some records. Times start with the processes: until each broker reports that
it serves, until each partition has a leader, and until all replicas of each partition have acknowledged another record.
"""

import argparse
import asyncio
import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.load_client import PRODUCE_VERSION, ask, create_topic
from broker.errors import ErrorCode
from broker.protocol.api import ApiKey
from broker.protocol.messages.cluster_apis import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.protocol.messages.producer_apis import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from broker.protocol.records import Record, build_batch
from tests.broker.clients.harness import Cluster, cluster

PER_TOPIC = 500
DEADLINE_S = 600.0
AGAIN_S = 0.1
BATCH = build_batch([Record(number, 1_700_000_000_000, None, bytes(100)) for number in range(10)])
Partition = tuple[str, int]


def topics(partitions: int) -> Iterator[tuple[str, int]]:
    """Names and partition counts of the topics; many topics, so that no single request is expensive."""
    for number, first in enumerate(range(0, partitions, PER_TOPIC)):
        yield f"many-{number}", min(PER_TOPIC, partitions - first)


async def leaders(port: int, partitions: int) -> dict[int, list[Partition]]:
    """Wait until all partitions have a leader, and return the partitions of each leader's port."""
    names = [MetadataRequestTopic(name=name) for name, _ in topics(partitions)]
    give_up = time.monotonic() + DEADLINE_S
    while True:
        metadata = await ask(port, MetadataRequest(topics=names), ApiKey.METADATA, 9)
        assert isinstance(metadata, MetadataResponse)
        ports = {broker.node_id: broker.port for broker in metadata.brokers}
        found: dict[int, list[Partition]] = {}
        for topic, partition in ((it, part) for it in metadata.topics for part in it.partitions):
            if partition.leader_id in ports:
                found.setdefault(ports[partition.leader_id], []).append((topic.name or "", partition.partition_index))
        if sum(map(len, found.values())) == partitions:
            return found
        assert time.monotonic() < give_up, "not every partition has a leader"
        await asyncio.sleep(AGAIN_S)


async def write(port: int, partitions: list[Partition]) -> list[Partition]:
    """Send one batch to each partition; return those that did not acknowledge it with acks=all."""
    data = [
        TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=index, records=BATCH) for _, index in its]
        )
        for topic, its in itertools.groupby(sorted(partitions), lambda it: it[0])
    ]
    response = await ask(
        port, ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data), ApiKey.PRODUCE, PRODUCE_VERSION
    )
    assert isinstance(response, ProduceResponse)
    answers = ((topic.name, answer) for topic in response.responses for answer in topic.partition_responses)
    return [(topic, answer.index) for topic, answer in answers if answer.error_code != ErrorCode.NONE]


async def write_to_all(port: int, partitions: int) -> None:
    """Wait until each partition has acknowledged a batch."""
    give_up = time.monotonic() + DEADLINE_S
    left: set[Partition] | None = None
    while left is None or left:
        missing: list[Partition] = []
        for leader, its in (await leaders(port, partitions)).items():
            wanted = [it for it in its if left is None or it in left]
            for first in range(0, len(wanted), PER_TOPIC):
                missing += await write(leader, wanted[first : first + PER_TOPIC])
        left = set(missing)
        assert time.monotonic() < give_up, f"{len(left)} partitions acknowledge nothing"
        if left:
            await asyncio.sleep(AGAIN_S)


async def fill(nodes: Cluster, partitions: int) -> None:
    port = nodes.brokers[1].port
    for name, count in topics(partitions):
        await create_topic(port, name, len(nodes.brokers), count)
    await write_to_all(port, partitions)


def measure(nodes: Cluster, partitions: int) -> None:
    began = time.monotonic()
    asyncio.run(fill(nodes, partitions))
    print(f"{partitions} partitions, {len(nodes.brokers)} replicas each: made and written to in {since(began)}")
    for broker in nodes.brokers.values():
        broker.kill()
    began = time.monotonic()
    nodes.start()
    print(f"after a kill -9 of all: serving after {since(began)}", end="", flush=True)
    port = nodes.brokers[1].port
    asyncio.run(leaders(port, partitions))
    print(f", all led after {since(began)}", end="", flush=True)
    asyncio.run(write_to_all(port, partitions))
    memory = max(broker.resident_bytes() for broker in nodes.brokers.values()) / 1e6
    print(f", a record acknowledged by all of each after {since(began)}; a broker has {memory:.0f} MB")


def since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=None, help="where the brokers' data is written")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        cluster(Path(directory), options.nodes, min_insync_replicas=min(2, options.nodes)) as nodes,
    ):
        measure(nodes, options.partitions)


if __name__ == "__main__":
    main()
