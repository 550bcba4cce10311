"""The last replica standing (KIP-966): a log without acknowledged records does not lead while another has them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from broker.protocol.messages.config_apis import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from broker.protocol.messages.topic_apis import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from broker.protocol.request import Request
from broker.server.client import PeerConnector
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import in_cluster, started

TOPIC = "log"
PAGE_CACHE = {"min.insync.replicas": "2", "default.replication.factor": "3"}
SEEDS = 40
RECORDS = 20


def lost_after_all_go_down(seed: int, *mutants: str, powered_off: int = 1) -> int:
    """How many acknowledged records are gone after `powered_off` brokers lost power and the others were only killed.

    They go down one after the other, in any order, and come back in any order, at moments that the seed chooses.
    """
    with SimulatedCluster(seed, properties=PAGE_CACHE, mutants=mutants) as cluster:

        async def story() -> int:
            client = await started(cluster)
            await client.create_topic(TOPIC)
            for number in range(RECORDS):
                assert await client.produce(TOPIC, 0, [b"%d" % number]) == number
            rng, names = cluster.rng, sorted(cluster.machines)
            rng.shuffle(names)
            unlucky = rng.sample(names, powered_off)
            for name in names:
                if name in unlucky:
                    cluster.power_loss(name)
                else:
                    cluster.kill(name)
                await asyncio.sleep(rng.choice((0.0, 0.3, 5.0)))
            rng.shuffle(names)
            for name in names:
                cluster.start(name)
                await asyncio.sleep(rng.choice((0.0, 0.3, 5.0)))
            await cluster.ready()
            await cluster.until(lambda: len(_isr(cluster)) == 3, timeout=60)
            await _append(client, b"afterwards")  # a new leader's high watermark lags until then
            found = {record.value for record in await client.read_all(TOPIC, 0, timeout=60)}
            return sum(b"%d" % number not in found for number in range(RECORDS))

        return cluster.run(story())


@pytest.mark.conforms("H16", "K101-15")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_power_loss_among_three_keeps_records_of_two_replicas(seed: int) -> None:
    assert lost_after_all_go_down(seed) == 0


async def _append(client: SimulatedClient, value: bytes) -> None:
    """Append a record, perhaps more than once: connections from before may still have to be found dead."""
    while True:
        try:
            await client.produce(TOPIC, 0, [value])
            return
        except (RefusedError, UncertainError):
            await asyncio.sleep(0.1)


def _isr(cluster: SimulatedCluster) -> tuple[int, ...]:
    """The ISR as the controller has it."""
    controller = cluster.controller()
    topic = None if controller is None else cluster.node(controller).image.topics.get(TOPIC)
    return () if topic is None else topic.partitions[0].isr


@pytest.mark.conforms("H16")
@pytest.mark.kills("elect_unclean_shutdown_isr")
def test_with_the_mutant_the_last_replica_standing_leads_without_its_data() -> None:
    assert any(lost_after_all_go_down(seed, "elect_unclean_shutdown_isr") for seed in range(20))


@pytest.mark.conforms("K101-15")
@pytest.mark.kills("last_known_leader_leads")
def test_with_the_mutant_the_last_leader_leads_without_its_lost_records() -> None:
    assert any(lost_after_all_go_down(seed, "last_known_leader_leads") == RECORDS for seed in range(8))


@pytest.mark.conforms("K704-1", "K704-9", "K101-15")
@pytest.mark.parametrize("seed", range(4))
def test_an_allowed_unclean_election_loses_records_and_leaves_equal_replicas(seed: int) -> None:
    properties = {"default.replication.factor": "3", "unclean.leader.election.enable": "true"}
    with SimulatedCluster(seed, properties=properties) as cluster:

        async def story() -> None:
            client = await started(cluster)
            await client.create_topic(TOPIC, replication_factor=2)
            await client.produce(TOPIC, 0, [b"kept"])
            last = await client.leader_of(TOPIC, 0)
            (other,) = (f"n{replica}" for replica in _isr(cluster) if replica != last)
            cluster.kill(other)
            await cluster.until(lambda: _isr(cluster) == (last,))
            await client.produce(TOPIC, 0, [b"lost"])
            cluster.kill(f"n{last}")
            cluster.start(other)
            await client.leader_of(TOPIC, 0, unlike=last)
            await cluster.until(lambda: cluster.journal.of("leader_recovered") != [])
            assert await client.produce(TOPIC, 0, [b"new"]) == 1
            cluster.start()
            await cluster.ready()
            await cluster.until(lambda: len(_isr(cluster)) == 2, timeout=60)
            assert [record.value for record in await client.read_all(TOPIC, 0)] == [b"kept", b"new"]
            topic = cluster.node(other).image.topics[TOPIC]
            ends = [cluster.node(name).replicas.log_end(topic.id, 0) for name in (other, f"n{last}")]
            assert ends[0][2:] == ends[1][2:]
            assert ends[0].end_offset == 2

        cluster.run(story())


@pytest.mark.conforms("H16")
@in_cluster(3, properties=PAGE_CACHE)
async def test_brokers_that_were_stopped_cleanly_lead_again_without_any_recovery(cluster: SimulatedCluster, /) -> None:
    client = await started(cluster)
    await client.create_topic(TOPIC)
    await client.produce(TOPIC, 0, [b"x"])
    await cluster.stop("n1")
    await cluster.stop("n2")
    cluster.start("n2")
    await cluster.ready()
    await cluster.until(lambda: len(_isr(cluster)) == 2, timeout=60)
    cluster.start()
    await cluster.ready()
    await cluster.until(lambda: len(_isr(cluster)) == 3, timeout=60)
    assert [record.value for record in await client.read_all(TOPIC, 0)] == [b"x"]
    assert cluster.journal.of("logs_compared") == cluster.journal.of("leader_recovered") == []


CLUSTER, ITS_OWN = (4, ""), (2, TOPIC)
"""Where a minimum is set: for all topics, or for this one."""


async def _ask_controller(cluster: SimulatedCluster, request: Request[Any], version: int) -> None:
    controller = cluster.controller()
    assert controller is not None
    connector = PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20)
    await connector.request(cluster.machines[controller].node_id, request, 6.0, version)


async def _set_minimum(cluster: SimulatedCluster, resource: tuple[int, str], value: str) -> None:
    minimum = IncrementalAlterableConfig("min.insync.replicas", 0, value)
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(*resource, [minimum])])
    await _ask_controller(cluster, request, 1)


async def _create(cluster: SimulatedCluster, leader: str, follower: str) -> SimulatedClient:
    """A topic whose partition has these replicas, and a first record."""
    replicas = [cluster.machines[name].node_id for name in (leader, follower)]
    topic = CreatableTopic(TOPIC, -1, -1, [CreatableReplicaAssignment(0, replicas)])
    await _ask_controller(cluster, CreateTopicsRequest([topic], timeout_ms=5_000), 5)
    client = SimulatedClient(cluster.addresses)
    await _append(client, b"before")
    return client


@pytest.mark.conforms("H16")
@pytest.mark.parametrize("resource", [ITS_OWN, CLUSTER])
@in_cluster(7, properties={"replica.lag.time.max.ms": "1000"})
async def test_a_minimum_raised_while_the_isr_shrinks_loses_no_record(
    cluster: SimulatedCluster, /, resource: tuple[int, str]
) -> None:
    """The answer to the leader's proposal overtakes the metadata log, in which the new minimum comes first."""
    cluster.start()
    await cluster.ready()
    ids = {machine.name: machine.node_id for machine in cluster.machines.values()}
    leader, follower = (name for name in sorted(ids) if name != cluster.controller())
    client = await _create(cluster, leader, follower)
    cluster.partition([leader], [follower])
    write = asyncio.create_task(_append(client, b"w"))
    await asyncio.sleep(0.9)
    cluster.machines[leader].disk.faults.slow_s = 0.7  # what it reads of the metadata log comes late
    await asyncio.sleep(0.05)
    await _set_minimum(cluster, resource, "2")
    assert len(_isr(cluster)) == 2
    led = cluster.node(leader).replicas.partition(TOPIC, 0)
    assert led is not None
    await cluster.until(lambda: led.leader.isr == (ids[leader],))
    cluster.machines[leader].disk.faults.slow_s = 0.0
    cluster.kill(leader)
    await client.leader_of(TOPIC, 0, unlike=ids[leader])
    cluster.heal()
    cluster.start(leader)
    await cluster.ready()
    await write
    assert list(dict.fromkeys([it.value for it in await client.read_all(TOPIC, 0)])) == [b"before", b"w"]


