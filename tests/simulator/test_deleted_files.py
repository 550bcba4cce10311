"""Files of removed segments through power cuts and deletions of their topic, in virtual time."""

import asyncio

import pytest

from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import in_cluster, started

DELAY_S = 60.0
RECORDS = 20
PROPERTIES = {"log.retention.bytes": "0", "log.retention.check.interval.ms": "1000", "log.segment.bytes": "4096"}


def deleted(cluster: SimulatedCluster, name: str) -> list[str]:
    return [it for it in cluster.machines[name].disk.list("log-0") if it.endswith(".deleted")]


async def with_removed_segments(cluster: SimulatedCluster) -> None:
    """A topic whose retention removes every complete segment."""
    client = await started(cluster)
    await client.create_topic("log")
    for number in range(RECORDS):
        await client.produce("log", 0, [b"%01000d" % number])
    await asyncio.sleep(5)
    assert all(deleted(cluster, name) for name in cluster.machines), "on the leader and on followers"


@pytest.mark.conforms("LOG-7")
@pytest.mark.parametrize("seed", range(3))
@in_cluster("seed", properties=PROPERTIES)
async def test_files_are_unlinked_after_the_delay_and_by_a_start_after_a_power_cut(
    cluster: SimulatedCluster, /
) -> None:
    await with_removed_segments(cluster)
    cluster.power_loss("n1")
    cluster.restore_power("n1")
    cluster.start("n1")
    await cluster.ready()
    assert not deleted(cluster, "n1")
    assert deleted(cluster, "n2")
    await asyncio.sleep(DELAY_S)
    assert not any(deleted(cluster, name) for name in cluster.machines)
    assert await SimulatedClient(cluster.addresses).produce("log", 0, [b"last"]) == RECORDS
