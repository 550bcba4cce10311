"""A process ends at every I/O operation of an upload, of deletions and of a bootstrap: no loss, no orphan.

Each scenario runs once to count its operations, then once for each of them and each kind of crash.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

import pytest

from broker.log.log import PartitionLog
from broker.log.remote_start import RemoteStart, StateBelow
from broker.protocol.messages.topic_apis import DeleteTopicsRequest, DeleteTopicState
from broker.tiered.segments import SegmentEvent, SegmentState, TieredSegment
from broker.tiered.tiered_storage import LeaderTask, SegmentWorker
from simulator.client import RefusedError, UncertainError
from simulator.cluster import SimulatedCluster
from simulator.crash_points import CrashPoint
from tests.simulator.crash_points import Place, armed
from tests.simulator.test_leases import assign
from tests.simulator.test_tiered import (
    SETTINGS,
    TIERED,
    TOPIC,
    all_numbers,
    alter,
    ask,
    leader,
    only_remote,
    replicas,
    tiered_topic,
    write,
)
from tests.simulator.tiered_bootstrap import FEATURE, RECORDS, Joining

SEED = 3
SHARES = 24
"""The points of a scenario are divided among this number of tests."""
PATIENCE_S = 60.0
QUIET_S = 5.0
PROPERTIES = {
    **TIERED,
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "log.flush.interval.messages": "1",
    FEATURE: "true",
}


class Scenario:
    """`prepare`, then `act` until `is_done`, on three brokers."""

    first, last = 0, 24
    """The records that must be readable afterwards."""
    min_insync = 2

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.joining = Joining(cluster)
        self.client = self.joining.client

    async def prepare(self) -> None:
        """Everything before the operations that are counted."""
        self.client = await tiered_topic(self.cluster)
        await write(self.client, self.last)
        await self.cluster.until(lambda: only_remote(self.cluster, self.last - 7), PATIENCE_S)

    async def act(self) -> None:
        """An administrator's request, which may fail."""
        raise NotImplementedError

    @property
    def is_done(self) -> bool:
        """Whether the effect is there, on all brokers."""
        raise NotImplementedError

    @property
    def is_whole(self) -> bool:
        """Whether the store has the objects of the finished segments, and no others."""
        led = [name for name, it in replicas(self.cluster).items() if it.serving is not None]
        if len(led) != 1 or len(replicas(self.cluster)) < len(self.cluster.machines):
            return False
        node = self.cluster.node(led[0])
        assert node.tiered is not None
        assert node.cluster_id is not None
        manifest = node.tiered.metadata.manifest((replicas(self.cluster)[led[0]].topic_id, 0))
        expected = {name for each in manifest for name in each.object_names(node.cluster_id)}
        needed = all(each.end_offset >= self.first for each in manifest)
        finished = all(each.state is SegmentState.COPY_FINISHED for each in manifest)
        return needed and finished and set(self.cluster.objects.segment_objects) == expected

    async def check(self) -> None:
        """What must hold in the end."""
        found = replicas(self.cluster)
        assert len(found) == len(self.cluster.machines)
        start = found[leader(self.cluster)].log.log_start_offset
        assert start == self.first
        assert await all_numbers_from(self, start) == list(range(start, self.last))
        led = found[leader(self.cluster)].log
        for name, partition in found.items():
            log, remote = partition.log, partition.remote
            assert remote is not None
            tiered = remote.highest_tiered()
            behind = log.log_start_offset if tiered is None else tiered.offset + 1
            assert log.log_start_offset == start, name
            assert start <= log.local_start_offset <= behind <= log.log_end_offset == led.log_end_offset, name
            assert used_epochs(log) == used_epochs(led), name


def used_epochs(log: PartitionLog) -> list[tuple[int, int]]:
    """The epochs that have records."""
    return [(epoch, start) for epoch, start in log.epochs.entries if start < log.log_end_offset]


