"""Effect of ten thousand idle connections on three brokers: latency, memory, and the recovery of a killed broker.

    python -m benchmarks.idle_connections [--connections 10000] [--seconds 5] [--directory DIR]

Each connection sends one ApiVersions request and is then idle; a closed one reconnects at once, as clients do. The same
load runs without and then with these connections, in one process.
"""

import argparse
import asyncio
import contextlib
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.load_client import LoadClient, ask, create_topic, leader_address, produce_frame, wait_for_topic
from broker.protocol.api import ApiKey, encode_request
from broker.protocol.messages.cluster_apis import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker.clients.harness import Cluster, cluster

PER_SECOND = 1_000
TOPIC = "load"
AGAIN_S = 0.05
AT_ONCE = 200
"""Concurrent connection attempts; few enough for a listener's backlog."""
SPARE = 500
"""Descriptors of a process that are not for connections."""
HELLO = bytes(encode_request(ApiVersionsRequest(), 0, 1, "idle"))


class Idle:
    """Clients that connect, send one request and stay idle. `lost` counts closed connections."""

    def __init__(self) -> None:
        self.connected = 0
        self.lost = 0
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []

    async def add(self, ports: list[int], count: int) -> None:
        """Open `count` more connections, distributed over the ports, and return when they are open."""
        wanted = self.connected + count
        self._tasks += [asyncio.create_task(self._stay(ports[number % len(ports)])) for number in range(count)]
        await self.all_connected(wanted)

    async def all_connected(self, count: int) -> None:
        while self.connected < count:  # noqa: ASYNC110 - thousands of tasks change it
            await asyncio.sleep(AGAIN_S)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _stay(self, port: int) -> None:
        while True:
            async with self._turns:
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 12)
                    writer.write(HELLO)
                    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                except (OSError, asyncio.IncompleteReadError):
                    await asyncio.sleep(AGAIN_S)
                    continue
            self.connected += 1
            try:
                with contextlib.suppress(OSError):
                    await reader.read(1)
            finally:
                self.connected -= 1
                writer.close()
            self.lost += 1


async def load(port: int, seconds: float) -> str:
    """Single records by `acks=all` at a fixed rate, then as fast as they are answered."""
    frame = produce_frame(TOPIC, -1, 100, 1)
    paced, fast = LoadClient(TOPIC, frame, 256), LoadClient(TOPIC, frame, 512)
    for client in (paced, fast):
        await asyncio.get_running_loop().create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
    await paced.send_at(PER_SECOND, seconds)
    began = time.perf_counter()
    await fast.send_for(seconds)
    rate = fast.answered / (time.perf_counter() - began)
    paced.close()
    fast.close()
    quantiles = statistics.quantiles(paced.latencies, n=100, method="inclusive")
    return (
        f"p50 {quantiles[49] * 1000:.2f} ms, p99 {quantiles[98] * 1000:.2f} ms at {PER_SECOND}/s; {rate:,.0f} records/s"
    )


async def in_sync(port: int, wanted: Callable[[int], bool]) -> None:
    """Wait until the topic has the given number of in-sync replicas."""
    while True:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        metadata = await ask(port, request, ApiKey.METADATA, 9)
        assert isinstance(metadata, MetadataResponse)
        if metadata.topics and wanted(len(metadata.topics[0].partitions[0].isr_nodes)):
            return
        await asyncio.sleep(AGAIN_S)


async def there_and_back(nodes: Cluster, leader: int) -> str:
    """Kill a follower's process, start it again, and measure the time until it is in sync."""
    follower = next(broker for broker in nodes.brokers.values() if broker.port != leader)
    size = len(nodes.brokers)
    follower.kill()
    await in_sync(leader, lambda now: now < size)
    began = time.monotonic()
    follower.start()
    await in_sync(leader, lambda now: now == size)
    return f"a killed broker is in sync again {time.monotonic() - began:.2f} s after its start"


def memory(nodes: Cluster) -> str:
    return "/".join(f"{broker.resident_bytes() / 1e6:.0f}" for broker in nodes.brokers.values()) + " MB"


async def measure(nodes: Cluster, connections: int, seconds: float) -> None:
    ports = [broker.port for broker in nodes.brokers.values()]
    await create_topic(ports[0], TOPIC, len(ports))
    leader = await leader_address(ports, TOPIC)
    await wait_for_topic(leader, TOPIC, produce_frame(TOPIC, -1, 100, 1))
    print(f"without: {await load(leader, seconds)}; {await there_and_back(nodes, leader)}; {memory(nodes)}")
    idle = Idle()
    try:
        began = time.monotonic()
        await idle.add(ports, connections)
        print(f"{connections} connected in {time.monotonic() - began:.1f} s; {memory(nodes)}")
        print(f"with: {await load(leader, seconds)}", end="", flush=True)
        assert not idle.lost, f"{idle.lost} were cut off"
        print(f"; {await there_and_back(nodes, leader)}", end="", flush=True)
        began = time.monotonic()
        await idle.all_connected(connections)
        print(
            f", all clients are back {time.monotonic() - began:.2f} s later ({idle.lost} were cut off); {memory(nodes)}"
        )
    finally:
        await idle.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each load (default: %(default)s)")
    parser.add_argument("--directory", type=Path, default=None, help="where the brokers' data is written")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < options.connections + SPARE:
        parser.error(f"{options.connections} connections need as many descriptors; ulimit -Hn is {hard}: raise it")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    bounds = {"max_connections": options.connections, "min_insync_replicas": 2}
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        cluster(Path(directory), 3, **bounds) as nodes,
    ):
        asyncio.run(measure(nodes, options.connections, options.seconds))


if __name__ == "__main__":
    main()
