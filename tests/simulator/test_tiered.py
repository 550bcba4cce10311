"""Tiered storage on simulated brokers with a simulated object store."""

import asyncio
import random
from collections.abc import Mapping

import pytest

from analysis.core.remote_rules import out_of_bounds
from broker.errors import ErrorCode
from broker.protocol.messages.config_apis import (
    SET,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from broker.protocol.messages.metadata_records import TOPIC_RESOURCE
from broker.protocol.messages.topic_apis import DeleteTopicsRequest, DeleteTopicState
from broker.protocol.request import Request, Response
from broker.replica.partition import Partition
from broker.server.client import PeerConnector
from broker.tiered.segments import LOG, SegmentState
from broker.trace import Value
from simulator.client import RefusedError, SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import in_cluster, started

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
    client = await started(cluster)
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


@in_cluster(1, properties=TIERED)
async def test_closed_segments_are_uploaded_and_local_copies_removed_on_every_replica(
    cluster: SimulatedCluster, /
) -> None:
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
    assert len(cluster.objects.segment_objects) == 4 * len(manifest)


@in_cluster(2, properties=TIERED)
async def test_with_the_default_local_retention_every_local_segment_stays(cluster: SimulatedCluster, /) -> None:
    client = await tiered_topic(cluster, {"remote.storage.enable": "true", "segment.bytes": "4096"})
    await write(client, 40)
    await cluster.until(lambda: cluster.objects.counts["put"] >= 16, 60)
    await asyncio.sleep(10)
    assert all(it.log.local_start_offset == 0 for it in replicas(cluster).values())


async def ask(cluster: SimulatedCluster, request: Request[Response], version: int) -> Response:
    """The active controller's answer to an administrator."""
    peers = PeerConnector(-2, cluster.addresses, response_max_bytes=1 << 20)
    controller = cluster.controller()
    assert controller is not None
    answer = await peers.request(cluster.machines[controller].node_id, request, 5.0, version)
    peers.close()
    return answer


async def alter(cluster: SimulatedCluster, **settings: str) -> None:
    entries = [IncrementalAlterableConfig(name.replace("_", "."), SET, value) for name, value in settings.items()]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC_RESOURCE, TOPIC, entries)])
    answer = await ask(cluster, request, 1)
    assert answer.responses[0].error_code == ErrorCode.NONE, answer.responses[0].error_message


def leader(cluster: SimulatedCluster) -> str:
    """The machine that leads the topic's first partition."""
    return next(name for name, it in replicas(cluster).items() if it.serving is not None)


def numbers(values: list[bytes]) -> list[int]:
    return [int(value.split(b" ")[0]) for value in values]


async def all_numbers(client: SimulatedClient, timeout: float = 60) -> list[int]:
    """The numbers of all records, read from the log's start."""
    return numbers([record.value or b"" for record in await client.read_all(TOPIC, 0, timeout)])


async def only_remote_topic(cluster: SimulatedCluster, records: int = 40) -> SimulatedClient:
    client = await tiered_topic(cluster)
    await write(client, records)
    await cluster.until(lambda: only_remote(cluster, records - 10), 60)
    return client


async def first_answer(client: SimulatedClient) -> ErrorCode:
    """The error of a fetch at offset 0, which must return no record."""
    try:
        fetched = await client.fetch(TOPIC, 0, 0, max_wait=1.0)
    except RefusedError as refused:
        return refused.code
    assert not fetched.records
    return ErrorCode.NONE


@pytest.mark.parametrize("seed", range(3))
@in_cluster("seed", properties={**TIERED, "remote.log.reader.chunk.bytes": "4096"})
async def test_a_consumer_reads_from_the_start_across_the_boundary(cluster: SimulatedCluster, /) -> None:
    client = await only_remote_topic(cluster, 60)
    assert await all_numbers(client) == list(range(60))
    fetched = await client.fetch(TOPIC, 0, 17, max_wait=5.0)
    assert numbers([record.value or b"" for record in fetched.records])[0] == 17


@pytest.mark.conforms("K1023-15")
@in_cluster(4, properties=TIERED)
async def test_every_replica_serves_remote_records_when_it_leads(cluster: SimulatedCluster, /) -> None:
    client = await only_remote_topic(cluster)
    led: set[str] = set()
    for _ in range(3):
        first = leader(cluster)
        led.add(first)
        assert await all_numbers(client) == list(range(40))
        await cluster.stop(first)
        await cluster.until(lambda: any(it.serving is not None for it in replicas(cluster).values()))
        cluster.start(first)
        await cluster.ready()
        await cluster.until(lambda: all(it.role is not None for it in replicas(cluster).values()))
        await asyncio.sleep(3)
    assert len(led) > 1


