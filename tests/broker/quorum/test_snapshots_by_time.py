"""Snapshots of the metadata log by time: every node writes one after its log has grown for this time (KIP-876)."""

import asyncio

import pytest

from broker.config import BrokerConfig
from broker.quorum.runner import SnapshotSchedule
from broker.server.node_directory import METADATA_DIRECTORY
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import in_cluster

pytestmark = pytest.mark.conforms("LOG-4")
INTERVAL_S = 20
PROPERTIES = {
    "metadata.log.max.snapshot.interval.ms": str(INTERVAL_S * 1000),
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
}
THREE_VOTERS = "1@n1:9093,2@n2:9093,3@n3:9093"
ONE_VOTER = "1@n1:9093"


def start_of(cluster: SimulatedCluster, name: str) -> int:
    return cluster.node(name).quorum.log_start_offset


def snapshots_of(cluster: SimulatedCluster, name: str) -> list[str]:
    names = cluster.machines[name].disk.list(METADATA_DIRECTORY)
    return [each for each in names if each.endswith(".checkpoint")]


@pytest.mark.parametrize("voters", [THREE_VOTERS, ONE_VOTER], ids=["three voters", "one voter"])
def test_an_idle_cluster_writes_snapshots_on_voters_and_observers(voters: str) -> None:
    with SimulatedCluster(3, nodes=4, properties={**PROPERTIES, "quorum.voters": voters}) as cluster:

        async def story() -> None:
            cluster.start()
            await cluster.ready()
            await SimulatedClient(cluster.addresses).create_topic("first", 2)
            end = cluster.node("n1").quorum.log_end.offset
            assert not any(snapshots_of(cluster, name) for name in cluster.machines)
            await asyncio.sleep(2 * INTERVAL_S)
            for name in cluster.machines:
                assert start_of(cluster, name) >= end, name
                assert len(snapshots_of(cluster, name)) == 1, name
            cluster.power_loss()
            cluster.start()
            await cluster.ready()
            for name in cluster.machines:
                assert start_of(cluster, name) >= end, name
                assert set(cluster.node(name).image.topics) == {"first"}, name

        cluster.run(story())


@in_cluster(4, nodes=1, properties=PROPERTIES)
async def test_the_log_of_an_idle_node_does_not_grow_for_longer_than_the_interval(cluster: SimulatedCluster, /) -> None:
    """A controller continues to write its leadership; each snapshot replaces the one before."""
    cluster.start()
    await cluster.ready()
    quorum = cluster.node("n1").quorum
    await asyncio.sleep(2 * INTERVAL_S)
    before, (found,) = quorum.log_end.offset, snapshots_of(cluster, "n1")
    await asyncio.sleep(INTERVAL_S)
    in_an_interval = quorum.log_end.offset - before
    await asyncio.sleep(3 * INTERVAL_S)
    (newest,) = snapshots_of(cluster, "n1")
    assert newest > found
    assert 0 < quorum.log_end.offset - quorum.log_start_offset <= 2 * in_an_interval


@in_cluster(5, nodes=1, properties={**PROPERTIES, "metadata.log.max.snapshot.interval.ms": "0"})
async def test_an_interval_of_0_disables_snapshots_by_time(cluster: SimulatedCluster, /) -> None:
    cluster.start()
    await cluster.ready()
    await SimulatedClient(cluster.addresses).create_topic("first", replication_factor=1)
    await asyncio.sleep(3 * INTERVAL_S)
    assert not snapshots_of(cluster, "n1")


def test_after_a_day_of_small_records_a_start_replays_at_most_an_hour() -> None:
    schedule = SnapshotSchedule.of(
        BrokerConfig.from_properties({"node.id": "1", "listeners": "h:1", "quorum.voters": "1@h:1", "log.dir": "d"})
    )
    schedule.taken(0.0)
    unread = most = taken = 0
    for second in range(86_400):
        schedule.applied(3)
        unread += 1
        most = max(most, unread)
        if schedule.is_due(float(second)):
            schedule.taken(float(second))
            unread = 0
            taken += 1
    assert most <= 3_601
    assert taken == 23


def test_bytes_time_and_a_damaged_snapshot_each_make_one_due() -> None:
    schedule = SnapshotSchedule(100, 10.0)
    schedule.taken(5.0)
    assert not schedule.is_due(1_000.0)
    assert schedule.or_earlier(None) is None, "nothing was applied"
    schedule.applied(0)
    assert not schedule.is_due(14.9)
    assert schedule.or_earlier(None) == schedule.or_earlier(99.0) == 15.0
    assert schedule.or_earlier(7.0) == 7.0
    assert schedule.is_due(15.0)
    schedule.taken(15.0)
    assert not schedule.is_due(1_000.0)
    schedule.applied(99)
    assert not schedule.is_due(15.0)
    schedule.applied(1)
    assert schedule.is_due(15.0)
    schedule.taken(15.0)
    schedule.demand()
    assert schedule.is_due(15.0)
