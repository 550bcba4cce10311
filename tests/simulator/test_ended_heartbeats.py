"""A killed broker's heartbeat connection ends in order: its leaderships move at once, and no lease is shared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from simulator.conditions import Conditions
from tests.simulator.storm import QUICK, TOPIC, storm

IN_ORDER = Conditions(deaths_end_in_order=True)
LEASE_S = 5.0
LONG = {**QUICK, "broker.session.timeout.ms": "6000", "broker.lease.ms": "5000"}


def fail_over_s(conditions: Conditions, seed: int) -> float:
    """Virtual seconds from the kill of a leader, which is not the controller, until another replica leads."""
    with SimulatedCluster(seed, properties=LONG, conditions=conditions) as cluster:

        async def story() -> float:
            cluster.start()
            await cluster.ready()
            client = SimulatedClient(cluster.addresses)
            await client.create_topic(TOPIC, partitions=3)
            controller = str(cluster.controller())
            leader = next(name for name in cluster.machines if name != controller)
            dead = cluster.machines[leader].node_id
            started = cluster.loop.time()
            cluster.kill(leader)
            image = cluster.node(controller).image
            await cluster.until(lambda: all(image.partition(TOPIC, index).leader != dead for index in range(3)))  # type: ignore[union-attr]
            return cluster.loop.time() - started

        return cluster.run(story())


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_leaderships_of_a_killed_broker_move_at_once(seed: int) -> None:
    assert fail_over_s(IN_ORDER, seed) < 0.5


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_reset_without_ordered_ends_does_not_shorten_the_lease(seed: int) -> None:
    assert fail_over_s(replace(IN_ORDER, deaths_end_in_order=False), seed) > LEASE_S - 1


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", range(1, 5))
def test_no_lease_is_shared_in_a_storm(seed: int) -> None:
    cluster = storm(seed, seconds=8, conditions=IN_ORDER)
    assert [finding.sentence for finding in cluster.watch.findings.found] == []