@in_cluster(5, properties={**TIERED, "log.flush.interval.messages": "1"})
async def test_all_brokers_lose_power_and_the_log_is_whole(cluster: SimulatedCluster, /) -> None:
    client = await only_remote_topic(cluster)
    cluster.power_loss()
    cluster.start()
    await cluster.ready()
    assert await all_numbers(client) == list(range(40))
    await write(client, 20, 40)
    await cluster.until(lambda: only_remote(cluster, 50), 60)
    assert await all_numbers(client) == list(range(60))


@in_cluster(5, properties={**TIERED, "log.flush.interval.messages": "1"})
async def test_the_first_traced_bounds_after_a_restart_are_those_of_the_known_log(cluster: SimulatedCluster, /) -> None:
    await only_remote_topic(cluster)
    events: dict[str, list[dict[str, Value]]] = {name: [] for name in cluster.machines}
    for name, machine in cluster.machines.items():
        machine.trace = events[name].append
    cluster.power_loss()
    cluster.start()
    await cluster.ready()
    await asyncio.sleep(10)
    for name, traced in events.items():
        assert any(each["event"] == "replica_starts" for each in traced)
        assert list(out_of_bounds(name, traced)) == []


@in_cluster(6, properties=TIERED)
async def test_while_the_store_fails_the_topic_stays_available_and_local_segments_stay(
    cluster: SimulatedCluster, /
) -> None:
    cluster.objects.faults.failing = {"put": "no space left"}
    client = await tiered_topic(cluster)
    await write(client, 40)
    await asyncio.sleep(20)
    assert all(it.log.local_start_offset == 0 for it in replicas(cluster).values())
    assert await all_numbers(client) == list(range(40))
    node = cluster.node(leader(cluster))
    assert node.tiered is not None
    assert set(node.tiered.store.failures) == {("put", "no space left")}
    assert cluster.objects.counts["put"] > 3
    cluster.objects.faults.failing = {}
    await cluster.until(lambda: only_remote(cluster, 30), 60)
    assert node.tiered.store.failing == {}
    assert await all_numbers(client) == list(range(40))


@pytest.mark.parametrize("fault", ["failing", "hung"])
@in_cluster(7, properties=TIERED)
async def test_remote_records_are_refused_while_the_store_is_down_and_local_ones_are_served(
    cluster: SimulatedCluster, /, fault: str
) -> None:
    client = await only_remote_topic(cluster)
    if fault == "hung":
        cluster.objects.faults.hung = True
    else:
        cluster.objects.faults.failing = {"get": "unreachable"}
    local = max(it.log.local_start_offset for it in replicas(cluster).values())
    assert (await client.fetch(TOPIC, 0, local)).records
    answers = [await first_answer(client) for _ in range(8)]
    assert set(answers) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    assert ErrorCode.KAFKA_STORAGE_ERROR in answers
    cluster.objects.faults.failing, cluster.objects.faults.hung = {}, False
    assert await all_numbers(client) == list(range(40))


@in_cluster(8, properties=TIERED)
async def test_damaged_remote_bytes_are_never_served(cluster: SimulatedCluster, /) -> None:
    client = await only_remote_topic(cluster)
    name = next(name for name in sorted(cluster.objects.objects) if name.endswith(LOG))
    intact = cluster.objects.objects[name]
    damaged = bytearray(intact)
    damaged[100] ^= 1
    cluster.objects.objects[name] = bytes(damaged)
    answers = [await first_answer(client) for _ in range(4)]
    assert ErrorCode.KAFKA_STORAGE_ERROR in answers
    del cluster.objects.objects[name]
    answers = [await first_answer(client) for _ in range(4)]
    assert ErrorCode.KAFKA_STORAGE_ERROR in answers
    cluster.objects.objects[name] = intact
    assert await all_numbers(client) == list(range(40))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("partial", [0.0, 1.0])
