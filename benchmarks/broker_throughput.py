"""Throughput and latency of the broker, with one node and with three, and with a client of negligible cost.

    python -m benchmarks.broker_throughput [--json] [--only TEXT] [--seconds S] [--directory DIR] [--first]

Every case runs twice: `cold` writes to memory and disk blocks that this run has not touched before, `warm` repeats it
on the blocks of the first run's deleted files. Compare only figures of one run; the machine is noisy. `stolen` is the
share of CPU time that the host of a virtual machine used for others, from /proc/stat: records wait in that time, so p99
includes the host. With `--first` the kernel schedules brokers and client before all other processes (SCHED_FIFO), so
that latencies at a fixed rate do not include other work. Do not use it at full speed: the kernel throttles real-time
processes that use all of the CPU time.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.load_client import LoadClient, create_topic, leader_address, produce_frame, wait_for_topic
from tests.broker.clients.harness import cluster

try:
    import uvloop

    run: Callable[[Coroutine[Any, Any, Any]], Any] = uvloop.run
except ImportError:
    run = asyncio.run


FIRST_PRIORITY = 10  # of SCHED_FIFO; every value precedes processes without it


@dataclass(frozen=True)
class Case:
    """One case: number of nodes, batch size, acks, and requests in flight."""

    name: str
    nodes: int
    acks: int
    record_bytes: int
    records_per_batch: int
    in_flight: int
    connections: int = 1
    per_second: int = 0
    """Requests per second, for latencies; 0: as fast as they are answered."""
    flush: bool = False


CASES = [
    Case("1 node, 1 KB records in 1 MB batches, acks=1", 1, 1, 1_000, 1_000, 8),
    Case("1 node, 100 B records in 64 KB batches, acks=1", 1, 1, 100, 600, 32),
    Case("1 node, single 100 B records, pipelined, acks=1", 1, 1, 100, 1, 256),
    Case("1 node, single 100 B records, one at a time, acks=1", 1, 1, 100, 1, 1),
    Case("1 node, single 100 B records, 16 connections, fsync each", 1, 1, 100, 1, 8, connections=16, flush=True),
    Case("3 nodes, 1 KB records in 1 MB batches, acks=all", 3, -1, 1_000, 1_000, 8),
    Case("3 nodes, 100 B records in 64 KB batches, acks=all", 3, -1, 100, 600, 64),
    Case("3 nodes, single 100 B records, pipelined, acks=all", 3, -1, 100, 1, 512),
    Case("3 nodes, single 100 B records, one at a time, acks=all", 3, -1, 100, 1, 1),
    Case("3 nodes, single 100 B records at 1,000/s, acks=all", 3, -1, 100, 1, 256, per_second=1_000),
]


@dataclass(frozen=True)
class Result:
    """The result of one case. Latencies are those of whole requests, in milliseconds."""

    case: str
    state: str
    requests: int
    seconds: float
    records_per_second: float
    megabytes_per_second: float
    p50_ms: float
    p99_ms: float
    broker_cpu_seconds: float
    stolen_percent: float
    """Share of the time of all processors."""


class Node(Protocol):
    """A running broker, ours or another."""

    port: int
    process: subprocess.Popen[bytes] | None


class Nodes(Protocol):
    """Brokers by id; ids start at 1."""

    @property
    def brokers(self) -> Mapping[int, Node]: ...


async def measure(case: Case, nodes: Nodes, topic: str, seconds: float) -> tuple[int, float, list[float]]:
    """Acknowledged requests, their total duration and their latencies, in seconds."""
    await create_topic(nodes.brokers[1].port, topic, case.nodes)
    port = await leader_address([broker.port for broker in nodes.brokers.values()], topic)
    await wait_for_topic(port, topic, produce_frame(topic, case.acks, 100, 1))
    frame = produce_frame(topic, case.acks, case.record_bytes, case.records_per_batch)
    clients = [LoadClient(topic, frame, case.in_flight) for _ in range(case.connections)]
    loop = asyncio.get_running_loop()
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
    started = time.perf_counter()
    if case.per_second:
        await asyncio.gather(*(client.send_at(case.per_second / len(clients), seconds) for client in clients))
    else:
        await asyncio.gather(*(client.send_for(seconds) for client in clients))
    elapsed = time.perf_counter() - started
    for client in clients:
        client.close()
    return sum(client.answered for client in clients), elapsed, [s for client in clients for s in client.latencies]


def cpu_seconds(nodes: Nodes) -> float:
    """CPU time of the brokers, in seconds."""
    total = 0.0
    for broker in nodes.brokers.values():
        assert broker.process is not None
        fields = Path(f"/proc/{broker.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / 100
    return total


def stolen_seconds() -> float:
    """CPU time that the host of this machine used for others while this machine had work, in seconds."""
    return int(Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def run_case(case: Case, state: str, directory: Path, seconds: float) -> Result:
    settings = {"log_flush_interval_messages": 1} if case.flush else {}
    if case.nodes > 1:
        settings["min_insync_replicas"] = 2
    with cluster(directory, case.nodes, **settings) as nodes:
        return load(case, nodes, "load", seconds, state)


def load(case: Case, nodes: Nodes, topic: str, seconds: float, state: str) -> Result:
    """Run the case's load on running brokers and measure it."""
    before, stolen_before = cpu_seconds(nodes), stolen_seconds()
    requests, elapsed, latencies = run(measure(case, nodes, topic, seconds))
    cpu, stolen = cpu_seconds(nodes) - before, stolen_seconds() - stolen_before
    records = requests * case.records_per_batch
    quantiles = statistics.quantiles(latencies, n=100, method="inclusive") if len(latencies) > 1 else [0.0] * 99
    return Result(
        case=case.name,
        state=state,
        requests=requests,
        seconds=round(elapsed, 3),
        records_per_second=round(records / elapsed),
        megabytes_per_second=round(records * case.record_bytes / elapsed / 1e6, 1),
        p50_ms=round(quantiles[49] * 1000, 3),
        p99_ms=round(quantiles[98] * 1000, 3),
        broker_cpu_seconds=round(cpu, 2),
        stolen_percent=round(100 * stolen / elapsed / (os.cpu_count() or 1), 1),
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker_throughput", description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of a table")
    parser.add_argument("--only", default="", metavar="TEXT", help="run the cases whose names contain TEXT")
    parser.add_argument("--seconds", type=float, default=1.2, help="load per case and state (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where the brokers keep their data (default: a temporary one)")
    parser.add_argument(
        "--first", action="store_true", help="schedule before all other processes (SCHED_FIFO; needs root)"
    )
    options = parser.parse_args(arguments)
    if options.first:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIRST_PRIORITY))  # the brokers inherit it
        except PermissionError:
            parser.error("--first needs root (or CAP_SYS_NICE): leave it out, or run this with sudo")
    results = []
    if not options.json:
        measured = f"{'records/s':>11} {'MB/s':>7} {'p50 ms':>8} {'p99 ms':>8}"
        print(f"{'':58} {'':4} {measured} {'broker CPU s':>12} {'stolen %':>8}")
    for case in CASES:
        if options.only not in case.name:
            continue
        for state in ("cold", "warm"):
            directory = Path(tempfile.mkdtemp(prefix="brownout-bench-", dir=options.directory))
            try:
                result = run_case(case, state, directory, options.seconds)
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            results.append(result)
            if not options.json:
                print(
                    f"{result.case:58} {state:4} {result.records_per_second:11,.0f} {result.megabytes_per_second:7.1f} "
                    f"{result.p50_ms:8.3f} {result.p99_ms:8.3f} {result.broker_cpu_seconds:12.2f} "
                    f"{result.stolen_percent:8.1f}",
                    flush=True,
                )
    if options.json:
        json.dump([asdict(result) for result in results], sys.stdout, indent=2)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
