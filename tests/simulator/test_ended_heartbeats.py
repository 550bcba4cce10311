"""How soon leaderships move: a killed broker's heartbeat connections end in order, and no lease is shared."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from broker.controller.image import MetadataImage
from broker.protocol.messages.metadata_records import NO_LEADER
from simulator.cluster import SimulatedCluster
from simulator.conditions import Conditions
from tests.simulator.stories import started
from tests.simulator.storm import QUICK, TOPIC, storm

IN_ORDER = Conditions(deaths_end_in_order=True)
LEASE_S = 5.0
SETTLED_S = 3.0
LONG = {**QUICK, "broker.session.timeout.ms": "6000", "broker.lease.ms": "5000"}


def moved(image: MetadataImage, dead: int) -> bool:
    """Whether each of the three partitions has a leader, and another one than this broker."""
    return all(partition.leader not in (dead, NO_LEADER) for _, _, partition in image.partitions())


def fail_over_s(
    conditions: Conditions,
    seed: int,
    properties: Mapping[str, str] = LONG,
    end: Callable[[SimulatedCluster, str], object] = SimulatedCluster.kill,
    *,
    controls: bool = False,
) -> float:
    """Virtual seconds from the end of a leader, which is (`controls`) or is not the controller, until other replicas
    lead."""
    with SimulatedCluster(seed, properties=properties, conditions=conditions) as cluster:

        async def story() -> float:
            client = await started(cluster)
            await client.create_topic(TOPIC, partitions=3)
            await asyncio.sleep(SETTLED_S)
            controller = str(cluster.controller())
            leader = controller if controls else next(name for name in cluster.machines if name != controller)
            dead = cluster.machines[leader].node_id
            images = [cluster.node(name).image for name in cluster.machines if name != leader]
            start_s = cluster.loop.time()
            end(cluster, leader)
            await cluster.until(lambda: all(moved(image, dead) for image in images))
            return cluster.loop.time() - start_s

        return cluster.run(story())


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_leaderships_of_a_killed_broker_move_at_once(seed: int) -> None:
    assert fail_over_s(IN_ORDER, seed) < 0.5


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_reset_without_ordered_ends_does_not_shorten_the_lease(seed: int) -> None:
    assert fail_over_s(replace(IN_ORDER, deaths_end_in_order=False), seed) > LEASE_S - 1


@pytest.mark.parametrize("controls", [False, True])
@pytest.mark.parametrize("end", [SimulatedCluster.kill, SimulatedCluster.stand_still])
@pytest.mark.parametrize("seed", range(1, 9))
def test_leaderships_move_in_time_with_default_settings(
    seed: int, end: Callable[[SimulatedCluster, str], object], controls: bool
) -> None:
    bound_s = 1.0 if end is SimulatedCluster.kill else 2.0
    properties = {"default.replication.factor": "3"}
    assert fail_over_s(IN_ORDER, seed, properties, end, controls=controls) < bound_s


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", range(1, 5))
def test_no_lease_is_shared_in_a_storm(seed: int) -> None:
    cluster = storm(seed, seconds=8, conditions=IN_ORDER)
    assert [finding.sentence for finding in cluster.watch.findings.found] == []