@in_cluster("seed", properties=TIERED)
async def test_a_leader_killed_during_an_upload_leaves_no_object(
    cluster: SimulatedCluster, /, seed: int, partial: float
) -> None:
    client = await tiered_topic(cluster)
    await write(client, 40)
    cluster.objects.faults.partial = partial
    before = cluster.objects.counts["put"]
    await cluster.until(lambda: cluster.objects.counts["put"] > before + seed)
    first = leader(cluster)
    cluster.kill(first)
    cluster.objects.faults.partial = 0.0
    await cluster.until(lambda: any(it.serving is not None for it in replicas(cluster).values()))
    cluster.start(first)
    await cluster.until(lambda: only_remote(cluster, 30), 120)
    await asyncio.sleep(15)
    node = cluster.node(leader(cluster))
    assert node.tiered is not None
    partition = replicas(cluster)["n1"]
    manifest = node.tiered.metadata.manifest((partition.topic_id, 0))
    assert {each.state for each in manifest} == {SegmentState.COPY_FINISHED}
    cluster_id = node.cluster_id
    assert cluster_id is not None
    expected = sorted(name for each in manifest for name in each.object_names(cluster_id))
    assert sorted(cluster.objects.segment_objects) == expected
    assert await all_numbers(client) == list(range(40))


@in_cluster(13, properties={**TIERED, "log.flush.interval.messages": "1"})
async def test_records_that_rotted_on_the_leader_are_not_uploaded(cluster: SimulatedCluster, /) -> None:
    """The other replicas have them, and would remove their copies."""
    client = await tiered_topic(cluster, {"segment.bytes": "4096"})
    await write(client, 24)
    first = leader(cluster)
    disk = cluster.machines[first].disk
    assert disk.flip(random.Random(1), [replicas(cluster)[first].log.segments[1].path]) is not None
    await alter(cluster, **{"remote.storage.enable": "true", "local.retention.bytes": "1"})
    await cluster.until(lambda: not cluster.machines[first].running)
    cluster.start(first)
    await cluster.until(lambda: len(replicas(cluster)) == 3 and only_remote(cluster, 17), 60)
    assert await all_numbers(client) == list(range(24))


@in_cluster(9, properties=TIERED)
async def test_total_retention_deletes_remote_segments_and_their_objects(cluster: SimulatedCluster, /) -> None:
    client = await only_remote_topic(cluster)
    await alter(cluster, **{"retention.bytes": "9000"})
    await cluster.until(lambda: all(it.log.log_start_offset > 15 for it in replicas(cluster).values()), 60)
    start = replicas(cluster)["n1"].log.log_start_offset
    await cluster.until(lambda: _first_object(cluster) >= start - 8, 60)
    found = await client.fetch(TOPIC, 0, start, max_wait=5.0)
    assert numbers([record.value or b"" for record in found.records])[0] == start
    with pytest.raises(RefusedError, match="OFFSET_OUT_OF_RANGE"):
        await client.fetch(TOPIC, 0, start - 1)


def _first_object(cluster: SimulatedCluster) -> int:
    bases = [int(name.rpartition("/")[2].partition("-")[0]) for name in cluster.objects.segment_objects]
    return min(bases, default=1 << 62)


@in_cluster(10, properties=TIERED)
async def test_delete_records_deletes_remote_segments(cluster: SimulatedCluster, /) -> None:
    await only_remote_topic(cluster)
    error, start = await cluster.node(leader(cluster)).replicas.delete_records(TOPIC, 0, 20)
    assert (error, start) == (ErrorCode.NONE, 20)
    await cluster.until(lambda: _first_object(cluster) >= 12, 60)
    await cluster.until(lambda: all(it.log.log_start_offset == 20 for it in replicas(cluster).values()), 60)


@in_cluster(11, properties=TIERED)
async def test_a_deleted_topic_leaves_no_object(cluster: SimulatedCluster, /) -> None:
    await only_remote_topic(cluster)
    assert cluster.objects.segment_objects
    await ask(cluster, DeleteTopicsRequest(topics=[DeleteTopicState(TOPIC)], timeout_ms=5000), 6)
    await cluster.until(lambda: not cluster.objects.segment_objects, 60)


@in_cluster(12, properties=TIERED)
async def test_switched_off_and_on_again_only_new_copies_count(cluster: SimulatedCluster, /) -> None:
    client = await only_remote_topic(cluster)
    await alter(cluster, **{"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
    await cluster.until(lambda: not cluster.objects.segment_objects, 60)
    await cluster.until(lambda: all(it.log.log_start_offset > 0 for it in replicas(cluster).values()))
    start = replicas(cluster)[leader(cluster)].log.log_start_offset
    await alter(cluster, **{"remote.storage.enable": "true"})
    await write(client, 30, 40)
    await cluster.until(lambda: only_remote(cluster, 60), 60)
    fetched = await client.fetch(TOPIC, 0, start, max_wait=5.0)
    assert numbers([record.value or b"" for record in fetched.records])[0] == start
