"""The cluster id: made by the first controller, committed, stored, and queried."""

import pytest

from broker.errors import ErrorCode
from broker.protocol.uuids import parse_id
from broker.quorum.messages import OffsetAndEpoch, VoteRequest
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import in_cluster, started


@pytest.mark.conforms("K595-46", "K595-49")
@pytest.mark.parametrize("seed", range(3))
@in_cluster("seed")
async def test_a_cluster_without_an_id_makes_one_and_keeps_it(cluster: SimulatedCluster, /) -> None:
    client = await started(cluster)
    first = (await client.metadata()).cluster_id
    assert first is not None
    parse_id(first)
    assert [cluster.node(name).cluster_id for name in cluster.machines] == [first] * 3
    cluster.power_loss()
    cluster.start()
    await cluster.ready()
    assert (await client.metadata()).cluster_id == first


@pytest.mark.conforms("K595-46")
def test_two_clusters_have_two_ids() -> None:
    ids = []
    for seed in (1, 2):
        with SimulatedCluster(seed, nodes=1) as cluster:

            async def story(cluster: SimulatedCluster = cluster) -> None:
                cluster.start()
                await cluster.ready()
                ids.append(cluster.node("n1").cluster_id)

            cluster.run(story())
    assert len(set(ids)) == 2


@pytest.mark.conforms("K595-47", "K595-49")
def test_a_node_fetches_without_a_cluster_id_until_it_has_one() -> None:
    voters = ",".join(f"{number}@n{number}:9093" for number in (1, 2, 3))
    with SimulatedCluster(4, nodes=4, properties={"quorum.voters": voters}) as cluster:

        async def story() -> None:
            cluster.start("n1", "n2", "n3")
            await cluster.ready(["n1", "n2", "n3"])
            late = cluster.machines["n4"]
            cluster.start("n4")
            await cluster.until(lambda: late.node is not None)
            node = cluster.node("n4")
            assert node.cluster_id is None
            await cluster.ready()
            assert node.cluster_id == cluster.node("n1").cluster_id
            stranger = VoteRequest("another", 1, 0, OffsetAndEpoch(-1, 0), pre_vote=True)
            assert (await node.quorum.receive(stranger)).error is ErrorCode.INCONSISTENT_CLUSTER_ID

        cluster.run(story())
