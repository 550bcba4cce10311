"""What the metadata of remote segments do not say: no object is deleted because of it, and it is reported."""

import asyncio
import contextlib
import json
import random

import pytest

from broker.errors import ErrorCode
from broker.protocol.records import Record, build_batch
from broker.replica.partition import ALL
from broker.tiered.metadata_topic import metadata_partition
from broker.tiered.remote_storage_rules import METADATA_TOPIC
from broker.tiered.segments import LOG, SUFFIXES
from broker.tiered.tiered_storage import TieredStorage
from simulator.client import NoResultError, RefusedError, SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.object_store import StoreFaults
from tests.simulator.stories import in_cluster
from tests.simulator.test_tiered import (
    TIERED,
    TOPIC,
    VALUE,
    first_answer,
    leader,
    only_remote,
    only_remote_topic,
    replicas,
    tiered_topic,
    write,
)

LISTED_S = 15
"""More than the interval between two comparisons of the store with the metadata."""


def tiered(cluster: SimulatedCluster) -> TieredStorage:
    found = cluster.node(leader(cluster)).tiered
    assert found is not None
    return found


def segment_objects(cluster: SimulatedCluster) -> dict[str, bytes]:
    return dict(cluster.objects.segment_objects)


def lose_metadata(cluster: SimulatedCluster) -> None:
    """Remove the files of the metadata topic on all machines, which are down."""
    for machine in cluster.machines.values():
        content = machine.disk.image()
        machine.disk.replace([(path, data) for path, data in content if METADATA_TOPIC not in path])


@pytest.mark.conforms("K405-1")
@pytest.mark.parametrize("seed", range(2))
@in_cluster("seed", properties=TIERED)
async def test_lost_metadata_delete_no_object_and_move_no_log_start(cluster: SimulatedCluster, /) -> None:
    client = await only_remote_topic(cluster)
    before = segment_objects(cluster)
    cluster.kill()
    lose_metadata(cluster)
    cluster.start()
    await cluster.until(lambda: any(it.serving is not None for it in replicas(cluster).values()))
    await cluster.until(lambda: tiered(cluster).unknown_objects > 0, 60)
    await asyncio.sleep(LISTED_S)
    assert before.items() <= segment_objects(cluster).items()
    assert tiered(cluster).unknown_objects == len(before), "the objects of later uploads are known"
    assert {it.log.log_start_offset for it in replicas(cluster).values()} == {0}
    await client.refresh(TOPIC)
    assert await first_answer(client) is ErrorCode.KAFKA_STORAGE_ERROR
    await write(client, 5, first=100)


@pytest.mark.conforms("K405-1")
@in_cluster(3, properties=TIERED)
async def test_an_event_that_no_broker_can_read_blocks_deletion(cluster: SimulatedCluster, /) -> None:
    """An event of a later version may be of any segment. DeleteRecords moves the start, and everything stays."""
    client = await only_remote_topic(cluster)
    before = segment_objects(cluster)
    await publish_in_format_3(cluster)
    await asyncio.sleep(2)
    manager = cluster.node(leader(cluster)).replicas
    assert await manager.delete_records(TOPIC, 0, 30) == (ErrorCode.NONE, 30)
    local = {name: it.log.local_start_offset for name, it in replicas(cluster).items()}
    await write(client, 20, first=100)
    await asyncio.sleep(LISTED_S)
    assert before.items() < segment_objects(cluster).items(), "uploads continue"
    assert {name: it.log.local_start_offset for name, it in replicas(cluster).items()} == local
    assert tiered(cluster).metadata.unreadable_partitions == 1


async def publish_in_format_3(cluster: SimulatedCluster) -> None:
    key = (replicas(cluster)[leader(cluster)].topic_id, 0)
    index = metadata_partition(key, tiered(cluster).metadata.partitions)
    record = Record(0, 0, None, json.dumps({"format": 3, "state": "MOVED"}).encode())
    for name in cluster.machines:
        manager = cluster.node(name).replicas
        answer = await manager.produce(METADATA_TOPIC, index, bytearray(build_batch([record])), ALL, 5.0)
        if answer.error is ErrorCode.NONE:
            return
    raise AssertionError("no broker leads the partition")


async def two_tiered_partitions(cluster: SimulatedCluster) -> SimulatedClient:
    """Records of the same size in both, most of them only in the store."""
    client = await tiered_topic(cluster, partitions=2)
    for number in range(40):
        for partition in range(2):
            await client.produce(TOPIC, partition, [b"%d of %d " % (number, partition) + VALUE])
    await cluster.until(lambda: only_remote(cluster, 30), 60)
    return client


