"""Idempotent producers under random faults: each record is in the log once and in order, for any losses on the way.

A producer repeats each batch until it is acknowledged, so in the end every batch is acknowledged.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.errors import ErrorCode
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import started

TOPIC, PARTITIONS, PRODUCERS, FAULTS = "log", 2, 2, 12
PROPERTIES: Final = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "log.flush.interval.messages": "1",
    "log.segment.bytes": "4096",
}
KINDS: Final = ("kill", "power-loss", "power-loss-all", "partition-one", "restart")
LEADER_KINDS: Final = ("kill-leader", "power-loss-leader")
FATAL: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)
"""Answers that an idempotent producer gets only for a mistake of its own, or of the cluster."""
WHOLE_AGAIN_S = 60.0


@dataclass
class Outcome:
    """What a run showed; `violations` is empty when every promise was kept."""

    acknowledged: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def run(seed: int, *mutants: str, kinds: Sequence[str] = KINDS, faults: int = FAULTS) -> Outcome:
    """One run; the same seed gives the same."""
    with SimulatedCluster(seed, properties=PROPERTIES, mutants=mutants) as cluster:
        return cluster.run(_story(cluster, random.Random(f"{seed}/faults"), kinds, faults))


async def _story(cluster: SimulatedCluster, rng: random.Random, kinds: Sequence[str], faults: int) -> Outcome:
    outcome, stopping = Outcome(), asyncio.Event()
    client = await started(cluster)
    await client.create_topic(TOPIC, PARTITIONS)
    producers = [asyncio.create_task(_produce(cluster, number, stopping, outcome)) for number in range(PRODUCERS)]
    for _ in range(faults):
        await asyncio.sleep(rng.uniform(0.05, 1.5))
        await _inject(cluster, rng, outcome, rng.choice(kinds))
    stopping.set()
    cluster.heal()
    cluster.start()
    sent = await asyncio.wait_for(asyncio.gather(*producers), WHOLE_AGAIN_S)
    for partition in range(PARTITIONS):
        values = [record.value or b"" for record in await client.read_all(TOPIC, partition, WHOLE_AGAIN_S)]
        for number in range(PRODUCERS):
            _judge(outcome, partition, number, sent[number][partition], values)
    return outcome


async def _inject(cluster: SimulatedCluster, rng: random.Random, outcome: Outcome, kind: str) -> None:
    """One fault, which mostly ends before the next starts; of a leader only when there is one."""
    names = rng.sample(sorted(cluster.machines), 3)
    if kind in LEADER_KINDS:
        names = [await _leader(cluster, rng.randrange(PARTITIONS))]
    outcome.faults[kind] += 1
    match kind:
        case "kill-leader":
            cluster.kill(names[0])
        case "power-loss-leader":
            cluster.power_loss(names[0])
        case "kill":
            cluster.kill(names[0])
        case "power-loss":
            cluster.power_loss(names[0])
        case "power-loss-all":
            cluster.power_loss()
        case "partition-one":
            cluster.partition(names[:1], names[1:])
        case "restart":
            await cluster.stop(names[0])
    if rng.random() < 0.7:
        await asyncio.sleep(rng.uniform(0.05, 2.0))
        cluster.heal()
        cluster.start()


async def _leader(cluster: SimulatedCluster, partition: int) -> str:
    """The machine whose broker leads a partition, as soon as one does."""
    while True:
        for name, machine in cluster.machines.items():
            replica = None if not machine.running else cluster.node(name).replicas.partition(TOPIC, partition)
            if replica is not None and replica.serving is not None:
                return name
        cluster.start()
        await asyncio.sleep(0.05)


async def _produce(cluster: SimulatedCluster, number: int, stopping: asyncio.Event, outcome: Outcome) -> list[int]:
    """Append numbered values until stopped; the number of acknowledged ones by partition."""
    client, rng = SimulatedClient(cluster.addresses), random.Random(f"{cluster.rng.random()}/{number}")
    producer_id = (await client.init_producer_id(WHOLE_AGAIN_S)).producer_id
    sent = [0] * PARTITIONS
    while not stopping.is_set():
        partition = rng.randrange(PARTITIONS)
        values = [b"%d-%d" % (number, sent[partition] + place) for place in range(rng.randint(1, 4))]
        code = await _send(client, partition, values, producer_id, sent[partition], rng)
        if code is not None:
            outcome.violations.append(f"partition {partition}: {values[0]!r} refused: {code.name}")
            break
        sent[partition] += len(values)
        outcome.acknowledged += len(values)
        await asyncio.sleep(rng.expovariate(20))
    client.close()
    return sent


async def _send(
    client: SimulatedClient, partition: int, values: list[bytes], producer_id: int, sequence: int, rng: random.Random
) -> ErrorCode | None:
    """Until it is acknowledged (None), or refused for ever."""
    while True:
        try:
            await client.produce(TOPIC, partition, values, timeout=0.5, producer_id=producer_id, sequence=sequence)
        except UncertainError:
            await asyncio.sleep(rng.uniform(0.0, 0.1))
        except RefusedError as refused:
            if refused.code in FATAL:
                return refused.code
            await asyncio.sleep(0.05)
        else:
            return None


def _judge(outcome: Outcome, partition: int, number: int, sent: int, values: list[bytes]) -> None:
    """A producer's values are there from its first to its last, once and in order."""
    own = [value for value in values if value.startswith(b"%d-" % number)]
    for place, value in enumerate(own):
        if value != b"%d-%d" % (number, place):
            what = "twice" if own.index(value) < place else "out of order"
            outcome.violations.append(f"partition {partition}: {value!r} of producer {number} is there {what}")
            return
    if len(own) < sent:
        outcome.violations.append(
            f"partition {partition}: {sent} of producer {number} were acknowledged, {len(own)} are there"
        )
