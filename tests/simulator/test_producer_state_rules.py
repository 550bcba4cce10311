"""A replica's state of idempotent producers is compared with its log, also without further batches."""

import asyncio
from collections.abc import Sequence

import pytest

from broker.errors import ErrorCode
from broker.log.remote_start import StateBelow
from broker.replica.follower import PartitionFollower
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from simulator.client import SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.test_idempotent_producers import FLUSHED, TOPIC, Producer
from tests.simulator.test_oracles import planted

ORACLE = "producers-contradict-log"
ALONE = {"log.flush.interval.messages": "1", "log.segment.bytes": "4096"}


def sentences(cluster: SimulatedCluster) -> list[str]:
    return [finding.sentence for finding in cluster.watch.findings.found if finding.oracle == ORACLE]


def replica(cluster: SimulatedCluster, name: str) -> Partition:
    found = cluster.node(name).replicas.partition(TOPIC, 0)
    assert found is not None
    return found


async def follower_with_three_batches(cluster: SimulatedCluster) -> Partition:
    producer = await Producer.of(cluster, 3)
    for sequence in range(3):
        await producer.send(sequence)
    partitions = (replica(cluster, name) for name in cluster.machines)
    follower = next(partition for partition in partitions if isinstance(partition.role, PartitionFollower))
    await cluster.until(lambda: follower.log.log_end_offset == 3)
    return follower


@pytest.mark.conforms("K98-6")
@pytest.mark.kills("no_producer_snapshot")
@pytest.mark.parametrize("ended", ["kill", "power_loss", "stop"])
@pytest.mark.parametrize("mutants", [(), ("no_producer_snapshot",)])
def test_a_replica_that_loses_producers_in_a_restart_is_found_immediately(ended: str, mutants: Sequence[str]) -> None:
    with SimulatedCluster(1, 1, properties=ALONE, mutants=mutants) as cluster:

        async def story() -> None:
            producer = await Producer.of(cluster, 1)
            for sequence in range(8):
                await producer.send(sequence)
            if ended == "stop":
                await cluster.stop("n1")
            else:
                getattr(cluster, ended)("n1")
            cluster.start("n1")
            await cluster.ready()

        cluster.run(story())
        assert cluster.watch.findings.checks[ORACLE] >= 2
        assert bool(sentences(cluster)) is bool(mutants)


@pytest.mark.conforms("K98-7")
@pytest.mark.kills("producer_state_survives_truncation")
@pytest.mark.parametrize("mutants", [(), ("producer_state_survives_truncation",)])
def test_a_replica_with_producers_of_truncated_batches_is_found_immediately(mutants: Sequence[str]) -> None:
    properties = {**FLUSHED, "replica.lag.time.max.ms": "600000"}
    with SimulatedCluster(1, properties=properties, mutants=mutants) as cluster:

        async def story() -> None:
            producer = await Producer.of(cluster, 3)
            for sequence in range(3):
                await producer.send(sequence)
            deposed = await producer.client.leader_of(TOPIC, 0)
            name = f"n{deposed}"
            cluster.partition([name], [each for each in cluster.machines if each != name])
            with pytest.raises(UncertainError):
                await producer.send_once(3)
            # The deposed leader would answer a client that asks it with old metadata as long as it is cut off.
            others = {node: address for node, address in cluster.addresses.items() if node != deposed}
            await SimulatedClient(others).leader_of(TOPIC, 0, unlike=deposed)
            cluster.heal()
            await cluster.until(lambda: replica(cluster, name).log.truncations > 0)
            await asyncio.sleep(1.0)

        cluster.run(story())
        assert bool(sentences(cluster)) is bool(mutants)


@pytest.mark.conforms("K98-7")
@pytest.mark.parametrize("keeps", [False, True])
def test_a_replica_with_producers_of_a_discarded_log_is_found(keeps: bool) -> None:
    with planted(properties=FLUSHED) as cluster:

        async def story() -> None:
            follower = await follower_with_three_batches(cluster)
            async with follower.lock:
                known = follower.log.producers
                await follower.log.truncate_fully_and_start_at(7)
                if keeps:
                    follower.log.producers = known
            await asyncio.sleep(0.5)

        cluster.run(story())
        assert [sentence.endswith("from 7 to 0, say nothing") for sentence in sentences(cluster)] == [True] * keeps


@pytest.mark.conforms("K1023-12")
@pytest.mark.parametrize("start", [0, 5])
def test_a_start_from_remote_storage_brings_producers_of_deleted_batches(start: int) -> None:
    with planted(properties=FLUSHED) as cluster:

        async def story() -> None:
            follower = await follower_with_three_batches(cluster)
            async with follower.lock:
                below = StateBelow(start, tuple(follower.log.epochs.entries), follower.log.producers)
                await follower.log.truncate_fully_and_start_at(0)
                await asyncio.sleep(0.1)  # an empty log is seen
                await follower.log.start_above(7, below)
            await asyncio.sleep(0.5)

        cluster.run(story())
        assert sentences(cluster) == []


@pytest.mark.conforms("K98-6")
def test_a_producer_with_deleted_batches_is_kept() -> None:
    with SimulatedCluster(1, 1, properties=ALONE) as cluster:

        async def story() -> None:
            producer = await Producer.of(cluster, 1)
            for sequence in range(8):
                await producer.send(sequence)
            replicas, partition = cluster.node("n1").replicas, replica(cluster, "n1")
            partition.log.roll()
            assert isinstance(partition.role, PartitionLeader)
            await replicas.delete_records(TOPIC, 0, -1)
            assert partition.log.segments[0].base_offset == 8
            await cluster.stop("n1")
            cluster.start("n1")
            await cluster.ready()
            assert len(replica(cluster, "n1").log.producers) == 1

        cluster.run(story())
        assert sentences(cluster) == []


@pytest.mark.conforms("H34")
@pytest.mark.parametrize("others", [2, 4])
def test_a_batch_that_only_an_emptied_log_had_is_accepted_again(others: int) -> None:
    """The leader that was elected uncleanly has `others` batches at the offsets of those that were deleted."""
    properties = {**FLUSHED, "min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    with SimulatedCluster(1, properties=properties) as cluster:

        async def story() -> None:
            producer = await Producer.of(cluster, 2)
            await producer.send(0)
            partitions = {name: replica(cluster, name) for name in cluster.machines if has(cluster, name)}
            emptied = next(name for name, it in partitions.items() if isinstance(it.role, PartitionLeader))
            behind = next(name for name in partitions if name != emptied)
            await cluster.until(lambda: partitions[behind].log.log_end_offset == 1)
            cluster.kill(behind)
            await cluster.until(lambda: len(partitions[emptied].leader.isr) == 1, 60)
            for sequence in (1, 2):
                await producer.send(sequence)
            error, start = await cluster.node(emptied).replicas.delete_records(TOPIC, 0, -1)
            assert (error, start) == (ErrorCode.NONE, 3)
            cluster.kill(emptied)
            cluster.start(behind)
            other = Producer(producer.client, (await producer.client.init_producer_id()).producer_id)
            for sequence in range(others):
                await other.send(sequence)
            cluster.start(emptied)
            await cluster.until(lambda: len(replica(cluster, behind).leader.isr) == 2, 60)
            cluster.kill(behind)
            offset = await producer.send(2)
            assert offset == 1 + others
            assert replica(cluster, emptied).log.log_end_offset == offset + 1

        cluster.run(story())


def has(cluster: SimulatedCluster, name: str) -> bool:
    return cluster.node(name).replicas.partition(TOPIC, 0) is not None
