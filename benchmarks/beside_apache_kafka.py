"""Throughput and latency of our broker and of Apache Kafka: three nodes each, the same load, in turns of one run.

    ./brownout system fetch apache-kafka 4.1.1
    python -m benchmarks.beside_apache_kafka [--seconds S] [--rounds N]

Both use their own defaults except for min.insync.replicas (2); neither syncs each append. Each case runs once before it
is measured, so that Java has compiled its code. Kafka reads a connection's next request after it has answered the last
one; our broker does not wait. Several connections are therefore fair to both, and a single pipelined connection shows
the difference. The output has one line per case with the medians of the rounds and their ratio.
"""

import argparse
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.broker_throughput import Case, Nodes, Result, load
from tests.broker.clients.harness import Cluster, cluster, free_ports, until
from tests.broker.clients.kafkas_tools import JARS, VERSION

START_S = 60.0
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CASES = [
    Case("1 KB records in 1 MB batches, acks=all", 3, -1, 1_000, 1_000, 8),
    Case("100 B records in 64 KB batches, 4 connections, acks=all", 3, -1, 100, 600, 8, connections=4),
    Case("single 100 B records, 16 connections, acks=all", 3, -1, 100, 1, 32, connections=16),
    Case("single 100 B records, one connection, pipelined, acks=all", 3, -1, 100, 1, 512),
    Case("single 100 B records at 1,000/s, acks=all", 3, -1, 100, 1, 256, per_second=1_000),
]


class KafkaProcess:
    """One node of Apache Kafka, broker and controller."""

    def __init__(self, directory: Path, node_id: int, ports: tuple[int, int], voters: str) -> None:
        directory.mkdir(parents=True)
        self.node_id, (self.port, controller_port) = node_id, ports
        self.output = directory / "output"
        self.config = directory / "server.properties"
        properties = {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": directory / "log",
            "min.insync.replicas": 2,
            "offsets.topic.num.partitions": 1,
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        java = [
            "java",
            "-Xmx512m",
            "-XX:-UsePerfData",
            "-Dorg.slf4j.simpleLogger.logFile=System.out",
            "-cp",
            f"{JARS}/*",
        ]
        config = str(self.config)
        with self.output.open("ab") as output:
            storage = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", config]
            subprocess.run(storage, stdout=output, stderr=subprocess.STDOUT, check=True)
            self.process = subprocess.Popen(
                [*java, "kafka.Kafka", config], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.output.read_text(encoding="utf-8")[-2000:]
        return "Kafka Server started" in self.output.read_text(encoding="utf-8")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


class KafkaCluster:
    def __init__(self, directory: Path, size: int) -> None:
        free = free_ports(2 * size)
        ports = list(zip(free[:size], free[size:], strict=True))
        voters = ",".join(f"{number}@127.0.0.1:{controllers}" for number, (_, controllers) in enumerate(ports, 1))
        self._nodes = {
            number: KafkaProcess(directory / f"k{number}", number, pair, voters) for number, pair in enumerate(ports, 1)
        }

    @property
    def brokers(self) -> Mapping[int, KafkaProcess]:
        return self._nodes


@contextmanager
def kafka(directory: Path, size: int) -> Iterator[KafkaCluster]:
    nodes = KafkaCluster(directory, size)
    try:
        for node in nodes.brokers.values():
            node.start()
        for node in nodes.brokers.values():
            until(node.is_ready, f"Apache Kafka {node.node_id} is ready", START_S)
        yield nodes
    finally:
        for node in nodes.brokers.values():
            node.stop()


def measured(case: Case, nodes: Nodes, topic: str, seconds: float) -> Result:
    load(case, nodes, f"{topic}-warm", seconds, "warm")
    return load(case, nodes, topic, seconds, "warm")


def table(name: str, nodes: Nodes, results: dict[tuple[str, str], list[Result]], turn: int, seconds: float) -> None:
    for number, case in enumerate(CASES):
        results.setdefault((name, case.name), []).append(measured(case, nodes, f"load-{turn}-{number}", seconds))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.beside_apache_kafka", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="load per case, and before it (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=2, help="turns of each (default: %(default)s)")
    options = parser.parse_args(arguments)
    if shutil.which("java") is None or not list(JARS.glob("kafka_2.13-*.jar")):
        print(f"java or the jars in {JARS} are missing: run `./brownout system fetch apache-kafka {VERSION}`")
        return 64
    results: dict[tuple[str, str], list[Result]] = {}
    for turn in range(options.rounds):
        directory = Path(tempfile.mkdtemp(prefix="brownout-bench-"))
        try:
            ours: Cluster
            with cluster(directory, 3, min_insync_replicas=2) as ours:
                table("brownout", ours, results, turn, options.seconds)
            with kafka(directory, 3) as theirs:
                table("kafka", theirs, results, turn, options.seconds)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"{'':58} {'ours/s':>10} {'Kafka/s':>10} {'ratio':>6} {'ours p99':>9} {'Kafka p99':>9} ms")
    for case in CASES:
        rates, tails = [], []
        for name in ("brownout", "kafka"):
            found = results[name, case.name]
            rates.append(statistics.median(each.records_per_second for each in found))
            tails.append(statistics.median(each.p99_ms for each in found))
        ratio = rates[0] / rates[1]
        print(f"{case.name:58} {rates[0]:10,.0f} {rates[1]:10,.0f} {ratio:6.2f} {tails[0]:9.2f} {tails[1]:9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
