"""The group coordinator in the simulated world: its acknowledged commits are at the next coordinator."""

import asyncio
from collections.abc import Iterable

import pytest

from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.errors import ErrorCode
from broker.log.log import PartitionLog
from broker.protocol.messages.group_apis import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from broker.protocol.messages.offset_apis import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from broker.protocol.messages.topic_apis import CreatePartitionsRequest, CreatePartitionsTopic
from broker.protocol.request import Request, Response
from broker.protocol.schema import Topic
from broker.server.client import PeerConnector
from simulator.cluster import SimulatedCluster
from tests.simulator.stories import in_cluster, started

SETTINGS = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.commit.timeout.ms": "1000",
}
GROUP, TOPIC = "g", "log"
PAUSE_S = 0.05


class GroupClient:
    """Speaks to the coordinator of group g, wherever it is."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._brokers = sorted(cluster.addresses)
        self._connector = PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20)

    async def coordinator(self, *, unlike: int = -1) -> int:
        """The coordinator as soon as a broker names one other than `unlike`."""
        while True:
            for node in self._brokers:
                try:
                    request = FindCoordinatorRequest(coordinator_keys=[GROUP])
                    answer = await self._connector.request(node, request, 1.0)
                except OSError:
                    continue
                (found,) = answer.coordinators
                if found.error_code == ErrorCode.NONE and found.node_id != unlike:
                    return found.node_id
            await asyncio.sleep(PAUSE_S)

    async def ask(self, node: int, request: Request[Response], version: int, timeout: float = 5.0) -> Response:
        return await self._connector.request(node, request, timeout, version)

    async def commit(self, node: int, offset: int, member: str = "", generation: int = -1) -> ErrorCode:
        place = OffsetCommitRequestPartition(0, offset, -1, "")
        request = OffsetCommitRequest(GROUP, generation, member, topics=[Topic(TOPIC, [place])])
        answer = await self.ask(node, request, 9)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def committed(self, node: int) -> int:
        """The committed offset as soon as the coordinator has loaded it."""
        asked = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopic(TOPIC, [0])])
        while True:
            answer = await self.ask(node, OffsetFetchRequest(groups=[asked]), 9)
            (group,) = answer.groups
            if group.error_code == ErrorCode.NONE:
                return group.topics[0].partitions[0].committed_offset
            assert group.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
            await asyncio.sleep(PAUSE_S)

    async def joins_alone(self, node: int) -> tuple[str, int]:
        """The only member of a stable group: its id and generation."""
        member, answer = "", JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED)
        while answer.error_code != ErrorCode.NONE:
            request = JoinGroupRequest(
                GROUP, 10_000, 10_000, member, None, "consumer", [JoinGroupRequestProtocol("range", b"m")]
            )
            answer = await self.ask(node, request, 9)
            member = answer.member_id
            await asyncio.sleep(PAUSE_S)
        sync = SyncGroupRequest(
            GROUP, answer.generation_id, member, assignments=[SyncGroupRequestAssignment(member, b"a")]
        )
        assigned = await self.ask(node, sync, 5)
        assert (assigned.error_code, assigned.assignment) == (ErrorCode.NONE, b"a")
        return member, answer.generation_id

    async def heartbeat(self, node: int, member: str, generation: int) -> ErrorCode:
        answer = await self.ask(node, HeartbeatRequest(GROUP, generation, member), 4)
        return ErrorCode(answer.error_code)


async def begin(cluster: SimulatedCluster) -> tuple[GroupClient, int]:
    """A cluster with a topic, and the first coordinator, loaded."""
    topics = await started(cluster)
    await topics.create_topic(TOPIC, 1)
    client = GroupClient(cluster)
    coordinator = await client.coordinator()
    assert await client.committed(coordinator) == -1
    return client, coordinator


@pytest.mark.conforms("CG-4")
@pytest.mark.parametrize("seed", range(3))
@in_cluster("seed", properties=SETTINGS)
async def test_a_group_lives_on_when_its_coordinator_is_killed(cluster: SimulatedCluster, /) -> None:
    client, old = await begin(cluster)
    member, generation = await client.joins_alone(old)
    assert await client.commit(old, 7, member, generation) is ErrorCode.NONE
    cluster.kill(f"n{old}")
    new = await client.coordinator(unlike=old)
    assert await client.committed(new) == 7
    assert await client.heartbeat(new, member, generation) is ErrorCode.NONE
    assert await client.commit(new, 8, member, generation) is ErrorCode.NONE
    cluster.start()
    await cluster.ready()
    assert await client.heartbeat(old, member, generation) is ErrorCode.NOT_COORDINATOR


@in_cluster(1, properties=SETTINGS)
async def test_committed_offsets_stay_at_the_coordinator_of_the_group(cluster: SimulatedCluster, /) -> None:
    """A group's partition depends on their number, which therefore cannot be changed."""
    client, coordinator = await begin(cluster)
    assert await client.commit(coordinator, 7) is ErrorCode.NONE
    more = CreatePartitionsRequest([CreatePartitionsTopic(OFFSETS_TOPIC, 2)], 5_000)
    answer = await client.ask(coordinator, more, 3)
    assert answer.results[0].error_code == ErrorCode.INVALID_PARTITIONS
    again = await client.coordinator()
    assert await client.committed(again) == 7


