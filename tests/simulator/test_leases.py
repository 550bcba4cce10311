"""No reader gets stale data: a lease ends before another leader is elected, independent of probes of its holder."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from broker.clock_rates import MOST_DRIFT
from broker.controller.image import PartitionImage
from broker.protocol.messages.partition_apis import AlterPartitionReassignmentsRequest, ReassignablePartition
from broker.protocol.messages.topic_apis import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from broker.protocol.request import Request
from broker.protocol.schema import Topic
from broker.replica.leader import PartitionLeader
from broker.server.client import PeerConnector
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.readers import Readers
from tests.simulator.stories import in_cluster, started

TOPIC, PARTITIONS, FAULTS = "log", 2, 6
PROPERTIES = {"min.insync.replicas": "2", "default.replication.factor": "3"}
# Producers that give up soon find the new leader while the old one could still answer.
PRODUCE_TIMEOUT_S = 0.3

Fault = Callable[[SimulatedCluster], Awaitable[None]]


async def reject_one(cluster: SimulatedCluster) -> None:
    """A firewall answers for one broker: its connections to the others are refused, as without a listener."""
    names = cluster.rng.sample(sorted(cluster.machines), 3)
    cluster.partition(names[:1], names[1:], reject=True)


async def reject_slow(cluster: SimulatedCluster) -> None:
    """The same for a broker whose clock loses as much as clocks may, while the controller's gains as much."""
    names = cluster.rng.sample(sorted(cluster.machines), 3)
    controller = cluster.controller() or names[0]
    slow = next(name for name in names if name != controller)
    for name in names:
        cluster.let_drift(name, {controller: MOST_DRIFT, slow: -MOST_DRIFT}.get(name, 0.0))
    await asyncio.sleep(1.0)
    cluster.partition([slow], [name for name in names if name != slow], reject=True)
    cluster.reset(slow)


async def restart_unheard(cluster: SimulatedCluster) -> None:
    """A broker asks to be let go, and hears no answer."""
    names = cluster.rng.sample(sorted(cluster.machines), 3)
    controller = cluster.controller() or names[0]
    leaving = next(name for name in names if name != controller)
    cluster.cut(controller, leaving)
    await cluster.stop(leaving)


async def reassign_unheard(cluster: SimulatedCluster) -> None:
    """A leadership is taken from a broker that cannot hear of it, by a client that moves the replica away."""
    controller = cluster.controller()
    await assign(cluster, {partition: [1, 2, 3] for partition in range(PARTITIONS)})
    await cluster.until(lambda: all(len(state(cluster, partition).isr) == 3 for partition in range(PARTITIONS)))
    if controller is None or controller != cluster.controller():
        return
    mine = cluster.machines[controller].node_id
    led = {partition: state(cluster, partition).leader for partition in range(PARTITIONS)}
    if all(leader == mine for leader in led.values()):
        # For the next time: its own replicas go, and with them the leaderships.
        await assign(cluster, {partition: [other for other in (1, 2, 3) if other != mine] for partition in led})
        return
    leader = next(leader for leader in led.values() if leader != mine)
    cluster.cut(controller, f"n{leader}")
    others = [broker for broker in (1, 2, 3) if broker != leader]
    await assign(cluster, {partition: others for partition, by in led.items() if by == leader})


def state(cluster: SimulatedCluster, partition: int) -> PartitionImage:
    """A partition as the machine has it that controls."""
    found = cluster.node(cluster.controller() or "n1").image.partition(TOPIC, partition)
    assert found is not None
    return found


async def assign(cluster: SimulatedCluster, replicas: dict[int, list[int]]) -> None:
    """Ask the controller to move partitions; whatever comes of it."""
    wanted = [ReassignablePartition(partition, brokers) for partition, brokers in replicas.items()]
    request = AlterPartitionReassignmentsRequest(topics=[Topic(TOPIC, wanted)], timeout_ms=3_000)
    await ask_controller(cluster, request, 0)


async def ask_controller(cluster: SimulatedCluster, request: Request[Any], version: int) -> None:
    """Send the controller, if there is one, a request that takes up to 3 s."""
    controller = cluster.controller()
    if controller is None:
        return
    connector = PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20)
    with suppress(OSError):
        await connector.request(cluster.machines[controller].node_id, request, 4.0, version)


async def produce(cluster: SimulatedCluster, readers: Readers, number: int) -> None:
    """Append for ever, and give the readers the acknowledgements."""
    client = SimulatedClient(cluster.addresses)
    for sequence in range(1 << 30):
        partition = sequence % PARTITIONS
        try:
            base = await client.produce(TOPIC, partition, [b"%d-%d" % (number, sequence)], timeout=PRODUCE_TIMEOUT_S)
        except UncertainError:
            continue
        except RefusedError:
            await asyncio.sleep(0.05)
            continue
        readers.acknowledged(partition, base + 1)
        await asyncio.sleep(0.02)


