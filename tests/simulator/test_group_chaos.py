"""A group of 6 consumers over 12 partitions through 20 random kills: at least once, no acknowledged commit lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from analysis.core.anomaly import Anomaly
from analysis.core.groups import judge
from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster
from tests.simulator.group_consumer import AgainError, GroupConsumer, Recorded

TOPIC, PARTITIONS, CONSUMERS, FAULTS = "log", 12, 6, 20
WHOLE_AGAIN_S = 120.0
PROPERTIES = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "offsets.commit.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "500",
}


@dataclass
class Outcome:
    anomalies: list[Anomaly] = field(default_factory=list)
    commits: int = 0
    records: int = 0
    given: int = 0
    generations: int = 0


class GroupChaos:
    """One run. `cut` instead of kills: the coordinator is cut off from the other brokers, but not from clients."""

    def __init__(self, seed: int, *, cut: bool = False, faults: int = FAULTS, mutants: Iterable[str] = ()) -> None:
        self._rng = random.Random(f"{seed}/group-chaos")
        self._cut = cut
        self._faults = faults
        self._cluster = SimulatedCluster(seed, properties=PROPERTIES, mutants=mutants)
        self._record = Recorded()
        self._ends = dict.fromkeys(range(PARTITIONS), 0)
        self._stopping = False

    def run(self) -> Outcome:
        with self._cluster as cluster:
            return cluster.run(self._story())

    async def _story(self) -> Outcome:
        cluster = self._cluster
        cluster.start()
        await cluster.ready()
        client = SimulatedClient(cluster.addresses)
        await client.create_topic(TOPIC, PARTITIONS)
        consumers = [GroupConsumer(f"c{n}", cluster, TOPIC, PARTITIONS, self._record) for n in range(CONSUMERS)]
        tasks = [asyncio.create_task(consumer.live()) for consumer in consumers]
        producer = asyncio.create_task(self._produce())
        observer = GroupConsumer("observer", cluster, TOPIC, PARTITIONS, self._record)
        watching = asyncio.create_task(self._watch(observer))
        await asyncio.sleep(5.0)
        for _ in range(self._faults):
            await self._fault()
        await cluster.ready()
        self._stopping = True
        await producer
        for partition in range(PARTITIONS):
            self._ends[partition] = len(await client.read_all(TOPIC, partition, timeout=WHOLE_AGAIN_S))
        await self._read_to_the_end(observer)
        for consumer in consumers:
            consumer.stopping = True
        watching.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, watching, return_exceptions=True), WHOLE_AGAIN_S)
        record = self._record
        return Outcome(
            anomalies=judge(TOPIC, record.commits, record.fetches, record.deliveries),
            commits=sum(commit.acknowledged for commit in record.commits),
            records=sum(self._ends.values()),
            given=sum(each.last - each.first + 1 for each in record.deliveries),
            generations=len(record.generations),
        )

    async def _fault(self) -> None:
        names = sorted(self._cluster.machines)
        one = self._coordinator() if self._cut else self._rng.choice(names)
        # A cut has to outlast the session of who is cut off, or nobody takes over.
        outage_s = self._rng.uniform(5.0, 8.0) if self._cut else self._rng.uniform(0.5, 4.0)
        if self._cut:
            self._cluster.partition([one], [name for name in names if name != one])
        else:
            self._cluster.kill(one)
        await asyncio.sleep(outage_s)
        self._cluster.heal()
        self._cluster.start()
        if self._cut:
            await self._cluster.until(lambda: self._cluster.controller() is not None)
        await asyncio.sleep(self._rng.uniform(0.5, 4.0))

    def _coordinator(self) -> str:
        controller = self._cluster.controller()
        assert controller is not None, "a whole cluster has a controller"
        partition = self._cluster.node(controller).image.partition(OFFSETS_TOPIC, 0)
        assert partition is not None, "somebody has asked for a coordinator before"
        return f"n{partition.leader}"

    async def _produce(self) -> None:
        client = SimulatedClient(self._cluster.addresses)
        while not self._stopping:
            try:
                await client.produce(TOPIC, self._rng.randrange(PARTITIONS), [b"v"], timeout=1.0)
            except (RefusedError, UncertainError):
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
        client.close()

    async def _watch(self, observer: GroupConsumer) -> None:
        while True:
            await asyncio.sleep(0.2)
            try:
                await observer.find_and_fetch()
            except (OSError, AgainError):
                continue

    async def _read_to_the_end(self, observer: GroupConsumer) -> None:
        async with asyncio.timeout(WHOLE_AGAIN_S):
            while True:
                try:
                    offsets = await observer.find_and_fetch()
                except (OSError, AgainError):
                    offsets = {}
                if all(offsets.get(partition, -1) >= end for partition, end in self._ends.items() if end):
                    return
                await asyncio.sleep(0.1)


@pytest.mark.conforms("CG-1", "CG-2", "CG-3", "CG-4")
def test_nothing_is_lost_and_nothing_passed_over_through_twenty_kills() -> None:
    outcome = GroupChaos(1).run()
    assert outcome.anomalies == []
    assert outcome.commits > 100, "a run in which little was committed shows little"
    assert outcome.given >= outcome.records > 200, "at least once, and up to the end"


@pytest.mark.conforms("CG-3", "CG-4")
def test_a_coordinator_that_is_cut_off_loses_nothing_either() -> None:
    assert GroupChaos(3, cut=True, faults=3).run().anomalies == []


def test_the_judge_sees_commits_that_were_acknowledged_early() -> None:
    for seed in range(6):
        outcome = GroupChaos(seed, cut=True, faults=2, mutants=["commit_acked_before_hw"]).run()
        if outcome.anomalies:
            assert {anomaly.name for anomaly in outcome.anomalies} == {"lost-acknowledged-commit"}
            return
    raise AssertionError("none of 6 runs saw a lost commit")
