"""A run with random faults and a judge: what was acknowledged is there in the end, at its offset, on every replica.

Kills, power cuts and partitions come one after the other at random times; then everything is healed, and the cluster
must become whole, serve again, and hold identical replicas. Without `log.flush.interval.messages=1` only one replica at
a time may lose its page cache: then power is cut from one machine only, and only while every ISR is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from broker.protocol.records import Record, iter_batches, read_records
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import Machine, SimulatedCluster
from simulator.disk import FileSystem

TOPIC = "log"
KINDS = (
    "kill",
    "power-loss",
    "power-loss-all",
    "partition-one",
    "partition-halves",
    "one-way",
    "sync-error",
    "restart",
)
DEFECTS = (
    "exited",
    "broker_failed",
    "partition_failed",
    "quorum_failed",
    "quorum_bad_answer",
    "request_failed",
    "fetched_batches_refused",
    "metadata_behind_log",
    "connection_rejected",
)
"""Events that no fault of these kinds excuses, unless they are about a disk that fails."""
DISK_ERROR = os.strerror(errno.EIO)
WHOLE_AGAIN_S = 60.0


@dataclass(frozen=True)
class ChaosPlan:
    """What a run does. Times are in virtual seconds."""

    nodes: int = 3
    partitions: int = 2
    producers: int = 2
    faults: int = 8
    kinds: tuple[str, ...] = KINDS
    pause_s: tuple[float, float] = (0.2, 4.0)
    outage_s: tuple[float, float] = (0.1, 6.0)
    properties: Mapping[str, str] = field(
        default_factory=lambda: {
            "min.insync.replicas": "2",
            "default.replication.factor": "3",
            "log.flush.interval.messages": "1",
        }
    )
    mutants: tuple[str, ...] = ()
    file_system: FileSystem | None = None


@dataclass
class ChaosOutcome:
    """What a run showed. `violations` is empty when every promise was kept."""

    seed: int
    digest: str
    acknowledged: int
    faults: list[str]
    violations: list[str]


class Chaos:
    """One run."""

    def __init__(self, seed: int, plan: ChaosPlan | None = None) -> None:
        self.plan = plan or ChaosPlan()
        self.cluster = SimulatedCluster(
            seed,
            self.plan.nodes,
            properties=self.plan.properties,
            mutants=self.plan.mutants,
            file_system=self.plan.file_system,
        )
        self._seed = seed
        self._rng = random.Random(f"{seed}/chaos")
        self._acknowledged: dict[tuple[int, int], bytes] = {}
        self._faults: list[str] = []
        self._violations: list[str] = []
        self._stopping = False
        self._replicas: dict[int, list[str]] = {}

    def run(self) -> ChaosOutcome:
        """Do it. Exceptions of the brokers' callbacks are violations too."""
        cluster = self.cluster
        try:
            cluster.run(self._story())
        finally:
            unhandled = [str(error) for error in cluster.loop.unhandled]
            cluster.loop.unhandled.clear()
            cluster.close()
        events = [event for name in DEFECTS for event in cluster.journal.of(name)]
        self._violations += [str(event) for event in events if DISK_ERROR not in str(event)]
        self._violations += unhandled
        return ChaosOutcome(
            self._seed,
            cluster.digest(),
            len(self._acknowledged),
            self._faults,
            self._violations,
        )

    async def _story(self) -> None:
        cluster = self.cluster
        cluster.start()
        await cluster.ready()
        client = SimulatedClient(cluster.addresses)
        await client.create_topic(TOPIC, self.plan.partitions, replication_factor=min(3, self.plan.nodes))
        while len(self._replicas) < self.plan.partitions:
            (topic,) = (await client.metadata([TOPIC])).topics
            for state in topic.partitions:
                self._replicas[state.partition_index] = [f"n{replica}" for replica in state.replica_nodes]
        producers = [asyncio.create_task(self._produce(number)) for number in range(self.plan.producers)]
        try:
            for _ in range(self.plan.faults):
                await asyncio.sleep(self._rng.uniform(*self.plan.pause_s))
                await self._fault(self._rng.choice(self.plan.kinds))
            self._stopping = True
            cluster.heal()
            cluster.start()
            await self._wait_until_whole()
            await asyncio.wait_for(asyncio.gather(*producers), WHOLE_AGAIN_S)
            await cluster.until(self._replicas_agree, WHOLE_AGAIN_S)
            reads = [await self._read(client, partition) for partition in range(self.plan.partitions)]
        except TimeoutError:
            self._violations.append(f"not whole again {WHOLE_AGAIN_S:g} s after the faults: {self._situation()}")
            return
        for partition, read in enumerate(reads):
            self._judge(partition, read)

    # --- load

    async def _produce(self, number: int) -> None:
        """Append numbered values until told to stop; each is sent once, so that its fate is clear."""
        client = SimulatedClient(self.cluster.addresses)
        rng = random.Random(f"{self._seed}/producer/{number}")
        sequence = 0
        while not self._stopping:
            partition = rng.randrange(self.plan.partitions)
            values = [b"%d-%d-%d" % (number, sequence, part) for part in range(rng.randint(1, 4))]
            sequence += 1
            try:
                base = await client.produce(TOPIC, partition, values, timeout=2.0)
            except UncertainError:
                pass  # it may have happened, now or later: nothing to hold against the logs
            except RefusedError:
                await asyncio.sleep(0.05)
            else:
                for offset, value in enumerate(values, base):
                    other = self._acknowledged.setdefault((partition, offset), value)
                    if other != value:
                        self._violations.append(
                            f"offset {offset} of {partition} acknowledged for {other!r} and {value!r}"
                        )
            await asyncio.sleep(rng.expovariate(20))
        client.close()

    # --- faults

    async def _fault(self, kind: str) -> None:
        cluster, rng = self.cluster, self._rng
        names = sorted(cluster.machines)
        rng.shuffle(names)
        outage_s = rng.uniform(*self.plan.outage_s)
        self._faults.append(f"{cluster.loop.time():.3f} {kind} {names} for {outage_s:.3f}")
        match kind:
            case "kill":
                cluster.kill(*names[: rng.randint(1, len(names))])
            case "power-loss":
                await self._make_survivable()
                cluster.power_loss(names[0])
            case "power-loss-all":
                cluster.power_loss()
            case "partition-one":
                cluster.partition(names[:1], [*names[1:], "client"])
            case "partition-halves":
                middle = len(names) // 2
                cluster.partition(names[:middle], names[middle:])
            case "one-way":
                cluster.cut(names[0], names[1])
            case "sync-error":
                await self._fail_syncs(cluster.machines[names[0]])
            case "restart":
                await cluster.stop(names[0])
        # Faults overlap: what one leaves broken, the next may find broken.
        if rng.random() < 0.7:
            await asyncio.sleep(outage_s)
            cluster.heal()
            cluster.start()

    async def _fail_syncs(self, machine: Machine) -> None:
        """Let every sync fail until the broker has given up; then the disk is good again."""
        machine.disk.broken = lambda _: True
        with contextlib.suppress(TimeoutError):
            await self.cluster.until(lambda: not machine.running, 2.0)
        machine.disk.broken = lambda _: False

    async def _make_survivable(self) -> None:
        """Where acknowledged data is in the page caches only, wait until every replica has all of it."""
        if self.plan.properties.get("log.flush.interval.messages") != "1":
            self.cluster.heal()
            self.cluster.start()
            await self._wait_until_whole()

    async def _wait_until_whole(self) -> None:
        """A broker that came back is still in the ISR that it was in before, until it has registered anew."""
        await self.cluster.ready(timeout=WHOLE_AGAIN_S)
        await self.cluster.until(self._is_whole, WHOLE_AGAIN_S)

    # --- the judge

    def _is_whole(self) -> bool:
        """Every partition has a leader and all replicas in its ISR."""
        controller = self.cluster.controller()
        if controller is None:
            return False
        topic = self.cluster.node(controller).image.topics.get(TOPIC)
        return topic is not None and all(
            partition.leader >= 0 and len(partition.isr) == len(partition.replicas)
            for partition in topic.partitions.values()
        )

    def _replicas_agree(self) -> bool:
        return not any(self._differences())

    def _differences(self) -> Iterable[str]:
        for partition in range(self.plan.partitions):
            contents = {name: self._content(name, partition) for name in self._replicas[partition]}
            first = next(iter(contents.values()))
            for name, content in contents.items():
                if content != first:
                    yield f"partition {partition} of {name} differs: {len(content)} bytes, not {len(first)}"

    def _content(self, name: str, partition: int) -> bytes:
        """All bytes of a replica, as they are on its machine."""
        disk = self.cluster.machines[name].disk
        directory = f"{TOPIC}-{partition}"
        content = b""
        for file_name in disk.list(directory):
            if file_name.endswith(".log"):
                file = disk.open(f"{directory}/{file_name}")
                content += file.read(0, file.size())
        return content

    async def _read(self, client: SimulatedClient, partition: int) -> list[Record]:
        """All records. A new leader's high watermark may lie below what was acknowledged until its followers fetch."""
        content = self._content(self._replicas[partition][0], partition)
        end = max((header.next_offset for _, header in iter_batches(content)), default=0)
        async with asyncio.timeout(WHOLE_AGAIN_S):
            while True:
                records = await client.read_all(TOPIC, partition, timeout=WHOLE_AGAIN_S)
                if len(records) >= end:
                    return records
                await asyncio.sleep(0.1)

    def _judge(self, partition: int, read: list[Record]) -> None:
        records = {record.offset: record.value for record in read}
        if sorted(records) != list(range(len(records))):
            self._violations.append(f"partition {partition}: the offsets have gaps")
        for (at, offset), value in self._acknowledged.items():
            if at == partition and records.get(offset) != value:
                found = records.get(offset)
                self._violations.append(
                    f"partition {partition} offset {offset}: {value!r} acknowledged, {found!r} there"
                )
        for name in self._replicas[partition]:
            content = self._content(name, partition)
            for position, header in iter_batches(content):
                for record in read_records(content, position):
                    if records.get(record.offset) != record.value and not header.is_control:
                        self._violations.append(
                            f"{name}: partition {partition} offset {record.offset} holds {record.value!r}"
                        )

    def _situation(self) -> str:
        running = [name for name, machine in self.cluster.machines.items() if machine.running]
        controller = self.cluster.controller()
        parts = [f"running {running}", f"controller {controller}", *self._differences()]
        if controller is not None:
            with contextlib.suppress(KeyError):
                topic = self.cluster.node(controller).image.topics[TOPIC]
                parts += [f"{n}: leader {p.leader} isr {list(p.isr)}" for n, p in topic.partitions.items()]
        return "; ".join(parts)
