"""Tiered storage while brokers die and the object store fails: no record is lost, no object is orphaned."""

import asyncio
import random

import pytest

from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from simulator.object_store import StoreFaults
from tests.simulator.stories import in_cluster
from tests.simulator.test_tiered import TIERED, TOPIC, VALUE, leader, replicas, tiered_topic

ROUNDS, RECORDS = 6, 25


def drawn_faults(rng: random.Random) -> StoreFaults:
    failing = rng.choice([{}, {"put": "full"}, {"delete": "read-only"}, {"get": "unreachable"}])
    slow, stale = rng.choice([0.0, 0.1]), rng.choice([0.0, 3.0])
    return StoreFaults(failing=dict(failing), slow_s=slow, partial=rng.choice([0.0, 1.0]), stale_s=stale)


async def write_some(client: SimulatedClient, first: int) -> dict[int, bytes]:
    """The acknowledged values, by offset."""
    acknowledged: dict[int, bytes] = {}
    for number in range(first, first + RECORDS):
        value = b"%d " % number + VALUE
        try:
            acknowledged[await client.produce(TOPIC, 0, [value])] = value
        except (RefusedError, UncertainError):
            await asyncio.sleep(0.1)
    return acknowledged


def strike(cluster: SimulatedCluster, rng: random.Random) -> None:
    name = rng.choice(list(cluster.machines))
    kind = rng.choice(["kill", "power", "power of all"])
    if kind == "kill":
        cluster.kill(name)
    else:
        cluster.power_loss(*([name] if kind == "power" else []))


@pytest.mark.parametrize("seed", range(6))
@in_cluster("seed", properties={**TIERED, "log.flush.interval.messages": "1"})
async def test_a_storm_loses_no_record_and_leaves_no_orphan(cluster: SimulatedCluster, /, seed: int) -> None:
    rng = random.Random(seed)
    client = await tiered_topic(cluster)
    acknowledged: dict[int, bytes] = {}
    for turn in range(ROUNDS):
        cluster.objects.faults = drawn_faults(rng)
        acknowledged |= await write_some(client, turn * RECORDS)
        await asyncio.sleep(rng.uniform(0, 2))
        strike(cluster, rng)
        await asyncio.sleep(rng.uniform(0, 3))
        cluster.start()
    cluster.objects.faults = StoreFaults()
    await cluster.ready()
    await asyncio.sleep(40)
    found = {record.offset: record.value for record in await client.read_all(TOPIC, 0, 120)}
    assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
    assert all(it.log.local_start_offset > 0 for it in replicas(cluster).values())
    node = cluster.node(leader(cluster))
    assert node.tiered is not None
    assert node.cluster_id is not None
    manifest = node.tiered.metadata.manifest((replicas(cluster)["n1"].topic_id, 0))
    expected = {name for each in manifest for name in each.object_names(node.cluster_id)}
    assert set(cluster.objects.segment_objects) == expected
