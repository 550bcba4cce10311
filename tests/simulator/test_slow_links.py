"""Followers catch up however slow their link is: an answer that takes longer than any timeout counts as it comes."""

from broker.protocol.messages.metadata_records import NoOpRecord, encode_record
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import in_cluster, started

PARTITIONS = 12
RECORD = bytes(60_000)
PROPERTIES = {"min.insync.replicas": "2", "default.replication.factor": "3"}


@in_cluster(1, properties=PROPERTIES)
async def test_a_replica_catches_up_over_a_link_on_which_one_answer_takes_longer_than_its_timeout(
    cluster: SimulatedCluster, /
) -> None:
    client = await started(cluster)
    await client.create_topic("log", PARTITIONS)
    await cluster.stop("n3")
    client = SimulatedClient(cluster.addresses)
    for partition in range(PARTITIONS):
        for _ in range(4):
            await client.produce("log", partition, [RECORD], timeout=10.0)
    for leader in ("n1", "n2"):
        cluster.slow_down(leader, "n3", PARTITIONS * 4 * len(RECORD) / 20)
    cluster.start("n3")
    began = cluster.loop.time()

    def all_in_sync() -> bool:
        controller = cluster.controller()
        if controller is None:
            return False
        topic = cluster.node(controller).image.topics["log"]
        return all(len(partition.isr) == 3 for partition in topic.partitions.values())

    # Two leaders send at this rate: ten seconds would do without anything else on the links.
    await cluster.until(all_in_sync, 60.0)
    assert cluster.loop.time() - began > 5.0, "the link was slow"


@in_cluster(1, properties=PROPERTIES)
async def test_a_voter_catches_up_over_a_slow_link(cluster: SimulatedCluster, /) -> None:
    cluster.start()
    await cluster.ready()
    cluster.kill("n3")
    await cluster.until(lambda: cluster.controller() is not None)
    leader = cluster.controller()
    assert leader is not None
    record = encode_record(NoOpRecord())
    for _ in range(12):
        await cluster.node(leader).quorum.append([record] * 2_000)
    size = cluster.node(leader).metadata_log.size
    for name in ("n1", "n2"):
        cluster.slow_down(name, "n3", 100_000)
    cluster.start("n3")
    epoch = cluster.node(leader).quorum.epoch
    end = cluster.node(leader).quorum.high_watermark
    late = cluster.machines["n3"]
    await cluster.until(
        lambda: late.node is not None and late.node.quorum.high_watermark >= end, 3 * size / 100_000 + 5
    )
    assert cluster.node(leader).quorum.epoch == epoch, "no vote was cast meanwhile"
