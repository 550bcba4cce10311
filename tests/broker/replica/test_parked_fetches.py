"""Parked fetches: they miss no record, cost little, and leave no state."""

import asyncio

from broker.mutants import Mutants
from broker.replica.reads import FetchLimits, FetchPosition, PartitionReader
from tests.broker.replica.cluster import TOPIC, Cluster, Node, batch, tell, until, values_of
from tests.stories import played_by

STORIES = played_by(tell, "tmp_path")
AT_THE_END = [FetchPosition(TOPIC, 0, 0, 1 << 20)]
LONG = 600.0  # seconds


async def leads_alone(cluster: Cluster) -> Node:
    await cluster.start(1)
    await cluster.create_topic([1])
    return cluster.nodes[1]


async def test_a_parked_fetch_is_not_read_again_without_new_records(cluster: Cluster, /) -> None:
    node = await leads_alone(cluster)
    readings = 0

    def lease_valid() -> bool:  # asked with each reading
        nonlocal readings
        readings += 1
        return True

    parked = node.partition().consumer_fetches
    reader = PartitionReader(lambda *_: node.partition(), lease_valid, lambda *_: None, Mutants())
    limits = FetchLimits(max_wait=LONG)
    assert reader.fetch_now(limits, AT_THE_END) is None
    waiting = asyncio.ensure_future(reader.wait_for_fetch(limits, AT_THE_END))
    await until(lambda: len(parked) == 1)
    assert readings == 1
    await node.produce("a")
    (read,) = await waiting
    assert values_of(read) == ["a"]
    assert readings == 2
    assert len(parked) == 0


async def test_records_appended_before_the_first_turn_of_a_parked_fetch_are_found(cluster: Cluster, /) -> None:
    node = await leads_alone(cluster)
    limits = FetchLimits(max_wait=LONG)
    assert node.manager.fetch_now(limits, AT_THE_END) is None
    waiting = node.manager.wait_for_fetch(limits, AT_THE_END)
    node.manager.append(TOPIC, 0, batch("a"), 1, 5.0)
    async with asyncio.timeout(60):
        (read,) = await waiting
    assert values_of(read) == ["a"]


async def test_a_follower_that_has_news_right_behind_its_fetch_is_answered(cluster: Cluster, /) -> None:
    await cluster.start(1)
    await cluster.create_topic([1, 2])
    manager = cluster.nodes[1].manager
    limits = FetchLimits(replica_id=2, replica_epoch=1, max_wait=LONG)
    positions = [FetchPosition(TOPIC, 0, 0, 1 << 20, current_leader_epoch=0)]
    assert manager.fetch_now(limits, positions) is None
    waiting = asyncio.ensure_future(manager.wait_for_fetch(limits, positions))
    manager.answer_parked_fetches(2)
    async with asyncio.timeout(60):
        (read,) = await waiting
    assert (read.size, read.settled) == (0, False)


async def test_a_fetch_of_a_closed_connection_leaves_no_state(cluster: Cluster, /) -> None:
    node = await leads_alone(cluster)
    limits = FetchLimits(max_wait=0.001)
    assert node.manager.fetch_now(limits, AT_THE_END) is None
    asyncio.ensure_future(node.manager.wait_for_fetch(limits, AT_THE_END)).cancel()
    parked = node.partition().consumer_fetches
    assert len(parked) == 1
    await until(lambda: len(parked) == 0)