def run(seed: int, fault: Fault, *mutants: str) -> Readers:
    """Faults under load; the readers, with all acknowledgements."""
    with SimulatedCluster(seed, properties=PROPERTIES, mutants=mutants) as cluster:

        async def story() -> Readers:
            client = await started(cluster)
            await client.create_topic(TOPIC, PARTITIONS)
            readers = Readers(client, sorted(cluster.addresses), TOPIC, PARTITIONS)
            producers = [asyncio.create_task(produce(cluster, readers, number)) for number in range(2)]
            for _ in range(FAULTS):
                await asyncio.sleep(cluster.rng.uniform(0.2, 2.0))
                await fault(cluster)
                await asyncio.sleep(cluster.rng.uniform(1.0, 6.0))
                cluster.heal()
                cluster.start()
                await cluster.ready()
            for task in producers:
                task.cancel()
            await asyncio.gather(*producers, return_exceptions=True)
            await readers.stop()
            return readers

        return cluster.run(story())


@pytest.mark.rotating(8, among="leases under faults")
@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("fault", [reject_one, reject_slow, restart_unheard, reassign_unheard])
def test_no_answer_is_stale(fault: Fault, seed: int) -> None:
    readers = run(seed, fault)
    assert readers.stale == []
    assert readers.answers > 100, "few answers show little"


@pytest.mark.rotating(8, among="leases under faults")
@pytest.mark.parametrize(
    ("fault", "mutant"),
    [
        pytest.param(reject_one, "refused_is_dead", marks=pytest.mark.kills("refused_is_dead")),
        pytest.param(restart_unheard, "leave_under_lease", marks=pytest.mark.kills("leave_under_lease")),
        pytest.param(reassign_unheard, "moves_under_lease", marks=pytest.mark.kills("moves_under_lease")),
    ],
)
def test_a_reader_sees_a_lease_that_outlives_a_leadership(fault: Fault, mutant: str) -> None:
    found = next(readers.stale for seed in range(1, 9) if (readers := run(seed, fault, mutant)).stale)
    assert "was known" in found[0]


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", [1, 2])
@in_cluster("seed")
async def test_a_successor_without_its_log_waits_for_the_lease_of_the_last_leader(cluster: SimulatedCluster, /) -> None:
    """The most complete remaining log does not shorten the wait; the oracle of shared leases checks it."""
    cluster.start()
    await cluster.ready()
    controller = cluster.controller()
    ids = {machine.name: machine.node_id for machine in cluster.machines.values()}
    leader, successor = (name for name in sorted(ids) if name != controller)
    client = SimulatedClient(cluster.addresses)
    await client.create_topic(TOPIC, 1, replication_factor=1)
    await cluster.until(lambda: cluster.node(leader).image.partition(TOPIC, 0) is not None)
    await assign(cluster, {0: [ids[leader]]})
    await cluster.until(lambda: state(cluster, 0).leader == ids[leader])
    await append(client, ids[successor])
    await assign(cluster, {0: [ids[successor]]})
    led = cluster.node(leader).replicas.partition(TOPIC, 0)
    assert led is not None
    await cluster.until(lambda: isinstance(led.role, PartitionLeader) and len(led.role.replicas) == 2)
    cluster.machines[leader].disk.faults.slow_s = 5.0  # it hears late that it leads no more
    await cluster.until(lambda: state(cluster, 0).replicas == (ids[successor],))
    cluster.kill(successor)
    cluster.start(successor)
    await cluster.until(lambda: state(cluster, 0).leader == ids[successor])
    others = {node: address for node, address in cluster.addresses.items() if node != ids[leader]}
    await append(SimulatedClient(others), ids[leader])
    with pytest.raises(RefusedError):
        await client.end(TOPIC, 0, timeout=5.0, broker=ids[leader])


LONGER = {"broker.session.timeout.ms": "12000", "broker.lease.ms": "10000"}
"""Of a file that has been changed already, where others have not."""


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("role", ["leader", "controller"])
@in_cluster("seed", 5)
async def test_a_lease_is_exclusive_while_files_are_changed_one_after_the_other(
    cluster: SimulatedCluster, /, role: str
) -> None:
    """A leader is cut off, with a lease that it has from a controller that dies in the same moment. One of the two has
    another file."""
    cluster.reconfigure("n1", LONGER)
    cluster.start()
    await cluster.ready()
    while (controller := cluster.controller()) is None or (controller == "n1") != (role == "controller"):
        await cluster.stop(controller or "n1")
        cluster.start()
        await cluster.ready()
    leader, *rest = sorted(set(cluster.machines) - {controller}, key=lambda name: (name != "n1", name))
    led, *others = (cluster.machines[name].node_id for name in (leader, *rest))
    client = SimulatedClient(cluster.addresses)
    topic = CreatableTopic(TOPIC, -1, -1, [CreatableReplicaAssignment(0, [led, *others])])
    await ask_controller(cluster, CreateTopicsRequest([topic], timeout_ms=3_000), 7)
    await cluster.until(lambda: (state(cluster, 0).leader, len(state(cluster, 0).isr)) == (led, 4))
    readers = Readers(client, [led], TOPIC, 1)
    cluster.kill(controller)
    cluster.partition([leader], rest)
    elsewhere = SimulatedClient({node: cluster.addresses[node] for node in others})
    readers.acknowledged(0, 1 + await append(elsewhere, led))
    await cluster.until(lambda: not cluster.node(leader).lease.valid())
    await readers.stop()
    assert readers.stale == []


async def append(client: SimulatedClient, not_to: int) -> int:
    """Append a record, as soon as another leads; where it is."""
    while True:
        await client.leader_of(TOPIC, 0, unlike=not_to)
        try:
            return await client.produce(TOPIC, 0, [b"x"], timeout=1.0)
        except (RefusedError, UncertainError):
            await asyncio.sleep(0.02)
