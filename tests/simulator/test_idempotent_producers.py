"""Idempotent producers in the simulated world: whatever is lost on the way, each record is in the log once."""

import asyncio
from collections.abc import Sequence

import pytest

from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.idempotence import FAULTS, run
from tests.simulator.stories import in_cluster, started

TOPIC = "log"
FLUSHED = {"min.insync.replicas": "2", "default.replication.factor": "3", "log.flush.interval.messages": "1"}


class Producer:
    """An idempotent producer that sends one batch at a time, to one partition."""

    def __init__(self, client: SimulatedClient, producer_id: int) -> None:
        self.client = client
        self.producer_id = producer_id

    @classmethod
    async def of(cls, cluster: SimulatedCluster, replicas: int) -> "Producer":
        """Start the cluster, create the topic, and get an id."""
        client = await started(cluster)
        await client.create_topic(TOPIC, 1, replicas)
        return cls(client, (await client.init_producer_id()).producer_id)

    async def send_once(self, sequence: int, timeout: float = 2.0) -> int:
        value = b"%d" % sequence
        return await self.client.produce(
            TOPIC, 0, [value], producer_id=self.producer_id, sequence=sequence, timeout=timeout
        )

    async def send(self, sequence: int) -> int:
        """Until it is acknowledged; its offset."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await self.send_once(sequence)
                except (RefusedError, UncertainError):
                    await asyncio.sleep(0.05)

    async def log(self) -> list[bytes]:
        return [record.value or b"" for record in await self.client.read_all(TOPIC, 0)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.conforms("K98-6")
@pytest.mark.parametrize("ended", ["kill", "power_loss", "stop"])
def test_a_restarted_leader_keeps_its_producer_sequences(ended: str) -> None:
    log, again = _away(ended, ())
    assert log == numbers(8)
    assert again == list(range(3, 8)), "each of the last five has its offset again"


@pytest.mark.parametrize("ended", ["kill", "power_loss", "stop"])
def test_a_leader_without_its_producers_appends_twice(ended: str) -> None:
    log, _ = _away(ended, ("no_producer_snapshot",))
    assert log != numbers(8)


def _away(ended: str, mutants: Sequence[str]) -> tuple[list[bytes], list[int]]:
    properties = {"log.flush.interval.messages": "1", "log.segment.bytes": "4096"}
    with SimulatedCluster(1, 1, properties=properties, mutants=mutants) as cluster:

        async def story() -> tuple[list[bytes], list[int]]:
            producer = await Producer.of(cluster, 1)
            for sequence in range(8):
                assert await producer.send(sequence) == sequence
            if ended == "stop":
                await cluster.stop("n1")
            else:
                getattr(cluster, ended)("n1")
            cluster.start("n1")
            await cluster.ready()
            again = [await producer.send(sequence) for sequence in range(3, 8)]
            return await producer.log(), again

        return cluster.run(story())


@pytest.mark.conforms("K98-5")
def test_a_producer_silent_for_too_long_expires() -> None:
    properties = {"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "100"}
    with SimulatedCluster(1, 1, properties=properties) as cluster:

        async def story() -> None:
            producer = await Producer.of(cluster, 1)
            await producer.send(0)
            await asyncio.sleep(4.0)
            with pytest.raises(RefusedError, match="OUT_OF_ORDER"):
                await producer.send_once(7)
            await asyncio.sleep(1.5)
            assert await producer.send_once(7) == 1

        cluster.run(story())


@pytest.mark.conforms("K98-3", "K98-8")
@pytest.mark.parametrize("seed", range(3))
@in_cluster("seed", properties=FLUSHED)
async def test_a_new_leader_has_the_producer_sequences_of_the_old_one(cluster: SimulatedCluster, /) -> None:
    producer = await Producer.of(cluster, 3)
    for sequence in range(8):
        await producer.send(sequence)
    leader = await producer.client.leader_of(TOPIC, 0)
    cluster.power_loss(f"n{leader}")
    await producer.client.leader_of(TOPIC, 0, unlike=leader)
    assert [await producer.send(sequence) for sequence in range(3, 8)] == list(range(3, 8))
    assert await producer.send(8) == 8
    assert await producer.log() == numbers(9)


@pytest.mark.conforms("K98-7")
def test_a_truncated_batch_is_appended_on_retry() -> None:
    assert _cut_off(()) == [*numbers(3), b"of another", b"3"]


def test_a_replica_with_producers_of_truncated_batches_acknowledges_lost_records() -> None:
    assert _cut_off(("producer_state_survives_truncation",)) == [*numbers(3), b"of another"]


def _cut_off(mutants: Sequence[str]) -> list[bytes]:
    """The batch of sequence 3 reaches one replica's log. Another replica leads next, and later the first leads again.

    All three replicas together are needed for a commit, so no other batch is appended in between.
    """
    properties = {**FLUSHED, "min.insync.replicas": "3", "replica.lag.time.max.ms": "600000"}
    with SimulatedCluster(1, 5, properties=properties, mutants=mutants) as cluster:

        async def story() -> list[bytes]:
            producer = await Producer.of(cluster, 3)
            for sequence in range(3):
                await producer.send(sequence)
            (topic,) = (await producer.client.metadata([TOPIC])).topics
            first = topic.partitions[0].leader_id
            a = f"n{first}"
            b, d = (f"n{replica}" for replica in topic.partitions[0].replica_nodes if replica != first)
            cluster.partition([a], [b, d])
            with pytest.raises(UncertainError):
                await producer.send_once(3)
            cluster.kill(d, a)
            await producer.client.leader_of(TOPIC, 0, unlike=first)
            cluster.heal()
            cluster.start(a)
            await _until_in_sync(producer, 2)
            cluster.kill(b)
            assert await producer.client.leader_of(TOPIC, 0, unlike=int(b[1:])) == first
            cluster.start(b, d)
            await _until_in_sync(producer, 3)
            await producer.client.produce(TOPIC, 0, [b"of another"])
            await producer.send(3)
            return await producer.log()

        return cluster.run(story())


async def _until_in_sync(producer: Producer, members: int) -> None:
    async with asyncio.timeout(60):
        while True:
            (topic,) = (await producer.client.metadata([TOPIC])).topics
            if topic.partitions and len(topic.partitions[0].isr_nodes) == members:
                return
            await asyncio.sleep(0.05)


@pytest.mark.conforms("K98-2", "K98-3", "K98-6", "K98-8")
@pytest.mark.parametrize("seed", [1, 2])
def test_no_fault_makes_a_record_twice_or_out_of_order(seed: int) -> None:
    outcome = run(seed)
    assert outcome.violations == [], outcome.faults
    assert outcome.acknowledged > 100
    assert outcome.faults.total() == FAULTS


@pytest.mark.kills("sequence_unchecked")
def test_the_checker_finds_a_leader_that_does_not_check_sequences() -> None:
    found = next(outcome for seed in range(1, 6) if (outcome := run(seed, "sequence_unchecked")).violations)
    assert "twice" in found.violations[0]
