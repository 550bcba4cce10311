"""The requests of consumer groups: selects the shard, and translates the differences between versions."""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Final, cast

from broker.coordinator.group_coordinator import GroupCoordinator, answered
from broker.coordinator.offsets_topic import fits
from broker.errors import ErrorCode, ProtocolError
from broker.groups.commits import answer_to_all
from broker.groups.group import ConnectedClient
from broker.groups.group_effects import Effect
from broker.groups.rebalance import refused_join, refused_sync
from broker.groups.shard import Shard
from broker.protocol.messages.group_apis import (
    TRANSACTION_KEY,
    Coordinator,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
)
from broker.protocol.schema import Message, Topic
from broker.server.connection import Outcome
from broker.server.dispatch import Call, Dispatcher, frame_later
from broker.server.work_budget import Turns, Work

GROUP_KEY: Final = 0  # key type of FindCoordinator; type 2, share groups, is not supported
CHARACTERS_PER_ENTRY: Final = 256  # of a name, whose partition is computed in the time of one entry


class GroupsHandler:
    """Serves all group APIs. `dispatcher` runs what waits; coordinators are named by their listener of this name.

    A request that names many groups is answered in turns; the length of the names and of the answers counts. For a
    request that waits for an answer only the shard keeps data, and counts it.
    """

    def __init__(self, dispatcher: Dispatcher, groups: GroupCoordinator, listener: str) -> None:
        self._listener = listener
        self._dispatcher = dispatcher
        self._groups = groups

    @property
    def _turns(self) -> Turns:
        return self._dispatcher.turns

    # --- coordinators

    def find_coordinator(self, request: FindCoordinatorRequest, version: int) -> Work[FindCoordinatorResponse]:
        if version >= 4:
            response = FindCoordinatorResponse()
            for key in request.coordinator_keys:
                response.coordinators.append(self._coordinator(key, request.key_type))
                yield
            return response
        coordinator = self._coordinator(request.key, request.key_type)
        return FindCoordinatorResponse(
            error_code=coordinator.error_code,
            error_message=coordinator.error_message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )

    def _coordinator(self, key: str, key_type: int) -> Coordinator:
        self._turns.spend(len(key) // CHARACTERS_PER_ENTRY)
        try:
            if key_type == TRANSACTION_KEY:
                # Clients go on asking for a coordinator whatever the error is. This broker answers their InitProducerId
                # with an error that says what is missing.
                node_id, host, port = self._groups.address(self._groups.node_id, self._listener)
            elif key_type == GROUP_KEY:
                node_id, host, port = self._groups.find(key, self._listener)
            else:
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST, f"key type {key_type} has no coordinator; only groups do"
                )
        except ProtocolError as error:
            return Coordinator(key, -1, "", -1, error.code, str(error))
        return Coordinator(key, node_id, host, port, ErrorCode.NONE, None)

    # --- members

    def join(self, call: Call) -> Outcome:
        """JoinGroup; the group records the client's id and address."""
        request = cast(JoinGroupRequest, call.request(self._dispatcher.turns))
        client = ConnectedClient(call.client_id or "", "/" + call.connection.peer.rpartition(":")[0])
        answer = _joined(self._join(request, client, call.version), call.version)
        return self._dispatcher.later(call, frame_later(call, answer), blocking=True)

    def _join(self, request: JoinGroupRequest, client: ConnectedClient, version: int) -> Awaitable[Message]:
        refuse = partial(refused_join, member_id=request.member_id)
        # A name that the group's record cannot hold would prevent every later generation from being stored.
        protocols = (protocol.name for protocol in request.protocols)
        names = (client.id, request.group_instance_id or "", request.protocol_type, *protocols)
        if not _is_group(request.group_id) or not all(map(fits, names)):
            return answered(refuse(ErrorCode.INVALID_GROUP_ID))
        return self._groups.ask(
            request.group_id, lambda shard, now, ticket: shard.join(now, ticket, request, client, version), refuse
        )

    def sync(self, request: SyncGroupRequest, _version: int) -> Awaitable[Message]:
        if not _is_group(request.group_id):
            return answered(refused_sync(ErrorCode.INVALID_GROUP_ID))
        return self._groups.ask(
            request.group_id, lambda shard, now, ticket: shard.sync(now, ticket, request), refused_sync
        )

    def heartbeat(self, request: HeartbeatRequest, _version: int) -> Awaitable[Message]:
        def refuse(code: ErrorCode) -> HeartbeatResponse:
            # A client keeps its session while its coordinator loads the log; it could not act on the error.
            loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else code)

        if not _is_group(request.group_id):
            return answered(refuse(ErrorCode.INVALID_GROUP_ID))
        return self._groups.ask(
            request.group_id, lambda shard, now, ticket: shard.heartbeat(now, ticket, request), refuse
        )

    def leave(self, request: LeaveGroupRequest, version: int) -> Awaitable[Message]:
        if not _is_group(request.group_id):
            return answered(_refused_leave(ErrorCode.INVALID_GROUP_ID))
        return self._groups.ask(
            request.group_id, lambda shard, now, ticket: shard.leave(now, ticket, request, version), _refused_leave
        )

    # --- offsets

    def commit(self, request: OffsetCommitRequest, _version: int) -> Awaitable[Message]:
        if not fits(request.group_id):
            return answered(answer_to_all(request, ErrorCode.INVALID_GROUP_ID))
        refuse = partial(_commit_refused, answer_to_all(request, ErrorCode.NONE))
        return self._groups.ask(request.group_id, lambda shard, now, ticket: shard.commit(now, ticket, request), refuse)

    def fetch(self, request: OffsetFetchRequest, version: int) -> Work[OffsetFetchResponse]:
        """Up to version 7 one group, later several. Each is answered once, because an answer may be large."""
        if version >= 8:
            if len({group.group_id for group in request.groups}) < len(request.groups):
                code = ErrorCode.INVALID_REQUEST
                return OffsetFetchResponse(
                    groups=[OffsetFetchResponseGroup(group.group_id, error_code=code) for group in request.groups]
                )
            response = OffsetFetchResponse()
            for group in request.groups:
                response.groups.append(self._fetch(group))
                yield
            return response
        offsets = self._fetch(OffsetFetchRequestGroup(request.group_id, topics=request.topics))
        if offsets.error_code and version < 2:  # these versions have errors only per partition
            offsets.topics = [_refused_topic(topic, offsets.error_code) for topic in request.topics or ()]
        return OffsetFetchResponse(error_code=offsets.error_code, topics=offsets.topics)

    def _fetch(self, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        self._turns.spend(len(group.group_id) // CHARACTERS_PER_ENTRY)
        try:
            offsets = self._groups.shard_of(group.group_id).fetch(group)
            self._turns.spend(sum(len(topic.partitions) for topic in offsets.topics))
            return offsets
        except ProtocolError as error:
            return OffsetFetchResponseGroup(group.group_id, error_code=error.code)

    def delete_offsets(self, request: OffsetDeleteRequest, _version: int) -> Awaitable[Message]:
        return self._groups.ask(
            request.group_id,
            lambda shard, _, ticket: shard.delete_offsets(ticket, request),
            lambda code: OffsetDeleteResponse(error_code=code),
        )

    # --- administration

    def describe(self, request: DescribeGroupsRequest, version: int) -> Work[DescribeGroupsResponse]:
        """Each group is answered once, even if named several times, because an answer may be large."""
        response = DescribeGroupsResponse()
        for name in dict.fromkeys(request.groups):
            response.groups.append(self._describe(name, version))
            yield
        return response

    def _describe(self, name: str, version: int) -> DescribedGroup:
        self._turns.spend(len(name) // CHARACTERS_PER_ENTRY)
        try:
            description = self._groups.shard_of(name).describe(name, version)
            self._turns.spend(len(description.members))
            return description
        except ProtocolError as error:
            return DescribedGroup(error_code=error.code, group_id=name)

    def listed(self, request: ListGroupsRequest, _version: int) -> ListGroupsResponse:
        """The groups of this broker. An empty filter matches all; filters ignore case."""
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        try:
            shards = self._groups.shards()
        except ProtocolError as error:
            return ListGroupsResponse(error_code=error.code)
        return ListGroupsResponse(
            groups=[
                group
                for shard in shards
                for group in shard.listed()
                if (not states or group.group_state.lower() in states)
                and (not types or group.group_type.lower() in types)
            ]
        )

    async def delete(self, request: DeleteGroupsRequest, _version: int) -> DeleteGroupsResponse:
        response = DeleteGroupsResponse()
        for name in request.groups_names:
            self._turns.spend(1 + len(name) // CHARACTERS_PER_ENTRY)
            answer = await self._groups.ask(name, partial(_delete, name), partial(_not_deleted, name))
            response.results += cast(DeleteGroupsResponse, answer).results
            if self._turns.is_over:
                await asyncio.sleep(0)
        return response


def _is_group(name: str) -> bool:
    """Whether a group with members can have this name."""
    return bool(name) and fits(name)


async def _joined(answer: Awaitable[Message], version: int) -> JoinGroupResponse:
    response = cast(JoinGroupResponse, await answer)
    if version < 7 and response.protocol_name is None:
        response.protocol_name = ""
    return response


def _commit_refused(response: OffsetCommitResponse, code: ErrorCode) -> OffsetCommitResponse:
    """The answer that refuses a commit; it keeps no text of the request but the names."""
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = code
    return response


def _refused_leave(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


def _delete(name: str, shard: Shard, _now: float, ticket: int) -> list[Effect]:
    return shard.delete(ticket, name)


def _not_deleted(name: str, code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(name, code)])


def _refused_topic(topic: OffsetFetchRequestTopic, code: int) -> Topic[OffsetFetchResponsePartition]:
    return Topic(
        topic.name, [OffsetFetchResponsePartition(index, -1, -1, "", code) for index in topic.partition_indexes]
    )
