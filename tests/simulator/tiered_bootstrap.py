"""A partition with most of its log in remote storage, and a third broker that joins it."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping

from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from simulator.client import SimulatedClient
from simulator.cluster import SimulatedCluster
from tests.simulator.test_leases import assign
from tests.simulator.test_tiered import TIERED, TOPIC, replicas, write

FEATURE = "follower.fetch.last.tiered.offset.enable"
LOCAL = {"remote.storage.enable": "true", "segment.bytes": "4096", "local.retention.bytes": "12000"}
RECORDS = 60


class Joining:
    """Two of three brokers have the partition, `leader` leads it, `spare` joins."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.client = SimulatedClient(cluster.addresses)

    async def begin(self, settings: Mapping[str, str] = LOCAL) -> None:
        """Create the topic on two brokers."""
        self.cluster.start()
        await self.cluster.ready()
        await self.client.create_topic(TOPIC, 1, 2, configs=settings)
        await self.cluster.until(lambda: len(replicas(self.cluster)) == 2)
        [self.spare] = [name for name in self.cluster.machines if name not in replicas(self.cluster)]

    async def fill(self) -> None:
        """Write records in two epochs, until local retention has removed the first local copies on both brokers."""
        await write(self.client, RECORDS // 2)
        first = self.leader
        await self.cluster.stop(first)
        await self.cluster.until(lambda: self._leads() not in (None, first))
        await self.client.refresh(TOPIC)
        await write(self.client, RECORDS // 2, RECORDS // 2)
        self.cluster.start(first)
        await self.cluster.until(self.is_tiered, 90)

    def is_tiered(self) -> bool:
        """The leader has no local copy of the first epoch, and has uploaded all closed segments."""
        if self._leads() is None or len(replicas(self.cluster)) < 2 or self.led.remote is None:
            return False
        log, tiered = self.led.log, self.led.remote.highest_tiered()
        uploaded = tiered is not None and tiered.offset + 1 == log.segments[-1].base_offset
        return uploaded and RECORDS // 2 < log.local_start_offset < log.segments[-1].base_offset

    def has_remote_records(self) -> bool:
        """The leader has dropped its first local copies, and has uploaded all closed segments."""
        if self._leads() is None or self.led.remote is None:
            return False
        log, tiered = self.led.log, self.led.remote.highest_tiered()
        return tiered is not None and tiered.offset + 1 == log.segments[-1].base_offset and log.local_start_offset > 0

    @property
    def leader(self) -> str:
        found = self._leads()
        assert found is not None
        return found

    def _leads(self) -> str | None:
        leads = [name for name, it in replicas(self.cluster).items() if isinstance(it.role, PartitionLeader)]
        return leads[0] if len(leads) == 1 else None

    @property
    def led(self) -> Partition:
        return replicas(self.cluster)[self.leader]

    @property
    def joined(self) -> Partition | None:
        """The spare broker's replica."""
        return replicas(self.cluster).get(self.spare)

    def is_in_sync(self) -> bool:
        role = self.led.role if self._leads() is not None else None
        return isinstance(role, PartitionLeader) and self.cluster.machines[self.spare].node_id in role.isr

    async def reassign(self) -> None:
        """Ask for a third replica on the spare broker."""
        brokers = [self.cluster.machines[name].node_id for name in (*replicas(self.cluster), self.spare)]
        await assign(self.cluster, {0: brokers})

    async def join(self, timeout: float = 60.0) -> Partition:
        """The replica of the spare broker, in sync."""
        await self.reassign()
        await self.cluster.until(self.is_in_sync, timeout)
        joined = self.joined
        assert joined is not None
        return joined

    async def lead(self) -> None:
        """Make the spare broker lead: it is preferred, and the leader is killed."""
        others = [name for name in replicas(self.cluster) if name != self.spare]
        brokers = [self.cluster.machines[name].node_id for name in (self.spare, *others)]
        await assign(self.cluster, {0: brokers})
        await self.cluster.until(lambda: self._leads() is not None)
        former = self.leader
        if former != self.spare:
            self.cluster.kill(former)
            await self.cluster.until(lambda: self._leads() not in (None, former))


def run(
    seed: int,
    story: Callable[[Joining], Coroutine[None, None, None]],
    *,
    feature: bool = True,
    mutants: tuple[str, ...] = (),
    **properties: str,
) -> None:
    settings = {**TIERED, "min.insync.replicas": "1", FEATURE: str(feature).lower()}
    settings |= {name.replace("_", "."): value for name, value in properties.items()}
    with SimulatedCluster(seed, properties=settings, mutants=mutants) as cluster:
        cluster.run(story(Joining(cluster)))


async def stays(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition holds all the time."""
    for _ in range(int(seconds * 10)):
        if not condition():
            return False
        await asyncio.sleep(0.1)
    return True