@pytest.mark.kills("sweep_by_manifest", "digest_unchecked")
@pytest.mark.conforms("K405-1", "K405-2")
@pytest.mark.parametrize("mutants", [(), ("sweep_by_manifest",), ("digest_unchecked",)])
@in_cluster(6, properties=TIERED, mutants="mutants")
async def test_a_mixed_up_store_loses_no_object_and_returns_no_foreign_record(
    cluster: SimulatedCluster, /, mutants: tuple[str, ...]
) -> None:
    """Two partitions with records of the same size; a new leader has no remote record in memory."""
    client = await two_tiered_partitions(cluster)
    first = leader(cluster)
    assert await cluster.objects.put_strays(random.Random(6)) == len(SUFFIXES)
    kept = set(segment_objects(cluster))
    cluster.objects.faults.mixed = True
    cluster.kill(first)
    await cluster.until(lambda: any(it.serving is not None for it in replicas(cluster).values()))
    await client.refresh(TOPIC)
    values: list[bytes] = []
    for _ in range(3):
        with contextlib.suppress(RefusedError):
            values += [it.value or b"" for it in (await client.fetch(TOPIC, 0, 0, max_wait=1.0)).records]
    await asyncio.sleep(LISTED_S)
    assert (not all(b" of 0 " in value for value in values)) == (mutants == ("digest_unchecked",))
    assert (not kept <= set(segment_objects(cluster))) == (mutants == ("sweep_by_manifest",))


@pytest.mark.kills("digest_unchecked")
@pytest.mark.conforms("K405-2")
@pytest.mark.parametrize("mutants", [(), ("digest_unchecked",)])
@pytest.mark.parametrize("seed", range(2), ids=["log-0 damaged", "log-1 damaged"])
@in_cluster(6, properties=TIERED, mutants="mutants")
async def test_a_segment_that_is_replaced_at_rest_is_unreadable_until_the_heal(
    cluster: SimulatedCluster, /, mutants: tuple[str, ...], seed: int
) -> None:
    """Two partitions with records of the same size; a new leader has no remote record in memory."""
    client = await two_tiered_partitions(cluster)
    store = cluster.objects
    of_log = [name for name in sorted(store.segment_objects) if f"/{seed}/" in name and name.endswith(LOG)]
    damaged = store.damaged("replaced", sorted(n for n in store.segment_objects if n.endswith(LOG)).index(of_log[0]))
    assert next(iter(damaged)) == of_log[0]
    cluster.kill(leader(cluster))
    store.reasons["replaced"] = StoreFaults(damaged=damaged)
    await cluster.until(lambda: any(it.serving is not None for it in replicas(cluster).values()))
    await client.refresh(TOPIC)

    async def first_values() -> list[bytes]:
        for _ in range(3):
            with contextlib.suppress(RefusedError):
                read = await client.fetch(TOPIC, seed, 0, max_wait=1.0)
                if read.records:
                    return [it.value or b"" for it in read.records]
            await asyncio.sleep(1)
        return []

    foreign = [value for value in await first_values() if b" of %d " % seed not in value]
    assert bool(foreign) == bool(mutants)
    del store.reasons["replaced"]
    if not mutants:
        values = await first_values()
        assert values
        assert all(b" of %d " % seed in value for value in values)


@pytest.mark.kills("auxiliary_not_uploaded")
@pytest.mark.conforms("K405-3")
@pytest.mark.parametrize(("mutants", "suffixes"), [((), SUFFIXES), (("auxiliary_not_uploaded",), SUFFIXES[:2])])
@in_cluster(5, properties=TIERED, mutants="mutants")
async def test_a_finished_segment_has_all_its_objects(cluster: SimulatedCluster, /, suffixes: tuple[str, ...]) -> None:
    await only_remote_topic(cluster)
    assert {f".{name.rpartition('.')[2]}" for name in segment_objects(cluster)} == set(suffixes)


@in_cluster(4, properties=TIERED)
async def test_clients_cannot_produce_to_the_metadata_topic(cluster: SimulatedCluster, /) -> None:
    await only_remote_topic(cluster)
    client = SimulatedClient(cluster.addresses)
    with pytest.raises(NoResultError, match="INVALID_TOPIC_EXCEPTION"):
        await client.produce(METADATA_TOPIC, 0, [b"{}"])
