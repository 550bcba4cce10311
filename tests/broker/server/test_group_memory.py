"""The memory for groups at the broker itself: bounded over all partitions, and freed."""

import asyncio

import pytest

from broker.errors import ErrorCode
from broker.groups.memory_quota import MemoryKind
from broker.protocol.messages.group_apis import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from broker.server.metrics import metrics_of
from simulator.cluster import SimulatedCluster
from tests.broker.server.asking import Asking, ready
from tests.simulator.stories import in_cluster

LIMIT = 1 << 20
SETTINGS = {
    "group.coordinator.max.bytes": str(LIMIT),
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
LONG_SESSION_MS = 1_800_000
JOIN, OLDER_JOIN = 9, 3


def held(cluster: SimulatedCluster, broker: int) -> dict[MemoryKind, int]:
    account = cluster.node(f"n{broker}").groups.account
    return {kind: account.held(kind) for kind in MemoryKind}


class Client(Asking):
    """Asks one broker, which coordinates all groups that it asks for."""

    broker = -1

    async def finds(self, group: str) -> int:
        """The coordinator of a group, once there is one."""
        while True:
            request = FindCoordinatorRequest(coordinator_keys=[group])
            (found,) = (await self.ask(1, request, 4)).coordinators
            if found.error_code == ErrorCode.NONE:
                return found.node_id
            await asyncio.sleep(0.05)

    async def joins(self, group: str, member: str = "", version: int = JOIN, **how: object) -> JoinGroupResponse:
        size = how.get("size", 10)
        assert isinstance(size, int)
        protocols = [JoinGroupRequestProtocol("range", bytes(size))]
        request = JoinGroupRequest(group, LONG_SESSION_MS, 60_000, member, None, "consumer", protocols)
        while True:
            answer = await self.ask(self.broker, request, version)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return answer
            await asyncio.sleep(0.05)

    async def comes_in(self, group: str) -> str:
        """A new member, alone in its group or not: its id."""
        member = (await self.joins(group)).member_id
        joined = await self.joins(group, member)
        assert joined.error_code == ErrorCode.NONE
        await self.syncs(group, joined)
        return member

    async def syncs(self, group: str, joined: JoinGroupResponse) -> bytes:
        shares = [SyncGroupRequestAssignment(each.member_id, b"share") for each in joined.members]
        sync = SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=shares)
        answer = await self.ask(self.broker, sync, 5)
        assert answer.error_code == ErrorCode.NONE
        return answer.assignment

    async def leaves(self, group: str, member: str) -> None:
        request = LeaveGroupRequest(group, members=[MemberIdentity(member)])
        answer = await self.ask(self.broker, request, 5)
        assert answer.members[0].error_code == ErrorCode.NONE

    async def heartbeat(self, group: str, member: str, generation: int) -> ErrorCode:
        answer = await self.ask(self.broker, HeartbeatRequest(group, generation, member), 4)
        return ErrorCode(answer.error_code)


async def client_of(cluster: SimulatedCluster) -> Client:
    """A client of a coordinator of the group that is honest."""
    await ready(cluster)
    client = Client(cluster)
    client.broker = await client.finds("honest")
    return client


@pytest.mark.rotating(3)
@pytest.mark.parametrize(("version", "size"), [(JOIN, 10), (OLDER_JOIN, 10), (OLDER_JOIN, 50_000)])
@in_cluster(1, 1, properties={**SETTINGS, "offsets.topic.replication.factor": "1"})
async def test_a_flood_over_many_partitions_is_bounded_and_a_group_beside_it_rebalances(
    cluster: SimulatedCluster, /, version: int, size: int
) -> None:
    client = await client_of(cluster)
    first = await client.comes_in("honest")
    before = held(cluster, client.broker)
    for number in range(500):
        await client.joins(f"h{number}", version=version, size=size)
        now = held(cluster, client.broker)
        assert now[MemoryKind.NEWCOMERS] <= LIMIT // 4
        assert now[MemoryKind.NEWCOMERS] + now[MemoryKind.MEMBERS] <= LIMIT // 2
    assert now[MemoryKind.NEWCOMERS] > LIMIT // 8
    other = Client(cluster)
    other.broker = client.broker
    second = (await other.joins("honest")).member_id
    joining = asyncio.ensure_future(other.joins("honest", second))
    while await client.heartbeat("honest", first, 1) is ErrorCode.NONE:
        pass
    for number in range(500, 520):
        await client.joins(f"h{number}", version=version, size=size)
    leading = await client.joins("honest", first)
    follower = asyncio.ensure_future(other.syncs("honest", await joining))
    assert await client.syncs("honest", leading) == b"share"
    assert await follower == b"share"
    await client.leaves("honest", second)
    await client.syncs("honest", await client.joins("honest", first))
    page = metrics_of(cluster.node(f"n{client.broker}"), cluster.loop.time())
    shown = {it.labels["kind"]: it.value for it in page if it.name == "broker_group_bytes"}
    assert shown["newcomers"] == held(cluster, client.broker)[MemoryKind.NEWCOMERS] > 0
    for _ in range(40):  # until none of the others has a session any more
        await asyncio.sleep(60)
        assert await client.heartbeat("honest", first, 3) is ErrorCode.NONE
    assert held(cluster, client.broker) == before, "everything is given back"


@in_cluster(1, properties=SETTINGS)
async def test_a_deposed_coordinator_frees_its_memory(cluster: SimulatedCluster, /) -> None:
    client = await client_of(cluster)
    await client.comes_in("honest")
    for number in range(30):
        await client.joins("honest" if number % 2 else f"h{number}")
    old, others = client.broker, [f"n{node}" for node in cluster.addresses if node != client.broker]
    assert held(cluster, old)[MemoryKind.NEWCOMERS] > 0
    cluster.partition([f"n{old}"], others)
    await asyncio.sleep(20)
    cluster.heal()
    await cluster.until(lambda: sum(held(cluster, old).values()) == 0)
    new = next(node for node in cluster.addresses if held(cluster, node)[MemoryKind.MEMBERS])
    assert held(cluster, new)[MemoryKind.NEWCOMERS] == 0, "it has no information about members that had not joined"