async def all_numbers_from(scenario: Scenario, start: int) -> list[int]:
    if start == 0:
        return await all_numbers(scenario.client, PATIENCE_S)
    found: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < scenario.last - start:
            with contextlib.suppress(RefusedError, UncertainError):
                fetched = await scenario.client.fetch(TOPIC, 0, start + len(found), max_wait=1.0)
                found += [int((record.value or b"").split(b" ")[0]) for record in fetched.records]
    return found


class Uploading(Scenario):
    """Remote storage is switched on: three segments are uploaded and their local copies removed."""

    async def prepare(self) -> None:
        self.client = await tiered_topic(self.cluster, {"segment.bytes": SETTINGS["segment.bytes"]})
        await write(self.client, self.last)

    async def act(self) -> None:
        await alter(self.cluster, **{"remote.storage.enable": "true", "local.retention.bytes": "1"})

    @property
    def is_done(self) -> bool:
        return only_remote(self.cluster, self.last - 7) and self.is_whole


class Expiring(Scenario):
    """Total retention deletes two remote segments."""

    first = 14

    async def act(self) -> None:
        await alter(self.cluster, **{"retention.bytes": "5500"})

    @property
    def is_done(self) -> bool:
        found = replicas(self.cluster).values()
        return all(it.log.log_start_offset >= self.first for it in found) and self.is_whole


class DeletingTheTopic(Scenario):
    """The topic is deleted: its objects and its directories are."""

    async def act(self) -> None:
        await ask(self.cluster, DeleteTopicsRequest(topics=[DeleteTopicState(TOPIC)], timeout_ms=5000), 6)

    @property
    def is_done(self) -> bool:
        return not self.cluster.objects.segment_objects and not self._directories()

    def _directories(self) -> list[str]:
        disks = [machine.disk for machine in self.cluster.machines.values()]
        return [name for disk in disks for name in disk.list("") if name.startswith(f"{TOPIC}-0")]

    async def check(self) -> None:
        assert self.is_done


class Joins(Scenario):
    """An empty follower joins from the last tiered offset."""

    last = RECORDS
    min_insync = 1

    async def prepare(self) -> None:
        await self.joining.begin()
        await self.joining.fill()
        names = [*replicas(self.cluster), self.joining.spare]
        self.brokers = [self.cluster.machines[name].node_id for name in names]

    async def act(self) -> None:
        await assign(self.cluster, {0: self.brokers})

    @property
    def is_done(self) -> bool:
        return len(replicas(self.cluster)) == len(self.brokers) and self.joining.is_in_sync() and self.is_whole


CRASHES = ("kill-before", "kill-after", "power-loss-after")
SCENARIOS = [Uploading, Expiring, DeletingTheTopic, Joins]
REFUSALS = (OSError, AssertionError, TimeoutError)


async def repeatedly(action: Callable[[], Awaitable[None]], until: Callable[[], bool]) -> None:
    """Do something until a condition holds: a crash may end the request, or its effect."""
    async with asyncio.timeout(PATIENCE_S):
        while not until():
            with contextlib.suppress(*REFUSALS):
                await action()
            for _ in range(300):
                if until():
                    return
                await asyncio.sleep(0.01)


def cluster_of(kind: type[Scenario]) -> SimulatedCluster:
    return SimulatedCluster(SEED, properties={**PROPERTIES, "min.insync.replicas": str(kind.min_insync)})


def play(kind: type[Scenario], place: Place | None = None) -> CrashPoint:
    """Run a scenario, with a crash at a place. Raises `AssertionError`, or `TimeoutError` if it does not end."""
    with cluster_of(kind) as cluster:
        scenario = kind(cluster)

        async def story() -> CrashPoint:
            await scenario.prepare()
            point = armed(cluster, TOPIC, place)
            await repeatedly(scenario.act, lambda: point.struck != "" or scenario.is_done)
            for name in cluster.machines:
                cluster.crash_points.disarm(name)
            await asyncio.sleep(1.0)  # the last operation may not have ended yet
            if point.struck:
                cluster.start(point.struck)
                await cluster.ready()
                await repeatedly(scenario.act, lambda: scenario.is_done)
            await asyncio.sleep(QUIET_S)
            await cluster.until(lambda: scenario.is_done, PATIENCE_S)
            await scenario.check()
            return point

        return cluster.run(story())