def commit_while_cut_off(seed: int, mutants: Iterable[str] = ()) -> tuple[ErrorCode, int]:
    """What a coordinator says to a commit that no replica can get, and what its successor then has."""
    with SimulatedCluster(seed, properties=SETTINGS, mutants=mutants) as cluster:

        async def story() -> tuple[ErrorCode, int]:
            client, old = await begin(cluster)
            assert await client.commit(old, 7) is ErrorCode.NONE
            others = [f"n{node}" for node in cluster.addresses if node != old]
            cluster.partition([f"n{old}"], others)
            code = await client.commit(old, 8)
            new = await client.coordinator(unlike=old)
            return code, await client.committed(new)

        return cluster.run(story())


@pytest.mark.conforms("CG-3")
@pytest.mark.parametrize("seed", range(3))
def test_a_commit_that_no_replica_has_is_not_acknowledged(seed: int) -> None:
    code, committed = commit_while_cut_off(seed)
    assert code is not ErrorCode.NONE
    assert committed == 7


def test_a_coordinator_that_acknowledges_before_the_high_watermark_loses_commits() -> None:
    code, committed = commit_while_cut_off(0, ["commit_acked_before_hw"])
    assert code is ErrorCode.NONE
    assert committed < 8


@pytest.mark.parametrize("planted", [True, False])
def test_commits_of_a_coordinator_are_compared_with_disks(planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until replicas may have compacted it, each for itself."""
    flush = PartitionLog.flush

    async def counted(log: PartitionLog) -> int:
        if OFFSETS_TOPIC not in log.directory:
            return await flush(log)
        log._durable = max(log._durable, log._end)
        return log._durable

    if planted:
        monkeypatch.setattr(PartitionLog, "flush", counted)
    properties = {**SETTINGS, "log.flush.interval.messages": "1"}
    with SimulatedCluster(0, properties=properties, mutants=["tier_above_hw"]) as cluster:

        async def story() -> None:
            client, node = await begin(cluster)
            for number in range(5):
                assert await client.commit(node, number) is ErrorCode.NONE

        cluster.run(story())
    found = {(finding.oracle, finding.topic) for finding in cluster.watch.findings.found}
    assert found == ({("committed-not-durable", OFFSETS_TOPIC)} if planted else set())


@pytest.mark.conforms("CG-4")
@in_cluster(1, properties=SETTINGS)
async def test_a_coordinator_that_may_be_replaced_does_not_answer(cluster: SimulatedCluster, /) -> None:
    client, old = await begin(cluster)
    assert await client.commit(old, 7) is ErrorCode.NONE
    cluster.partition([f"n{old}"], [f"n{node}" for node in cluster.addresses if node != old])
    new = await client.coordinator(unlike=old)
    async with asyncio.timeout(30):
        while await client.commit(new, 8) is ErrorCode.NOT_COORDINATOR:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.05)  # it is yet to hear that it is
    asked = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopic(TOPIC, [0])])
    answer = await client.ask(old, OffsetFetchRequest(groups=[asked]), 9)
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.conforms("CG-3")
def test_committed_offsets_survive_retention_and_deleted_records() -> None:
    properties = {
        **SETTINGS,
        "log.retention.ms": "1",
        "log.retention.bytes": "1",
        "log.retention.check.interval.ms": "100",
        "offsets.topic.segment.bytes": "4096",
        "log.cleaner.backoff.ms": "200",
    }
    with SimulatedCluster(1, properties=properties) as cluster:

        async def story() -> None:
            client, old = await begin(cluster)
            member, generation = await client.joins_alone(old)
            for offset in range(100):
                assert await client.commit(old, offset, member, generation) is ErrorCode.NONE
            topic = Topic(OFFSETS_TOPIC, [DeleteRecordsPartition(0, -1)])
            answer = await client.ask(old, DeleteRecordsRequest([topic], 1_000), 2)
            refused = answer.topics[0].partitions[0]
            assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            await asyncio.sleep(5.0)
            node = cluster.node(f"n{old}")
            partition = node.replicas.partition(OFFSETS_TOPIC, 0)
            assert partition is not None
            assert partition.log.log_end_offset > 100
            assert partition.log.log_start_offset == 0
            assert len(cluster.journal.of("log_compacted")) > 2
            assert partition.log.size < 3 * 4096, "of all these commits one was worth keeping"
            cluster.kill(f"n{old}")
            new = await client.coordinator(unlike=old)
            assert await client.committed(new) == 99

        cluster.run(story())


@in_cluster(1, nodes=1, properties={**SETTINGS, "min.insync.replicas": "1"})
async def test_the_topic_is_not_created_with_fewer_brokers_than_replicas(cluster: SimulatedCluster, /) -> None:
    cluster.start()
    await cluster.ready()
    client = GroupClient(cluster)
    request = FindCoordinatorRequest(coordinator_keys=[GROUP])
    while not cluster.journal.of("offsets_topic_refused"):
        answer = await client.ask(1, request, 4)
        assert answer.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(PAUSE_S)
