"""Stores that are misconfigured or damaged: the topic stays available, and the reason is reported once per change."""

import asyncio

import pytest

from broker.server.metrics import remote_storage_metrics
from broker.trace import Value
from simulator.cluster import SimulatedCluster
from simulator.object_store import StoreFaults
from tests.simulator.stories import in_cluster
from tests.simulator.test_tiered import (
    TIERED,
    TOPIC,
    all_numbers,
    leader,
    only_remote,
    only_remote_topic,
    replicas,
    tiered_topic,
    write,
)

RECORDS = 40


def metrics(cluster: SimulatedCluster, name: str) -> dict[str, float]:
    """The values of one metric on the leader, by operation; those that are not 0."""
    tiered = cluster.node(leader(cluster)).tiered
    assert tiered is not None
    found = [each for each in remote_storage_metrics(tiered) if each.name == name]
    return {str(each.labels["operation"]): each.value for each in found if each.value}


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("failing", "operations"),
    [
        pytest.param({"put": "no space left"}, {"put"}, id="full"),
        pytest.param({"put": "read-only file system", "delete": "read-only file system"}, {"put"}, id="read-only"),
        pytest.param(
            dict.fromkeys(("put", "get", "list", "delete"), "InvalidAccessKeyId"),
            {"put", "list"},
            id="wrong credentials",
        ),
    ],
)
def test_a_store_that_refuses_from_the_start_is_reported_once_and_local_segments_stay(
    failing: dict[str, str], operations: set[str]
) -> None:
    with SimulatedCluster(21, properties=TIERED) as cluster:
        said: list[str] = []
        events: list[dict[str, Value]] = []
        for machine in cluster.machines.values():
            machine.say, machine.trace = said.append, events.append

        async def story() -> None:
            cluster.objects.faults.failing = dict(failing)
            client = await tiered_topic(cluster)
            await write(client, RECORDS)
            await asyncio.sleep(20)
            assert all(it.log.local_start_offset == 0 for it in replicas(cluster).values())
            assert await all_numbers(client) == list(range(RECORDS))
            assert operations <= metrics(cluster, "broker_remote_storage_failing").keys() <= failing.keys()
            counted = metrics(cluster, "broker_remote_storage_failures_total")
            assert min(counted.values()) > 1, "each try counts"
            assert sum(cluster.objects.counts.values()) > 10
            reported = [each for each in events if each["event"] == "remote_storage_failed"]
            assert len(reported) == len({(it["node"], it["operation"], it["reason"]) for it in reported}), "once"
            cluster.objects.faults = StoreFaults()
            await cluster.until(lambda: only_remote(cluster, RECORDS - 10), 60)
            assert metrics(cluster, "broker_remote_storage_failing") == {}
            assert await all_numbers(client) == list(range(RECORDS))

        cluster.run(story())


@pytest.mark.rotating(2, among="long simulations of stores")
@in_cluster(22, properties=TIERED)
async def test_objects_of_another_cluster_stay_and_are_not_read(cluster: SimulatedCluster, /) -> None:
    """Same bucket, same topic name, same topic id and partition: only the cluster's id differs."""
    client = await tiered_topic(cluster)
    await write(client, 8)
    await cluster.until(lambda: len(cluster.objects.segment_objects) >= 4, 60)
    theirs = {f"another-cluster/{name.partition('/')[2]}": b"theirs" for name in cluster.objects.segment_objects}
    stray = {"another-cluster/notes.txt": b"x", "notes.txt": b"y"}
    cluster.objects.objects |= theirs | stray
    await write(client, RECORDS - 8, 8)
    await cluster.until(lambda: only_remote(cluster, RECORDS - 10), 60)
    await asyncio.sleep(30)  # the leaders have searched for objects of no segment
    assert (theirs | stray).items() <= cluster.objects.objects.items()
    assert await all_numbers(client) == list(range(RECORDS))


@pytest.mark.rotating(4)
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "of another file"])
@in_cluster(23, properties=TIERED)
async def test_a_damaged_snapshot_of_the_metadata_is_read_again_from_the_topic(
    cluster: SimulatedCluster, /, damage: str
) -> None:
    client = await only_remote_topic(cluster)
    await cluster.stop()
    damaged = sum(damage_snapshots(cluster, name, damage) for name in cluster.machines)
    assert damaged
    events: list[dict[str, Value]] = []
    for machine in cluster.machines.values():
        machine.trace = events.append
    cluster.start()
    await cluster.ready()
    assert await all_numbers(client) == list(range(RECORDS))
    await write(client, 20, RECORDS)
    await cluster.until(lambda: only_remote(cluster, RECORDS + 10), 60)
    assert await all_numbers(client) == list(range(RECORDS + 20))
    assert [each["event"] for each in events].count("remote_metadata_reread") == damaged


def damage_snapshots(cluster: SimulatedCluster, name: str, damage: str) -> int:
    """Change the snapshots on a machine's disk; returns how many there were."""
    disk, count = cluster.machines[name].disk, 0
    for path in [path for path in disk.list("") if path.startswith("remote-log-metadata-")]:
        file = disk.open(path)
        content = bytearray(file.read(0, file.size()))
        if damage == "flipped":
            at = content.index(b'"base_offset":') + len(b'"base_offset":')
            content[at] ^= 1  # another digit: still JSON
        changed = {"cut": content[:-9], "empty": b"", "of another file": b"0\n1\n0 0\n"}.get(damage, content)
        file.truncate(0)
        file.append([bytes(changed)])
        file.close()
        count += 1
    return count


@pytest.mark.rotating(2, among="long simulations of stores")
@in_cluster(24, properties=TIERED)
async def test_a_lost_store_directory_is_not_an_empty_store(cluster: SimulatedCluster, /) -> None:
    """All objects are gone: the broker reports it, and removes no segment from its metadata."""
    client = await only_remote_topic(cluster)
    kept = dict(cluster.objects.objects)
    cluster.objects.objects.clear()
    await asyncio.sleep(20)
    await write(client, 10, RECORDS)
    cluster.objects.objects |= kept
    assert await all_numbers(client) == list(range(RECORDS + 10))
    assert replicas(cluster)[leader(cluster)].topic == TOPIC