@pytest.mark.conforms("H16")
@pytest.mark.parametrize("resource", [ITS_OWN, CLUSTER])
@in_cluster(7, properties={"replica.lag.time.max.ms": "1000", "min.insync.replicas": "2"})
async def test_a_lowered_minimum_keeps_later_commits(cluster: SimulatedCluster, /, resource: tuple[int, str]) -> None:
    """A replica that was eligible, because no record was committed without it, loses its eligibility."""
    cluster.start()
    await cluster.ready()
    leader, follower = (name for name in sorted(cluster.machines) if name != cluster.controller())
    led = cluster.machines[leader].node_id
    client = await _create(cluster, leader, follower)
    cluster.partition([leader], [follower])
    write = asyncio.create_task(_append(client, b"alone"))
    await cluster.until(lambda: _isr(cluster) == (led,))
    assert not write.done()
    await _set_minimum(cluster, resource, "1")
    await write
    await _keeps_both_when_killed(cluster, client, leader)


async def _keeps_both_when_killed(cluster: SimulatedCluster, client: SimulatedClient, leader: str) -> None:
    """The leader is killed after it has appended a record alone, and no record is lost."""
    led = cluster.machines[leader].node_id
    cluster.kill(leader)
    cluster.heal()
    await cluster.until(lambda: led not in _isr(cluster))
    cluster.start(leader)
    await cluster.ready()
    assert list(dict.fromkeys([it.value for it in await client.read_all(TOPIC, 0)])) == [b"before", b"alone"]


