"""A former leader with an uncommitted tail in its metadata log has to fetch a snapshot, and loses power at any step."""

import asyncio
from contextlib import suppress

import pytest

from broker.protocol.messages.topic_apis import CreatableTopic, CreateTopicsRequest
from broker.server.client import PeerConnector
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import in_cluster, started

PROPERTIES = {"metadata.log.max.record.bytes.between.snapshots": "1000", "default.replication.factor": "2"}
LOG = "__cluster_metadata-0"
TAIL = 300
MOMENT_S = 0.0004
"""Much less than a sync takes: of the steps of taking a snapshot over each is hit."""


async def tail_on_its_own(cluster: SimulatedCluster, leader: str) -> None:
    """The leader appends many records that never reach another voter."""
    others = [name for name in cluster.machines if name != leader]
    before = cluster.node(leader).quorum.log_end.offset
    cluster.partition([leader], others)
    connector = PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20)
    request = CreateTopicsRequest([CreatableTopic("lost", TAIL, 2)], timeout_ms=100)
    with suppress(OSError):
        await connector.request(cluster.machines[leader].node_id, request, 1.0)
    assert cluster.node(leader).quorum.log_end.offset > before + TAIL


async def go_on_without(cluster: SimulatedCluster, leader: str, topics: set[str]) -> None:
    """The others elect, and let go of their logs' beginnings from where the former leader's went its own way."""
    others = [name for name in cluster.machines if name != leader]
    parted_at = cluster.node(leader).quorum.log_end.offset - TAIL
    addresses = {node: at for node, at in cluster.addresses.items() if node != cluster.machines[leader].node_id}
    client = SimulatedClient(addresses)
    for number in range(40):
        if all(cluster.node(name).quorum.log_start_offset > parted_at for name in others):
            break
        topics.add(f"t{number}")
        await client.create_topic(f"t{number}", 1, 2)
    client.close()


def names(cluster: SimulatedCluster, machine: str) -> set[str]:
    return {name for name in cluster.machines[machine].disk.list(LOG) if name.endswith(".checkpoint")}


@pytest.mark.rotating(3, among="random schedules")
@pytest.mark.conforms("K595-6", "K595-7")
@pytest.mark.parametrize("moment", range(16))
@in_cluster("moment", properties=PROPERTIES)
async def test_a_crash_during_a_snapshot_install_leaves_no_tail_of_another_leader(
    cluster: SimulatedCluster, /, moment: int
) -> None:
    client = await started(cluster)
    topics = {"first"}
    await client.create_topic("first", 1)
    former = cluster.controller()
    assert former is not None
    await tail_on_its_own(cluster, former)
    await go_on_without(cluster, former, topics)
    ends = [cluster.node(name).quorum.log_end.offset for name in cluster.machines]
    assert max(ends) == cluster.node(former).quorum.log_end.offset, "its tail reaches beyond the snapshot"
    had = names(cluster, former)
    cluster.heal()
    while names(cluster, former) == had:  # noqa: ASYNC110 - a disk has no event for it
        await asyncio.sleep(MOMENT_S)
    await asyncio.sleep(moment * MOMENT_S)
    cluster.power_loss(former)
    cluster.start(former)
    await cluster.ready()
    await SimulatedClient(cluster.addresses).create_topic("last", 1)
    topics.add("last")
    for name in cluster.machines:
        await cluster.until(lambda name=name: set(cluster.node(name).image.topics) == topics)  # type: ignore[misc]
