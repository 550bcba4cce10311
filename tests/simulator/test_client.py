"""The pending requests of the simulated client, as in client libraries."""

import asyncio

import pytest

from simulator.client import REFRESH_S, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster

TOPIC = "log"
# No replica leaves the in-sync set, and no other leader is elected, while an append waits.
PATIENT = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "60000",
    "broker.session.timeout.ms": "60000",
}
WAIT_S = 10 * REFRESH_S
CUT_S = 4 * REFRESH_S


@pytest.mark.parametrize("healed", [True, False])
def test_a_leader_query_does_not_end_the_wait_of_an_append(healed: bool) -> None:
    """A leader that is isolated from its followers answers requests behind an append only after the append."""
    with SimulatedCluster(1, properties=PATIENT) as cluster:

        async def story() -> tuple[bool, float]:
            cluster.start()
            await cluster.ready()
            loop, setup = asyncio.get_running_loop(), SimulatedClient(cluster.addresses)
            await setup.create_topic(TOPIC)
            leader = await setup.leader_of(TOPIC, 0)
            client = SimulatedClient({leader: cluster.addresses[leader]})  # queries no other broker for the leader
            followers = [name for name, machine in cluster.machines.items() if machine.node_id != leader]
            cluster.partition([f"n{leader}"], followers)
            asking, begun_s = asyncio.create_task(client.keep_up(TOPIC)), loop.time()
            appending = asyncio.create_task(client.produce(TOPIC, 0, [b"x"], timeout=WAIT_S))
            await asyncio.sleep(CUT_S)
            assert not appending.done()
            if healed:
                cluster.heal()
            (came,) = await asyncio.gather(appending, return_exceptions=True)
            asking.cancel()
            assert came == 0 or isinstance(came, UncertainError)
            return came == 0, loop.time() - begun_s

        acknowledged, took_s = cluster.run(story())
    assert acknowledged is healed
    assert took_s > (CUT_S if healed else WAIT_S)
