"""Duration of a failover: how long a partition accepts no writes after its leader is killed or suspended, by stage.

    python -m benchmarks.failover [--rounds 5] [--directory DIR] [KEY=VALUE ...]

Three brokers run with default settings, or with the given ones. In half of the cases the leader is also the active
controller. A client repeatedly finds the leader and appends one record with acks=all. All times are seconds since the
signal: the controller knows the end of the broker's process (`ended`) or detects refused connections (`refused`),
another controller is active (`controller`), it ends the broker's session (`expired`), another broker leads (`leads`),
and the client gets its first acknowledgement (`acknowledged`).
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.load_client import ask, create_topic, leader_address, produce_frame, wait_for_topic
from broker.protocol.api import ApiKey
from broker.protocol.messages.cluster_apis import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.clients.harness import BrokerProcess, Cluster, cluster

TOPIC = "failover"
AGAIN_S = 0.01
ATTEMPT_S = 0.5
SETTLED_S = 5.0
"""A new controller waits for the leases that its predecessor may have granted."""
ENDS = {"killed": signal.SIGKILL, "suspended": signal.SIGSTOP}
STAGES = ("ended", "refused", "controller", "expired", "leads", "acknowledged")
EVENTS = {"broker_ended": "ended", "broker_gone": "refused", "session_expired": "expired"}
"""By event about the ended broker: the stage."""


async def metadata(port: int) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    answer = await ask(port, request, ApiKey.METADATA, 9)
    assert isinstance(answer, MetadataResponse)
    return answer


async def fail_over(nodes: Cluster, leader: BrokerProcess, end: signal.Signals) -> dict[str, float]:
    """End a leader and return when each stage was reached, in seconds since then."""
    others = [broker for broker in nodes.brokers.values() if broker is not leader]
    frame = produce_frame(TOPIC, -1, 100, 1)
    assert leader.process is not None
    began, wall = time.monotonic(), time.time_ns()
    leader.process.send_signal(end)
    while True:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                partition = (await metadata(others[0].port)).topics[0].partitions[0]
                if partition.leader_id not in (-1, leader.node_id):
                    await wait_for_topic(nodes.brokers[partition.leader_id].port, TOPIC, frame)
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(AGAIN_S)
    reached = {"acknowledged": time.monotonic() - began}
    for broker in others:
        _add_stages(reached, Path(broker.events), leader.node_id, wall)
    return reached


def _add_stages(reached: dict[str, float], events: Path, ended: int, wall: int) -> None:
    """The stages in a broker's trace after the wall-clock time `wall`, in nanoseconds."""
    for line in events.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        stage = _stage(event, ended)
        if stage is not None and event["wall"] > wall:
            reached.setdefault(stage, (event["wall"] - wall) / 1e9)


def _stage(event: dict[str, object], ended: int) -> str | None:
    if event["event"] in EVENTS and event["broker"] == ended:
        return EVENTS[str(event["event"])]
    if event["event"] == "controller_active":
        return "controller"
    if event["event"] == "partition_role" and event["topic"] == TOPIC and event["role"] == "leader":
        return "leads"
    return None


async def a_leader(nodes: Cluster) -> BrokerProcess:
    """Wait until all replicas are in sync, and return the topic's leader."""
    ports = [broker.port for broker in nodes.brokers.values()]
    port = await leader_address(ports, TOPIC)
    return next(broker for broker in nodes.brokers.values() if broker.port == port)


async def one_round(
    settings: dict[str, str], directory: Path, end: signal.Signals, *, controls: bool
) -> dict[str, float] | None:
    """Measure one failover on a new cluster; the leader is (`controls`) or is not the active controller. None: the
    controller changed before the signal."""
    with cluster(directory, 3, min_insync_replicas=2, **settings) as nodes:
        ports = [broker.port for broker in nodes.brokers.values()]
        controller = (await metadata(ports[0])).controller_id
        others = [node for node in nodes.brokers if node != controller]
        await create_topic(ports[0], TOPIC, 3, assignment=[controller, *others] if controls else [*others, controller])
        leader = await a_leader(nodes)
        await wait_for_topic(leader.port, TOPIC, produce_frame(TOPIC, -1, 100, 1))
        await asyncio.sleep(SETTLED_S)
        if ((await metadata(leader.port)).controller_id == leader.node_id) is not controls:
            return None
        return await fail_over(nodes, leader, end)


def measure(name: str, rounds: int, settings: dict[str, str], directory: Path, *, controls: bool) -> None:
    case = f"{'active controller' if controls else 'other broker'} {name}"
    rounds_measured: list[dict[str, float]] = []
    tried = 0
    while len(rounds_measured) < rounds:
        tried += 1
        place = directory / f"{case.replace(' ', '-')}-{tried}"
        os.mkdir(place)
        reached = asyncio.run(one_round(settings, place, ENDS[name], controls=controls))
        if reached is not None:
            rounds_measured.append(reached)
    for stage in STAGES:
        times = sorted(reached[stage] for reached in rounds_measured if stage in reached)
        if times:
            print(
                f"{case}: {stage} {times[0]:.2f} to {times[-1]:.2f} s, median {statistics.median(times):.2f} s",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each kind (default: %(default)s)")
    parser.add_argument("--directory", type=Path, default=None, help="where the brokers' data is written")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings of the brokers")
    options = parser.parse_args()
    settings = {key.replace(".", "_"): value for key, _, value in (each.partition("=") for each in options.settings)}
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        for name in ENDS:
            for controls in (False, True):
                measure(name, options.rounds, settings, Path(directory), controls=controls)


if __name__ == "__main__":
    main()