def points(seen: list[str], operations: tuple[str, ...] = ()) -> list[Place]:
    """The points of a run with these operations, those with the same number together; `operations`: only these kinds
    (empty: all)."""
    numbers = [number for number, each in enumerate(seen) if not operations or each.split()[1] in operations]
    return [Place(number, crash) for number in numbers for crash in CRASHES]


def failures(kind: type[Scenario], chosen: list[Place], seen: list[str]) -> Iterator[str]:
    """The points at which the scenario does not end as it must."""
    for point in chosen:
        try:
            struck = play(kind, point).struck
        except (AssertionError, TimeoutError) as error:
            yield f"{kind.__name__}: {point.crash} {point.number} ({seen[point.number]}): {error!r}"
        else:
            assert struck, f"{point} is not in the run: runs of one seed differ"


@pytest.mark.rotating(SHARES * len(SCENARIOS))
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("kind", SCENARIOS)
def test_a_crash_at_any_operation_loses_no_record_and_leaves_no_orphan(kind: type[Scenario], share: int) -> None:
    seen = play(kind).operations
    found = list(failures(kind, points(seen)[share::SHARES], seen))
    assert not found, "\n".join(found)


@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    ("kind", "operations"),
    [
        (Uploading, {"append", "sync", "rename", "sync_directory", "put", "unlink"}),
        (Expiring, {"append", "sync", "rename", "sync_directory", "delete"}),
        (DeletingTheTopic, {"unlink", "remove_directory", "append", "sync", "delete"}),
        (Joins, {"append", "sync", "rename", "sync_directory"}),
    ],
)
def test_the_operations_of_a_scenario_are_counted(kind: type[Scenario], operations: set[str]) -> None:
    assert operations <= {each.split()[1] for each in play(kind).operations}


def no_copy_is_given_up(patch: pytest.MonkeyPatch) -> None:
    """Upload: the next leader leaves an interrupted copy as it is."""

    async def nothing(_: LeaderTask) -> None:
        pass

    patch.setattr(LeaderTask, "_give_up_copies", nothing)


def finished_before_deleted(patch: pytest.MonkeyPatch) -> None:
    """Deletion: DELETE_FINISHED is committed before the objects are deleted, and the search for orphans is off."""

    async def finish(worker: SegmentWorker, segment: TieredSegment) -> None:
        await worker.metadata.publish(SegmentEvent.to(SegmentState.DELETE_FINISHED, segment))
        for name in segment.object_names(worker.cluster_id):
            await worker.store.delete(name)

    async def nothing(_: LeaderTask) -> None:
        pass

    patch.setattr(SegmentWorker, "finish_deletion", finish)
    patch.setattr(LeaderTask, "_compare_with_store", nothing)


def start_is_stored_late(patch: pytest.MonkeyPatch) -> None:
    """Bootstrap: the log's start is stored after the first segment exists."""
    real_start, real_write = PartitionLog.start_above, RemoteStart.write
    late: list[tuple[RemoteStart, int]] = []

    async def write(file: RemoteStart, offset: int) -> None:
        late.append((file, offset))

    async def start_above(log: PartitionLog, offset: int, below: StateBelow) -> None:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(RemoteStart, "write", write)
            await real_start(log, offset, below)
        while late:
            await real_write(*late.pop())

    patch.setattr(PartitionLog, "start_above", start_above)


@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    ("kind", "plant", "operations"),
    [
        (Uploading, no_copy_is_given_up, ("put",)),
        (Expiring, finished_before_deleted, ("delete",)),
        (DeletingTheTopic, finished_before_deleted, ("delete",)),
        (Joins, start_is_stored_late, ("sync_directory",)),
    ],
)
def test_a_planted_fault_is_found(
    kind: type[Scenario],
    plant: Callable[[pytest.MonkeyPatch], None],
    operations: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a crash the fault has no effect: only a crash shows it."""
    plant(monkeypatch)
    seen = play(kind).operations
    assert next(failures(kind, points(seen, operations)[::-1], seen), None) is not None
