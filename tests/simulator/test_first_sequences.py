"""The first batches of producers that never wrote to a log: with several requests in flight, at new topics and while
leaders move, the log numbers every producer's records from 0 on (KAFKA-15591, KAFKA-14312, KAFKA-19880)."""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

import pytest

from broker.errors import ErrorCode
from broker.protocol.messages.topic_apis import CreatableTopic, CreateTopicsRequest
from broker.server.client import PeerConnector
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import in_cluster

ORACLE: Final = "sequence-gap"
PROPERTIES: Final = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "log.flush.interval.messages": "1",
}
IN_FLIGHT: Final = 5
BATCHES: Final = 8
WHOLE_AGAIN_S: Final = 60.0


def gaps(cluster: SimulatedCluster) -> list[str]:
    return [finding.sentence for finding in cluster.watch.findings.found if finding.oracle == ORACLE]


@pytest.mark.conforms("K98-10")
@pytest.mark.kills("any_first_sequence")
@pytest.mark.parametrize("written", [0, 3], ids=["empty log", "log of another producer"])
@pytest.mark.parametrize("mutants", [(), ("any_first_sequence",)])
def test_the_second_of_two_requests_waits_for_the_first_that_was_refused(written: int, mutants: Sequence[str]) -> None:
    """As if the first request had met a broker that does not lead, and the second one the leader."""
    with SimulatedCluster(1, properties=PROPERTIES, mutants=mutants) as cluster:

        async def story() -> list[bytes]:
            client = await _ready(cluster)
            await client.create_topic("log")
            for _ in range(written):
                other, _ = await client.init_producer_id()
                await client.produce("log", 0, [b"other"], producer_id=other, sequence=0)
            producer_id = (await client.init_producer_id()).producer_id
            first, second = [b"%d" % number for number in range(17)], [b"%d" % number for number in range(17, 22)]
            with pytest.raises(RefusedError, match="OUT_OF_ORDER"):
                await client.produce("log", 0, second, producer_id=producer_id, sequence=17)
            await client.produce("log", 0, first, producer_id=producer_id, sequence=0)
            await client.produce("log", 0, second, producer_id=producer_id, sequence=17)
            records = await client.read_all("log", 0)
            return [record.value or b"" for record in records if record.value != b"other"]

        if mutants:
            with pytest.raises(pytest.fail.Exception):
                cluster.run(story())
            assert gaps(cluster)
        else:
            assert cluster.run(story()) == [b"%d" % number for number in range(22)]
            assert gaps(cluster) == []
            assert cluster.watch.findings.checks[ORACLE] > 0


@pytest.mark.conforms("K98-10")
@pytest.mark.parametrize("seed", range(4))
def test_several_requests_in_flight_during_creation_lose_no_record(seed: int) -> None:
    refused, unwritten = _written_at_creation(seed, ())
    assert refused == []
    assert unwritten == 0


@pytest.mark.conforms("TOP-1")
@pytest.mark.parametrize("seed", range(3))
@in_cluster("seed", properties=PROPERTIES)
async def test_no_request_to_a_new_topic_meets_a_broker_that_does_not_lead_yet(cluster: SimulatedCluster, /) -> None:
    """Also where the leader's disk is slow, and after a restart of all brokers."""
    client = await _ready(cluster)
    for number, slow in enumerate((0.0, 0.1, 0.1)):
        if number == 2:
            for name in cluster.machines:
                await cluster.stop(name)
            cluster.start()
            await cluster.ready()
        for machine in cluster.machines.values():
            machine.disk.faults.slow_s = slow
        topic = f"t{number}"
        await _create(cluster, topic)
        for machine in cluster.machines.values():
            machine.disk.faults.slow_s = 0.0
        await client.produce(topic, 0, [b"first"], acks=1)
    client.close()


@pytest.mark.rotating(6, among="long simulations")
@pytest.mark.kills("any_first_sequence")
def test_a_leader_that_accepts_any_first_sequence_loses_refused_records() -> None:
    found = [_written_at_creation(seed, ("any_first_sequence",)) for seed in range(4)]
    assert any(gap for gap, _ in found)
    assert any(unwritten for _, unwritten in found)


def _written_at_creation(seed: int, mutants: Sequence[str]) -> tuple[list[str], int]:
    """New topics, written to as soon as their creation is answered, while brokers are killed: the gaps that the oracle
    found, and how many batches could not be written."""
    with SimulatedCluster(seed, properties=PROPERTIES, mutants=mutants) as cluster:

        async def story() -> int:
            client = await _ready(cluster)
            rng = random.Random(f"{seed}/creation")
            unwritten = 0
            for number in range(4):
                await _create(cluster, f"t{number}")
                killed = f"n{rng.randint(1, 3)}"
                cluster.loop.call_later(rng.uniform(0.0, 0.2), cluster.kill, killed)
                sending = [_Burst(cluster, f"t{number}", rng).send() for _ in range(2)]
                unwritten += sum(await asyncio.gather(*sending))
                cluster.start(killed)
                await cluster.ready()
            client.close()
            return unwritten

        unwritten = cluster.run(story())
        return gaps(cluster), unwritten


async def _ready(cluster: SimulatedCluster) -> SimulatedClient:
    cluster.start()
    await cluster.ready()
    return SimulatedClient(cluster.addresses)


async def _create(cluster: SimulatedCluster, name: str) -> None:
    """Ask the controller, and return when it answers."""
    connector = PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20)
    request = CreateTopicsRequest([CreatableTopic(name, 1, 3)], timeout_ms=20_000)
    async with asyncio.timeout(WHOLE_AGAIN_S):
        while True:
            try:
                answer = await connector.request(1, request, 21.0)
            except OSError:
                continue
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                connector.close()
                return
            await asyncio.sleep(0.05)


class _Burst:
    """A new producer whose requests are all in flight at once, each of them sent again until it is acknowledged."""

    def __init__(self, cluster: SimulatedCluster, topic: str, rng: random.Random) -> None:
        self._cluster, self._topic = cluster, topic
        self._rng = random.Random(rng.random())
        self._acknowledged: list[asyncio.Future[None]] = []

    async def send(self) -> int:
        """How many batches were not acknowledged in time."""
        client = SimulatedClient(self._cluster.addresses)
        producer_id = (await client.init_producer_id(WHOLE_AGAIN_S)).producer_id
        self._acknowledged = [asyncio.get_running_loop().create_future() for _ in range(BATCHES)]
        sent = await asyncio.gather(*(self._send_one(producer_id, number) for number in range(BATCHES)))
        client.close()
        return sent.count(False)

    async def _send_one(self, producer_id: int, number: int) -> bool:
        """Once there are not too many others in flight: a log remembers a producer's last five batches."""
        client = SimulatedClient(self._cluster.addresses)  # of its own: a connection that ends takes its requests along
        sequence = 3 * number
        values = [b"%d" % value for value in range(sequence, sequence + 3)]
        deadline = asyncio.get_running_loop().time() + 20.0
        if earlier := self._acknowledged[: max(0, number - IN_FLIGHT + 1)]:
            await asyncio.wait(earlier, timeout=20.0)
        while asyncio.get_running_loop().time() < deadline:
            try:
                await client.produce(self._topic, 0, values, producer_id=producer_id, sequence=sequence, timeout=0.5)
            except (RefusedError, UncertainError):
                await asyncio.sleep(self._rng.uniform(0.0, 0.2))
            else:
                self._acknowledged[number].set_result(None)
                break
        client.close()
        return self._acknowledged[number].done()