async def _roll(cluster: SimulatedCluster, properties: Mapping[str, str]) -> tuple[str, str]:
    """Restart all brokers but one with another configuration: the one, and another that does not control."""
    *others, last = sorted(cluster.machines, key=lambda name: name != cluster.controller())
    for name in others:
        cluster.reconfigure(name, properties)
        await cluster.stop(name)
        cluster.start(name)
        await cluster.ready()
    while (controller := cluster.controller()) in (last, None):
        cluster.partition([last], others)
        await cluster.until(lambda: cluster.controller() in others and not cluster.node(last).quorum.is_leader)
        cluster.heal()
        await asyncio.sleep(3)  # the new controller may fence the broker that was cut off, and unfence it again
        await cluster.ready()
    return last, next(name for name in others if name != controller)


@pytest.mark.conforms("H16")
@pytest.mark.parametrize("seed", range(4))
def test_a_minimum_raised_in_one_file_after_the_other_loses_no_record(seed: int) -> None:
    """The leader still has the old file, the controller the new one: with separate numbers, records that the leader
    commits alone would be uncommitted for the controller, and a replica without them eligible."""
    properties = {"replica.lag.time.max.ms": "1000", "min.insync.replicas": "1"}
    with SimulatedCluster(seed, properties=properties) as cluster:

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            leader, follower = await _roll(cluster, {"min.insync.replicas": "2"})
            led = cluster.machines[leader].node_id
            client = await _create(cluster, leader, follower)
            cluster.partition([leader], [follower])
            await _append(client, b"alone")
            assert _isr(cluster) == (led,)
            await _keeps_both_when_killed(cluster, client, leader)

        cluster.run(story())
