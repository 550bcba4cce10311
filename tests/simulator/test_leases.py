"""No reader is told what is out of date: a lease ends before anyone else leads, whatever a probe says of its holder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.readers import Readers

TOPIC, PARTITIONS, FAULTS = "log", 2, 6
PROPERTIES = {"min.insync.replicas": "2", "default.replication.factor": "3"}
# Producers that give up soon find the new leader while the old one could still answer.
PRODUCE_TIMEOUT_S = 0.3

Fault = Callable[[SimulatedCluster], Awaitable[None]]


async def reject_one(cluster: SimulatedCluster) -> None:
    """A firewall answers for one broker: who asks the others is refused, as if nobody listened."""
    names = cluster.rng.sample(sorted(cluster.machines), 3)
    cluster.partition(names[:1], names[1:], reject=True)


async def restart_unheard(cluster: SimulatedCluster) -> None:
    """A broker asks to be let go, and hears no answer."""
    names = cluster.rng.sample(sorted(cluster.machines), 3)
    controller = cluster.controller() or names[0]
    leaving = next(name for name in names if name != controller)
    cluster.cut(controller, leaving)
    await cluster.stop(leaving)


async def produce(cluster: SimulatedCluster, readers: Readers, number: int) -> None:
    """Append for ever, and tell the readers what was acknowledged."""
    client = SimulatedClient(cluster.addresses)
    for sequence in range(1 << 30):
        partition = sequence % PARTITIONS
        try:
            base = await client.produce(TOPIC, partition, [b"%d-%d" % (number, sequence)], timeout=PRODUCE_TIMEOUT_S)
        except UncertainError:
            continue
        except RefusedError:
            await asyncio.sleep(0.05)
            continue
        readers.acknowledged(partition, base + 1)
        await asyncio.sleep(0.02)


def run(seed: int, fault: Fault, *mutants: str) -> Readers:
    """Faults under load; the readers, who have been told everything that they will be."""
    with SimulatedCluster(seed, properties=PROPERTIES, mutants=mutants) as cluster:

        async def story() -> Readers:
            cluster.start()
            await cluster.ready()
            client = SimulatedClient(cluster.addresses)
            await client.create_topic(TOPIC, PARTITIONS)
            readers = Readers(client, sorted(cluster.addresses), TOPIC, PARTITIONS)
            producers = [asyncio.create_task(produce(cluster, readers, number)) for number in range(2)]
            for _ in range(FAULTS):
                await asyncio.sleep(cluster.rng.uniform(0.2, 2.0))
                await fault(cluster)
                await asyncio.sleep(cluster.rng.uniform(1.0, 6.0))
                cluster.heal()
                cluster.start()
                await cluster.ready()
            for task in producers:
                task.cancel()
            await asyncio.gather(*producers, return_exceptions=True)
            await readers.stop()
            return readers

        return cluster.run(story())


@pytest.mark.conforms("H31")
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("fault", [reject_one, restart_unheard])
def test_no_answer_is_stale(fault: Fault, seed: int) -> None:
    readers = run(seed, fault)
    assert readers.stale == []
    assert readers.answers > 100, "few answers show little"


@pytest.mark.parametrize(
    ("fault", "mutant"),
    [
        pytest.param(reject_one, "refused_is_dead", marks=pytest.mark.kills("refused_is_dead")),
        pytest.param(restart_unheard, "leave_under_lease", marks=pytest.mark.kills("leave_under_lease")),
    ],
)
def test_a_reader_sees_a_lease_that_outlives_a_leadership(fault: Fault, mutant: str) -> None:
    found = next(readers.stale for seed in range(1, 9) if (readers := run(seed, fault, mutant)).stale)
    assert "was known" in found[0]
