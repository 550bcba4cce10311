"""A member of a consumer group on the broker's protocol: it joins, heartbeats, commits and leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from broker.errors import ErrorCode
from broker.protocol.messages.group_apis import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from broker.protocol.schema import Message
from broker.server.client import Address, PeerConnector

FIND_VERSION, JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 4, 9, 5, 4, 5
COMMIT_VERSION, FETCH_VERSION = 9, 9
RESPONSE_MAX_BYTES = 1 << 20
FIND_TIMEOUT_S, LEAVE_TIMEOUT_S = 1.0, 2.0
TYPE, BY_TURNS = "consumer", "by-turns"

# Errors after which another broker may be the coordinator.
_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)

LEFT: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
"""Errors after which a member must rejoin; after others it stays in its generation."""

Answer = TypeVar("Answer", bound=Message)


class GroupError(Exception):
    """The coordinator refused with this error code; the request had no effect."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class GroupClient:
    """One member, or a client that only fetches offsets. Timeouts are in seconds.

    Every method raises `GroupError` for a refusal and `OSError` without an answer; if the coordinator may have moved,
    the next call looks it up again.
    """

    def __init__(self, group: str, brokers: Mapping[int, Address], *, session_ms: int = 6_000) -> None:
        """`session_ms`: the time without a heartbeat after which the group removes this member."""
        self.generation = -1
        self._group = group
        self._session_ms = session_ms
        self._brokers = sorted(brokers)
        self._connector = PeerConnector(-1, brokers, response_max_bytes=RESPONSE_MAX_BYTES)
        self._member = ""
        self._coordinator: int | None = None

    async def join(self, partitions: int) -> list[int]:
        """This member's share of `partitions` partitions in a new generation: round-robin, in the order of members."""
        protocols = [JoinGroupRequestProtocol(BY_TURNS, b"")]
        patience_s = 2.0 * self._session_ms / 1000  # the others have a session's time to rejoin as well
        while True:
            request = JoinGroupRequest(
                self._group, self._session_ms, self._session_ms, self._member, None, TYPE, protocols
            )
            joined = await self._ask(request, JoinGroupResponse, JOIN_VERSION, patience_s)
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self._member = joined.member_id
        self._check(joined.error_code)
        self._member, self.generation = joined.member_id, joined.generation_id
        names = sorted(member.member_id for member in joined.members)
        shares = [
            SyncGroupRequestAssignment(name, _as_bytes(range(number, partitions, len(names))))
            for number, name in enumerate(names)
        ]
        sync = SyncGroupRequest(self._group, self.generation, self._member, assignments=shares)
        assigned = await self._ask(sync, SyncGroupResponse, SYNC_VERSION, patience_s)
        self._check(assigned.error_code)
        return [int(text) for text in assigned.assignment.split()]

    async def heartbeat(self, timeout: float = 2.0) -> None:
        """Send a heartbeat."""
        beat = HeartbeatRequest(self._group, self.generation, self._member)
        self._check((await self._ask(beat, HeartbeatResponse, HEARTBEAT_VERSION, timeout)).error_code)

    async def commit(self, topic: str, offsets: Mapping[int, int], timeout: float = 6.0) -> dict[int, ErrorCode]:
        """Commit offsets, once: the answer for each partition."""
        places = [OffsetCommitRequestPartition(partition, offset, -1, "") for partition, offset in offsets.items()]
        request = OffsetCommitRequest(
            self._group, self.generation, self._member, topics=[OffsetCommitRequestTopic(topic, places)]
        )
        answer = await self._ask(request, OffsetCommitResponse, COMMIT_VERSION, timeout)
        codes = {state.partition_index: ErrorCode(state.error_code) for state in answer.topics[0].partitions}
        for code in codes.values():
            self._learn(code)
        return codes

    async def committed(self, topic: str, partitions: Sequence[int], timeout: float = 2.0) -> dict[int, int]:
        """The committed offsets of these partitions; -1 without one."""
        query = OffsetFetchRequestGroup(self._group, topics=[OffsetFetchRequestTopics(topic, list(partitions))])
        answer = await self._ask(OffsetFetchRequest(groups=[query]), OffsetFetchResponse, FETCH_VERSION, timeout)
        (group,) = answer.groups
        self._check(group.error_code)
        return {
            state.partition_index: state.committed_offset
            for state in group.topics[0].partitions
            if state.error_code == ErrorCode.NONE
        }

    async def leave(self) -> None:
        """Send a LeaveGroup request without requiring an answer, and close every connection."""
        if self._member:
            request = LeaveGroupRequest(self._group, members=[MemberIdentity(self._member)])
            with contextlib.suppress(OSError, GroupError):
                await self._ask(request, LeaveGroupResponse, LEAVE_VERSION, LEAVE_TIMEOUT_S)
        self._connector.close()

    # --- the coordinator

    async def _ask(self, request: Message, answer: type[Answer], version: int, timeout: float) -> Answer:
        if self._coordinator is None:
            self._coordinator = await self._find()
        try:
            response = await self._connector.request(self._coordinator, request, version, timeout)
        except OSError:
            self._coordinator = None
            raise
        assert isinstance(response, answer)
        return response

    async def _find(self) -> int:
        self._brokers.append(self._brokers.pop(0))  # a broker that is cut off keeps naming the old coordinator
        request = FindCoordinatorRequest(coordinator_keys=[self._group])
        for node in tuple(self._brokers):
            try:
                answer = await self._connector.request(node, request, FIND_VERSION, FIND_TIMEOUT_S)
            except OSError:
                continue
            assert isinstance(answer, FindCoordinatorResponse)
            (coordinator,) = answer.coordinators
            if coordinator.error_code == ErrorCode.NONE:
                return coordinator.node_id
        raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _check(self, code: int) -> None:
        if code != ErrorCode.NONE:
            self._learn(ErrorCode(code))
            raise GroupError(ErrorCode(code))

    def _learn(self, code: ErrorCode) -> None:
        if code in _MOVED:
            self._coordinator = None
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member = ""


def _as_bytes(partitions: range) -> bytes:
    return " ".join(str(partition) for partition in partitions).encode()
