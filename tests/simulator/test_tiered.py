"""Tiered storage on simulated brokers with a simulated object store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from broker.replica.partition import Partition
from broker.tiered.segments import SegmentState
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster

TOPIC = "log"
TIERED = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "remote.log.storage.system.enable": "true",
    "rsm.config.url": "file:///unused",
    "rsm.config.timeout.ms": "2000",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
}
SETTINGS = {"remote.storage.enable": "true", "segment.bytes": "4096", "local.retention.bytes": "1"}
VALUE = b"v" * 500


async def tiered_topic(
    cluster: SimulatedCluster, settings: Mapping[str, str] = SETTINGS, partitions: int = 1
) -> SimulatedClient:
    cluster.start()
    await cluster.ready()
    client = SimulatedClient(cluster.addresses)
    await client.create_topic(TOPIC, partitions, configs=settings)
    return client


def replicas(cluster: SimulatedCluster) -> dict[str, Partition]:
    """The running replicas of the topic's first partition, by machine."""
    running = [name for name in cluster.machines if cluster.machines[name].node is not None]
    found = {name: cluster.node(name).replicas.partition(TOPIC, 0) for name in running}
    return {name: partition for name, partition in found.items() if partition is not None}


async def write(client: SimulatedClient, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await client.produce(TOPIC, 0, [b"%d " % number + VALUE])


def only_remote(cluster: SimulatedCluster, records: int) -> bool:
    """Whether every replica has removed the local copies of these first records."""
    return all(it.log.local_start_offset >= records for it in replicas(cluster).values())


def test_closed_segments_are_uploaded_and_local_copies_removed_on_every_replica() -> None:
    with SimulatedCluster(1, properties=TIERED) as cluster:

        async def story() -> None:
            client = await tiered_topic(cluster)
            await write(client, 40)
            await cluster.until(lambda: only_remote(cluster, 30), 60)
            for partition in replicas(cluster).values():
                assert partition.log.log_start_offset == 0
                assert partition.remote is not None
                tiered = partition.remote.highest_tiered()
                assert tiered is not None
                assert partition.log.local_start_offset <= tiered.offset + 1 <= partition.high_watermark
            node = cluster.node("n1")
            assert node.tiered is not None
            partition = replicas(cluster)["n1"]
            manifest = node.tiered.metadata.manifest((partition.topic_id, 0))
            assert {each.state for each in manifest} == {SegmentState.COPY_FINISHED}
            assert len(cluster.objects.objects) == 4 * len(manifest)

        cluster.run(story())


def test_with_the_default_local_retention_nothing_local_is_removed() -> None:
    with SimulatedCluster(2, properties=TIERED) as cluster:

        async def story() -> None:
            client = await tiered_topic(cluster, {"remote.storage.enable": "true", "segment.bytes": "4096"})
            await write(client, 40)
            await cluster.until(lambda: cluster.objects.counts["put"] >= 16, 60)
            await asyncio.sleep(10)
            assert all(it.log.local_start_offset == 0 for it in replicas(cluster).values())

        cluster.run(story())
