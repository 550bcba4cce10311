"""Stalls of a broker's event loop: while a thousand partitions are created, and during one expensive request.

    python -m benchmarks.loop_stalls [--partitions 1000] [--entries 20000] [--directory DIR]

A client repeatedly sends ApiVersions to every broker. The longest time without an answer is the time that a heartbeat,
a vote or a lease would have waited. The limit is a quarter of `broker.lease.ms` (2,000).
"""

import argparse
import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from benchmarks.load_client import create_topic
from broker.protocol.api import encode_request
from broker.protocol.messages.cluster_apis import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from broker.protocol.messages.config_apis import DescribeConfigsRequest, DescribeConfigsResource
from broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.messages.offset_apis import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.protocol.schema import Message, Topic
from broker.server.client import PeerConnector
from tests.broker.clients.harness import Cluster, cluster

PAUSE_S = 0.005
TOPIC = "many"


class Watch:
    """Sends requests to brokers continuously; `longest_s` is the longest time between a request and its answer."""

    def __init__(self, ports: Iterable[int]) -> None:
        self.longest_s = 0.0
        self._ports = {number: ("127.0.0.1", port) for number, port in enumerate(ports, 1)}

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        peers = PeerConnector(-1, self._ports, response_max_bytes=1 << 20)
        tasks = [asyncio.create_task(self._watch(peers, number)) for number in self._ports]
        await asyncio.sleep(0.2)
        self.longest_s = 0.0
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            peers.close()

    async def _watch(self, peers: PeerConnector, number: int) -> None:
        while True:
            asked_at = time.monotonic()
            await peers.request(number, ApiVersionsRequest(), 60.0)
            self.longest_s = max(self.longest_s, time.monotonic() - asked_at)
            await asyncio.sleep(PAUSE_S)


def large_requests(entries: int) -> dict[str, tuple[Message, int]]:
    """For each API that loops over a client's entries, a frame with this many entries."""
    one = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * entries
    epochs = [OffsetForLeaderPartition(leader_epoch=1)] * entries
    resources = [DescribeConfigsResource(resource_type=2, resource_name=f"no-{n}") for n in range(entries)]
    known = [DescribeConfigsResource(resource_type=4, resource_name="1")] * entries
    fetched = [FetchPartition(partition=number, partition_max_bytes=1) for number in range(entries - 1)]
    named = [MetadataRequestTopic(name=f"no-{n}") for n in range(entries)]
    return {
        "ListOffsets": (
            ListOffsetsRequest(replica_id=-1, topics=[Topic(name=TOPIC, partitions=one)]),
            6,
        ),
        "OffsetForLeaderEpoch": (
            OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=epochs)]),
            4,
        ),
        "DescribeConfigs": (DescribeConfigsRequest(resources=resources), 4),
        "DescribeConfigs, one broker": (DescribeConfigsRequest(resources=known), 4),
        "Metadata": (MetadataRequest(topics=named), 12),
        "Metadata of all": (MetadataRequest(topics=None), 12),
        "Fetch": (
            FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=TOPIC, partitions=fetched)]),
            12,
        ),
    }


def events(nodes: Cluster, name: str) -> int:
    """Number of occurrences of an event in the traces of all brokers."""
    lines = (
        line for broker in nodes.brokers.values() for line in broker.events.read_text(encoding="utf-8").splitlines()
    )
    return sum(json.loads(line)["event"] == name for line in lines)


async def until_roles(nodes: Cluster, count: int) -> None:
    """Wait until the brokers have taken `count` roles in partitions."""
    while await asyncio.to_thread(events, nodes, "partition_role") < count:  # noqa: ASYNC110 - read from files
        await asyncio.sleep(0.2)


async def answered(port: int, frame: bytes) -> None:
    """Send a frame and read its answer without decoding it, so that this process does not stall."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(frame)
    left = int.from_bytes(await reader.readexactly(4), "big")
    while left:
        left -= len(await reader.read(min(left, 1 << 20)))
    writer.close()


async def creation(nodes: Cluster, partitions: int) -> None:
    ports = [broker.port for broker in nodes.brokers.values()]
    watch = Watch(ports)
    before = {name: events(nodes, name) for name in ("controller_active", "session_expired")}
    async with watch.watching():
        quiet_s = watch.longest_s
        await asyncio.sleep(1.0)
        quiet_s, watch.longest_s = watch.longest_s, 0.0
        started = time.monotonic()
        await create_topic(ports[0], TOPIC, 3, partitions)
        await until_roles(nodes, 3 * partitions)
        took_s = time.monotonic() - started
    changes = {name: events(nodes, name) - count for name, count in before.items()}
    print(
        f"{partitions} partitions on three brokers: {took_s:.1f} s; longest without an answer {watch.longest_s:.3f} s"
    )
    print(f"  at rest {quiet_s:.3f} s; new controllers {changes['controller_active']}, sessions that ended "
          f"{changes['session_expired']}")  # fmt: skip


async def frames(nodes: Cluster, entries: int, partitions: int) -> None:
    port = nodes.brokers[1].port
    await create_topic(port, TOPIC, 1, partitions)
    await until_roles(nodes, partitions)
    for name, (request, version) in large_requests(entries).items():
        frame = bytes(encode_request(request, version, 1, "stalls"))
        watch = Watch([port])
        async with watch.watching():
            started = time.monotonic()
            await answered(port, frame)
            took_s = time.monotonic() - started
        print(f"{name}, {entries} entries: {took_s:.2f} s; longest without an answer {watch.longest_s:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--directory", type=Path, default=None, help="where the brokers' data is written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        with cluster(Path(directory, "one"), 1) as nodes:
            asyncio.run(frames(nodes, options.entries, options.partitions))
        with cluster(Path(directory, "three"), 3) as nodes:
            asyncio.run(creation(nodes, options.partitions))


if __name__ == "__main__":
    main()
