"""A consumer of a group in the simulated world: joins, is assigned partitions, reads, commits and records it all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

from broker.errors import ErrorCode
from broker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from broker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from broker.protocol.schema import Message
from broker.server.client import PeerConnector
from history.groups import Commit, Delivered, Fetched
from history.schemas import INF
from simulator.client import RefusedError, SimulatedClient, UncertainError
from simulator.cluster import SimulatedCluster

GROUP = "g"
PAUSE_S = 0.05
COMMIT_EVERY_S = 0.3
HEARTBEAT_EVERY_S = 0.5


class AgainError(Exception):
    """The consumer has to join anew."""


@dataclass
class Recorded:
    """What all consumers of a run did."""

    commits: list[Commit] = field(default_factory=list)
    fetches: list[Fetched] = field(default_factory=list)
    deliveries: list[Delivered] = field(default_factory=list)
    generations: set[int] = field(default_factory=set)


class GroupConsumer:
    """One consumer. `live` until `stopping` is set from outside."""

    def __init__(self, name: str, cluster: SimulatedCluster, topic: str, partitions: int, record: Recorded) -> None:
        self.stopping = False
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._record = record
        self._brokers = sorted(cluster.addresses)
        self._log = SimulatedClient(cluster.addresses)
        self._connector = PeerConnector(-1, cluster.addresses, response_max_bytes=1 << 20)
        self._member, self._generation, self._node = "", -1, -1

    async def live(self) -> None:
        while not self.stopping:
            try:
                await self._find()
                await self._read(await self._join())
            except (OSError, AgainError):
                await asyncio.sleep(PAUSE_S)

    async def committed(self, partitions: list[int]) -> dict[int, int]:
        """What is committed for some partitions. Raises `OSError` and `AgainError`."""
        asked = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopics(self._topic, partitions)])
        inv = _now()
        (group,) = cast(OffsetFetchResponse, await self._ask(OffsetFetchRequest(groups=[asked]), 9)).groups
        self._check(group.error_code)
        offsets = {each.partition_index: each.committed_offset for each in group.topics[0].partitions}
        self._record.fetches += [Fetched(self._name, *each, inv, _now()) for each in offsets.items()]
        return offsets

    async def find_and_fetch(self) -> dict[int, int]:
        """`committed` of all partitions, from whoever coordinates now."""
        await self._find()
        return await self.committed(list(range(self._partitions)))

    async def _find(self) -> None:
        self._brokers.append(self._brokers.pop(0))  # one that is cut off goes on naming who coordinated before
        for node in self._brokers:
            try:
                request = FindCoordinatorRequest(coordinator_keys=[GROUP])
                answer = cast(FindCoordinatorResponse, await self._connector.request(node, request, 4, 1.0))
            except OSError:
                continue
            (found,) = answer.coordinators
            if found.error_code == ErrorCode.NONE:
                self._node = found.node_id
                return
        raise AgainError("no broker knows a coordinator")

    async def _ask(self, request: Message, version: int, timeout: float = 2.0) -> Message:
        return await self._connector.request(self._node, request, version, timeout)

    def _check(self, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member = ""
        if code != ErrorCode.NONE:
            raise AgainError(ErrorCode(code).name)

    # --- generations

    async def _join(self) -> list[int]:
        """The partitions that this consumer has in a new generation."""
        answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED)
        while answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            protocols = [JoinGroupRequestProtocol("own", self._name.encode())]
            request = JoinGroupRequest(GROUP, 6_000, 8_000, self._member, None, "consumer", protocols)
            answer = cast(JoinGroupResponse, await self._ask(request, 9, timeout=12.0))
            if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self._member = answer.member_id
        self._check(answer.error_code)
        self._generation = answer.generation_id
        self._record.generations.add(answer.generation_id)
        names = sorted(member.member_id for member in answer.members)
        shares = [SyncGroupRequestAssignment(name, self._share(n, len(names))) for n, name in enumerate(names)]
        sync = SyncGroupRequest(GROUP, self._generation, self._member, assignments=shares)
        assigned = cast(SyncGroupResponse, await self._ask(sync, 5, timeout=12.0))
        self._check(assigned.error_code)
        return list(assigned.assignment)

    def _share(self, number: int, members: int) -> bytes:
        return bytes(range(number, self._partitions, members))

    # --- reading

    async def _read(self, partitions: list[int]) -> None:
        """Read and commit until the generation is over."""
        offsets = await self.committed(partitions) if partitions else {}
        positions = {partition: max(offset, 0) for partition, offset in offsets.items()}
        committed = dict(positions)
        loop = asyncio.get_running_loop()
        commit_at = heartbeat_at = loop.time()
        while not self.stopping:
            for partition, offset in positions.items():
                try:
                    fetched = await self._log.fetch(self._topic, partition, offset, max_wait=0.0, timeout=1.0)
                except (RefusedError, UncertainError):
                    continue
                if fetched.records:
                    at = fetched.records[-1].offset
                    self._record.deliveries.append(Delivered(self._name, partition, offset, at, _now()))
                    positions[partition] = at + 1
            if loop.time() >= heartbeat_at:
                beat = HeartbeatRequest(GROUP, self._generation, self._member)
                self._check(cast(HeartbeatResponse, await self._ask(beat, 4)).error_code)
                heartbeat_at = loop.time() + HEARTBEAT_EVERY_S
            if loop.time() >= commit_at:
                await self._commit({its: at for its, at in positions.items() if committed[its] != at})
                committed = dict(positions)
                commit_at = loop.time() + COMMIT_EVERY_S
            await asyncio.sleep(PAUSE_S)

    async def _commit(self, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        places = [OffsetCommitRequestPartition(partition, offset, -1, "") for partition, offset in offsets.items()]
        topics = [OffsetCommitRequestTopic(self._topic, places)]
        request = OffsetCommitRequest(GROUP, self._generation, self._member, topics=topics)
        inv, acknowledged, worst = _now(), set[int](), int(ErrorCode.NONE)
        try:
            answer = cast(OffsetCommitResponse, await self._ask(request, 9, timeout=6.0))
            for place in answer.topics[0].partitions:
                if place.error_code == ErrorCode.NONE:
                    acknowledged.add(place.partition_index)
                else:
                    worst = place.error_code
        finally:
            self._record.commits += [
                Commit(self._name, partition, offset, inv, _now() if partition in acknowledged else INF)
                for partition, offset in offsets.items()
            ]
        self._check(worst)


def _now() -> int:
    return round(asyncio.get_running_loop().time() * 1e9)
