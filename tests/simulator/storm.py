"""A quarter of a minute of faults on a small simulated cluster under load, and the findings of the oracles."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from random import Random

from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from simulator.conditions import Conditions

TOPIC = "log"
FAULTS = ("bounce", "kill", "power", "isolate", "reject", "cut", "pause", "stop")
FAULTS_S = 12.0
WRITERS = 3
CALM_S = 3.0

QUICK: Mapping[str, str] = {
    "default.replication.factor": "3",
    "broker.session.timeout.ms": "1500",
    "broker.lease.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "600",
}
"""Brokers that notice everything soon, so that much happens in little time."""


def choices(rng: Random, nodes: int) -> dict[str, str]:
    """A configuration: how many replicas must have a record, whether disks must, and how much of a log is kept."""
    kept = {"log.segment.bytes": "4096", "log.retention.bytes": "12000", "log.retention.check.interval.ms": "700"}
    return {
        **QUICK,
        "default.replication.factor": str(min(3, nodes)),
        "min.insync.replicas": rng.choice(("1", "2", "2")),
        "log.flush.interval.messages": rng.choice(("0", "1")),
        **(kept if rng.random() < 0.4 else {}),
    }


def storm(
    seed: int,
    *mutants: str,
    nodes: int = 3,
    properties: Mapping[str, str] | None = None,
    faults: Sequence[str] = FAULTS,
    seconds: float = FAULTS_S,
    writers: int = WRITERS,
    until: str | None = None,
    deletes: bool = False,
    conditions: Conditions | None = None,
) -> SimulatedCluster:
    """The cluster after this time of these faults in virtual seconds, closed; `watch.findings` has the findings of the
    oracles. `until`: an oracle whose first finding ends the storm, since later events are irrelevant. `deletes`: a
    client deletes records."""
    rng = Random(f"{seed}/storm")
    config = {**choices(rng, nodes), **(properties or {})}
    with SimulatedCluster(seed, nodes, properties=config, mutants=mutants, conditions=conditions) as cluster:

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            clients = [SimulatedClient(cluster.addresses) for _ in range(max(1, writers))]
            await clients[0].create_topic(TOPIC)
            writing = [asyncio.create_task(write(client, number)) for number, client in enumerate(clients[:writers])]
            if deletes:
                clients.append(SimulatedClient(cluster.addresses))
                writing.append(asyncio.create_task(delete(clients[-1], Random(f"{seed}/deletes"))))
            ends_s = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < ends_s:
                await asyncio.sleep(rng.uniform(0.0, 1.2))
                await _inject(cluster, rng, rng.choice(list(faults)))
                if any(finding.oracle == until for finding in cluster.watch.findings.found):
                    break
            cluster.heal()
            for name in cluster.machines:
                cluster.go_on(name)
            cluster.start()
            await asyncio.sleep(CALM_S)
            for task in writing:
                task.cancel()

        cluster.run(story())
        cluster.loop.look()
    return cluster


async def write(client: SimulatedClient, number: int) -> None:
    """Append for ever; every third writer does not wait for the replicas."""
    count = 0
    while True:
        count += 1
        with contextlib.suppress(RefusedError, UncertainError, TimeoutError, OSError):
            await client.produce(TOPIC, 0, [b"%d/%d" % (number, count)], acks=-1 if number % 3 else 1, timeout=1.0)
        await asyncio.sleep(0.03)


async def delete(client: SimulatedClient, rng: Random) -> None:
    """Delete committed records of the topic, a part of them or all, until cancelled."""
    while True:
        await asyncio.sleep(rng.uniform(0.0, 0.3))
        with contextlib.suppress(RefusedError, UncertainError):
            end = await client.end(TOPIC, 0, timeout=1.0)
            await client.delete_records(TOPIC, 0, rng.choice((-1, max(0, end - rng.randint(0, 20)))), timeout=1.0)


async def _inject(cluster: SimulatedCluster, rng: Random, fault: str) -> None:
    """One fault, which is over when this returns or goes on for a while."""
    names = sorted(cluster.machines)
    name = _aim(cluster, rng, names)
    match fault:
        case "bounce":
            cluster.kill(name)
            await asyncio.sleep(rng.choice((0.0, 0.05, 0.3)))
            cluster.start(name)
        case "kill":
            cluster.kill(name)
            await asyncio.sleep(rng.uniform(0.5, 3.0))
            cluster.start(name)
        case "power":
            some = [name] if rng.random() < 0.7 else rng.sample(names, rng.randint(1, len(names)))
            cluster.power_loss(*some)
            await asyncio.sleep(rng.choice((0.0, 0.2, 2.0)))
            cluster.start(*some)
        case "isolate" | "reject":
            others = [other for other in names if other != name]
            cluster.partition([name], others, reject=fault == "reject")
            await asyncio.sleep(rng.uniform(0.3, 4.0))
            cluster.heal()
        case "cut":
            other = rng.choice([each for each in names if each != name])
            cluster.cut(name, other)
            if rng.random() < 0.6:
                cluster.cut(other, name)
            await asyncio.sleep(rng.uniform(0.3, 3.0))
            cluster.heal()
        case "pause":
            cluster.stand_still(name)
            await asyncio.sleep(rng.uniform(0.2, 2.5))
            cluster.go_on(name)
        case "stop":
            with contextlib.suppress(Exception):
                await asyncio.wait_for(cluster.stop(name), 5.0)
            cluster.start(name)


def _aim(cluster: SimulatedCluster, rng: Random, names: Sequence[str]) -> str:
    """The controller, the log's leader, or any node."""
    controller, dice = cluster.controller(), rng.random()
    if controller is not None and dice < 0.3:
        return controller
    if controller is not None and dice < 0.65:
        state = cluster.node(controller).image.partition(TOPIC, 0)
        if state is not None and state.leader > 0:
            return f"n{state.leader}"
    return rng.choice(names)
