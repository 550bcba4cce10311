"""The groups of one partition of `__consumer_offsets`, in one leader epoch.

Theory of operation. A shard lives for one leader epoch. It starts with the content of the log and ends with the
leadership, so that it answers nothing from an older epoch. Requests come in with tickets, and every method returns the
effects to execute now: replies and appends. A reply is emitted only when everything that it reports is committed.
"""

import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

from broker.errors import ErrorCode, ProtocolError, shortened
from broker.groups.commits import Commits
from broker.groups.group import CONSUMER, ConnectedClient, Group, GroupState
from broker.groups.group_effects import Effect, Outbox
from broker.groups.group_settings import GroupSettings
from broker.groups.groups import Groups
from broker.groups.members import INVITATION, Membership, find
from broker.groups.memory_quota import Account, Holdings, MemoryKind
from broker.groups.offsets import Changes, CommittedOffset, Offsets, TopicPartition, removals
from broker.groups.rebalance import JOINING, SYNCING, Rebalance, refused_join, refused_sync
from broker.groups.timers import SESSION, MemberSessions, Timer, Timers
from broker.protocol.messages.group_apis import (
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
)
from broker.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LogRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    read_record,
    record,
)
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from broker.protocol.schema import Topic

# ---- Administration of groups: describe, list and delete them; delete offsets; expire unused offsets and groups.

CLASSIC: Final = "classic"
REMOVAL: Final = "removal"
REMOVE_AGAIN_S = 1.0  # pause before removing a deleted topic's offsets again, after the log refused the append
_COUNT = Struct(">hi")  # of a subscription: its version, and the number of topics that follow
_LENGTH = Struct(">h")


@dataclass(eq=False)
class Administration:
    """Describes, lists and removes groups."""

    _settings: GroupSettings
    _groups: Groups
    _offsets: Offsets
    _outbox: Outbox
    _timers: Timers
    _wall_ms: Callable[[], int]

    # --- describing

    def describe(self, name: str, version: int) -> DescribedGroup:
        """A group that does not exist is described as dead; from version 6 on that is an error (KIP-1043)."""
        group = self._groups.get(name)
        if group is None:
            missing = DescribedGroup(group_id=name, group_state=GroupState.DEAD.value)
            if version >= 6:
                missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                missing.error_message = shortened(f"group {name!r} does not exist")
            return missing
        stable = group.state is GroupState.STABLE
        return DescribedGroup(
            group_id=name,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.id,
                    group_instance_id=member.instance_id,
                    client_id=member.client.id,
                    client_host=member.client.host,
                    member_metadata=member.metadata(group.protocol) if stable else b"",
                    member_assignment=member.assignment if stable else b"",
                )
                for member in group.members.values()
            ],
        )

    def listed(self) -> Iterable[ListedGroup]:
        """All groups."""
        for group in self._groups:
            yield ListedGroup(group.id, group.protocol_type or "", group.state.value, CLASSIC)

    # --- removing

    def delete(self, ticket: int, name: str) -> None:
        """Delete a group without members, with all of its offsets."""
        group = self._groups.get(name)
        if group is None:
            self._deleted(ticket, name, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        if group.state is not GroupState.EMPTY:
            self._deleted(ticket, name, ErrorCode.NON_EMPTY_GROUP)
            return
        changes: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(self._offsets.known(name))
        self._remove_group(group, changes, lambda code: self._deleted(ticket, name, code))

    def _deleted(self, ticket: int, name: str, code: ErrorCode) -> None:
        self._outbox.reply(ticket, DeleteGroupsResponse(results=[DeletableGroupResult(name, code)]))

    def delete_offsets(self, ticket: int, request: OffsetDeleteRequest) -> None:
        """Delete offsets of partitions that no member reads."""
        group = self._groups.get(request.group_id)
        if group is None:
            self._outbox.reply(ticket, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
            return
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
            self._outbox.reply(ticket, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
            return
        read = topics_read(group)
        response = OffsetDeleteResponse()
        accepted: list[OffsetDeleteResponsePartition] = []
        changes: dict[TopicPartition, CommittedOffset | None] = {}
        for topic in request.topics:
            answers = Topic[OffsetDeleteResponsePartition](topic.name)
            response.topics.append(answers)
            for partition in topic.partitions:
                partition_answer = OffsetDeleteResponsePartition(partition.partition_index)
                answers.partitions.append(partition_answer)
                if read is None or topic.name in read:
                    partition_answer.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif (topic.name, partition.partition_index) in self._offsets.of(group.id):
                    accepted.append(partition_answer)
                    changes[topic.name, partition.partition_index] = None

        def answer(code: ErrorCode) -> None:
            for partition in accepted:
                partition.error_code = code
            self._outbox.reply(ticket, response)

        if changes:
            self._remove_offsets(group.id, changes, [], answer)
        else:
            self._outbox.reply(ticket, response)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Remove the offsets of deleted topics, including those that are on their way to the log."""
        for name in self._offsets.groups():
            self._forget(name, [partition for partition in self._offsets.known(name) if partition[0] in topics])

    def _forget(self, name: str, partitions: list[TopicPartition]) -> None:
        if partitions:
            changes = dict.fromkeys(partitions)
            self._remove_offsets(name, changes, [], undo=lambda now: self._put_off(now, name, partitions))

    def _put_off(self, now: float, name: str, partitions: Iterable[TopicPartition]) -> None:
        self._offsets.put_off(name, partitions)
        self._timers.set(Timer(REMOVAL), now + REMOVE_AGAIN_S)

    def remove_overdue(self, now: float) -> None:
        """Retry removals that the log refused. Pending changes of the offset must be committed first: they may belong
        to the deleted topic, or to a new one of the same name, whose offset stays."""
        for name, partitions in self._offsets.take_overdue().items():
            waiting = dict.fromkeys(
                partition for partition in partitions if self._offsets.is_announced(name, partition)
            )
            if waiting:
                self._put_off(now, name, waiting)
            self._forget(
                name,
                [
                    partition
                    for partition in partitions
                    if partition not in waiting and partition in self._offsets.of(name)
                ],
            )

    def expire(self) -> None:
        """Remove what was not used during the retention time: offsets, then groups with neither offsets nor members."""
        now_ms = self._wall_ms()
        for group in list(self._groups):
            changes = dict.fromkeys(self._expired(group, now_ms))
            empty = group.state is GroupState.EMPTY and not group.invited
            remaining = len(self._offsets.of(group.id)) - len(changes)
            if empty and not remaining and not self._offsets.will_change(group.id):
                self._remove_group(group, changes)
            elif changes:
                self._remove_offsets(group.id, changes, [])

    def _expired(self, group: Group, now_ms: int) -> list[TopicPartition]:
        """The offsets to expire. The members' subscriptions are decoded only if an offset is old enough."""
        old = [
            partition
            for partition, offset in self._offsets.of(group.id).items()
            if not self._offsets.is_announced(group.id, partition) and self._is_old(group, offset, now_ms)
        ]
        if not old:
            return []
        read = topics_read(group)
        return [] if read is None else [partition for partition in old if partition[0] not in read]

    def _is_old(self, group: Group, offset: CommittedOffset, now_ms: int) -> bool:
        """Whether an offset expires unless its topic is read."""
        if offset.expire_ms >= 0:
            return group.state is GroupState.EMPTY and offset.expire_ms <= now_ms
        if group.used and group.state is GroupState.EMPTY:
            since_ms = max(group.since_ms, offset.commit_ms)
        elif not group.used or group.state is GroupState.STABLE:
            since_ms = offset.commit_ms
        else:
            return False
        return now_ms - since_ms >= self._settings.offsets_retention_ms

    def _remove_group(
        self, group: Group, changes: Changes, answer: Callable[[ErrorCode], None] = lambda _: None
    ) -> None:
        """The name is free from now on: a member that joins under it starts a new group, later in the log."""
        self._groups.remove(group.id)
        group.state = GroupState.DEAD
        records = [record(GroupMetadataKey(group.id), None)] if group.used else []

        def undo(_now: float) -> None:
            if group.id not in self._groups:
                group.state = GroupState.EMPTY
                self._groups.keep(group)

        if records or changes:
            self._remove_offsets(group.id, changes, records, answer, undo)
        else:
            answer(ErrorCode.NONE)

    def _remove_offsets(
        self,
        name: str,
        changes: Changes,
        records: list[LogRecord],
        answer: Callable[[ErrorCode], None] = lambda _: None,
        undo: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Append the removals in one batch with `other` records; `undo` reverts what was done for them on a refusal."""
        self._offsets.announce(name, changes)

        def committed(_now: float) -> None:
            self._offsets.make(name, changes)
            answer(ErrorCode.NONE)

        def refused(now: float, code: ErrorCode) -> None:
            self._offsets.withdraw(name, changes)
            undo(now)
            answer(code)

        def late(_now: float, code: ErrorCode) -> None:
            answer(code)

        self._outbox.append([*removals(name, changes), *records], committed=committed, refused=refused, late=late)


def topics_read(group: Group) -> Collection[str] | None:
    """The topics to which the members of a consumer group subscribe; None: unknown, it may be every topic."""
    if group.state is GroupState.EMPTY or not group.used:
        return ()
    if group.state is not GroupState.STABLE or group.protocol_type != CONSUMER or group.protocol is None:
        return None
    read: set[str] = set()
    for member in group.members.values():
        topics = _topics(member.metadata(group.protocol))
        if topics is None:
            return None
        read |= topics
    return read


def _topics(subscription: bytes) -> set[str] | None:
    """The topics of a consumer's subscription (version, count, names; the rest is not needed here).

    Each name takes bytes of the received data, whatever its length field says, so no count makes the loop long.
    """
    try:
        _, count = _COUNT.unpack_from(subscription)
        if count < 0:
            return None
        position, topics = _COUNT.size, set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, position)
            position += _LENGTH.size
            if not 0 <= length <= len(subscription) - position:
                return None
            topics.add(subscription[position : position + length].decode())
            position += length
    except (error, UnicodeDecodeError):
        return None
    return topics


RETENTION = "retention"


class Shard:
    """The groups of one partition. `wall_ms`: the wall clock in ms since 1970. `knows`: whether the cluster has a
    partition of a topic. All other times are seconds of the caller's clock."""

    def __init__(
        self,
        settings: GroupSettings,
        rng: random.Random,
        wall_ms: Callable[[], int],
        knows: Callable[[str, int], bool],
        account: Account | None = None,
    ) -> None:
        """`account`: shared by all shards of a broker; None: this is the only one."""
        self.holdings = holdings = Holdings(account or Account(settings.max_bytes))
        self._settings = settings
        self._offsets = Offsets(holdings)
        self._groups = Groups(holdings, self._offsets)
        self._outbox = outbox = Outbox()
        self._timers = timers = Timers()
        self._sessions = sessions = MemberSessions(timers)
        self._rebalance = Rebalance(settings, holdings, self._groups, outbox, timers, sessions, wall_ms)
        self._membership = Membership(settings, holdings, outbox, timers, sessions, self._rebalance, rng)
        self._commits = Commits(settings, holdings, self._groups, self._offsets, outbox, sessions, wall_ms, knows)
        self._administration = Administration(
            settings, self._groups, self._offsets, self._outbox, self._timers, wall_ms
        )

    # --- the log

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply a record of the log, in log order. Raises `DecodeError`."""
        read = read_record(key, value)
        match read:
            case (OffsetCommitKey() as its, OffsetCommitValue() as said):
                offset = CommittedOffset(
                    said.offset, said.leader_epoch, said.metadata, said.commit_timestamp, said.expire_timestamp
                )
                self._offsets.apply(its.group, {(its.topic, its.partition): offset})
            case (OffsetCommitKey() as its, None):
                self._offsets.apply(its.group, {(its.topic, its.partition): None})
            case (GroupMetadataKey() as its, GroupMetadataValue() as said):
                self._groups.keep(Group.from_record(its.group, said))
            case (GroupMetadataKey() as its, None):
                self._groups.remove(its.group)

    def begin(self, now: float) -> None:
        """The whole log was replayed. Members start a new session now: their heartbeats went to another broker."""
        for name in self._offsets.groups():
            if name not in self._groups:
                self._groups.keep(Group(name, kind=MemoryKind.OFFSETS))
        for group in self._groups:
            for member in group.members.values():
                self._sessions.heard(now, group, member)
        self._timers.set(Timer(RETENTION), now + self._settings.retention_check_interval_s)

    # --- time and the outcome of appends

    def deadline(self) -> float | None:
        """The time at which `tick` is due."""
        return self._timers.next()

    def tick(self, now: float) -> list[Effect]:
        """Handle the deadlines that have passed."""
        for timer in self._timers.due(now):
            if timer.kind == RETENTION:
                self._administration.expire()
                self._timers.set(timer, now + self._settings.retention_check_interval_s)
            elif timer.kind == REMOVAL:
                self._administration.remove_overdue(now)
            elif (group := self._groups.get(timer.group)) is not None:
                self._expired(now, timer, group)
        return self._outbox.take()

    def _expired(self, now: float, timer: Timer, group: Group) -> None:
        if timer.kind == SESSION:
            self._membership.session_expired(now, group, timer.member)
        elif timer.kind == INVITATION:
            self._membership.invitation_expired(now, group, timer.member)
        elif timer.kind == JOINING:
            self._rebalance.joining_expired(now, group)
        elif timer.kind == SYNCING:
            self._membership.remove_unsynced(now, group)

    def committed(self, now: float, token: int) -> list[Effect]:
        """An append is committed. Called in log order."""
        self._outbox.committed(now, token)
        return self._outbox.take()

    def refused(self, now: float, token: int, error: ErrorCode) -> list[Effect]:
        """Nothing was appended; `error` is for the clients."""
        self._outbox.refused(now, token, error)
        return self._outbox.take()

    def late(self, now: float, token: int, error: ErrorCode) -> list[Effect]:
        """An append was not committed in time; `committed` may follow."""
        self._outbox.late(now, token, error)
        return self._outbox.take()

    # --- members

    def join(
        self, now: float, ticket: int, request: JoinGroupRequest, client: ConnectedClient, version: int
    ) -> list[Effect]:
        """JoinGroup; `version` is that of the request."""
        try:
            min_ms, max_ms = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
            if not min_ms <= request.session_timeout_ms <= max_ms:
                raise ProtocolError(ErrorCode.INVALID_SESSION_TIMEOUT)
            group = self._groups.get(request.group_id)
            if group is None:
                if request.member_id:
                    raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
                group = Group(request.group_id)
            self._membership.join(now, ticket, group, request, client, version)
            self._groups.keep(group)
        except ProtocolError as error:
            self._outbox.reply(ticket, refused_join(error.code, request.member_id))
        return self._outbox.take()

    def sync(self, now: float, ticket: int, request: SyncGroupRequest) -> list[Effect]:
        """SyncGroup."""
        try:
            group = self._group(request.group_id)
            member = find(group, request.member_id, request.group_instance_id)
            self._rebalance.sync(now, ticket, group, member, request)
        except ProtocolError as error:
            self._outbox.reply(ticket, refused_sync(error.code))
        return self._outbox.take()

    def heartbeat(self, now: float, ticket: int, request: HeartbeatRequest) -> list[Effect]:
        """Heartbeat."""
        try:
            code = self._membership.heartbeat(now, self._group(request.group_id), request)
        except ProtocolError as error:
            code = error.code
        self._outbox.reply(ticket, HeartbeatResponse(error_code=code))
        return self._outbox.take()

    def leave(self, now: float, ticket: int, request: LeaveGroupRequest, version: int) -> list[Effect]:
        """LeaveGroup: up to version 2 of one member, later of several, each with its own answer."""
        leaving = request.members if version >= 3 else [MemberIdentity(request.member_id)]
        group = self._groups.get(request.group_id)
        codes = [
            ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._membership.leave(now, group, member)
            for member in leaving
        ]
        response = LeaveGroupResponse()
        if version < 3:
            response.error_code = codes[0]
        for member, code in zip(leaving, codes, strict=True):
            response.members.append(MemberResponse(member.member_id, member.group_instance_id, code))
        self._outbox.reply(ticket, response)
        return self._outbox.take()

    def evict(self, now: float, name: str, member: str) -> list[Effect]:
        """Evict a newcomer, named by its member id or invitation."""
        group = self._groups.get(name)
        if group is not None:
            self._membership.evict(now, group, member)
        return self._outbox.take()

    def _group(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # --- offsets

    def commit(self, now: float, ticket: int, request: OffsetCommitRequest) -> list[Effect]:
        """OffsetCommit; answered once it is committed."""
        self._commits.commit(now, ticket, request)
        return self._outbox.take()

    def fetch(self, requested_group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """OffsetFetch of one group."""
        return self._commits.fetch(requested_group)

    def topics_deleted(self, topics: Collection[str]) -> list[Effect]:
        """Remove the offsets of deleted topics as soon as the log accepts it."""
        self._administration.forget_topics(topics)
        return self._outbox.take()

    # --- administration

    def describe(self, name: str, version: int) -> DescribedGroup:
        """DescribeGroups of one group."""
        return self._administration.describe(name, version)

    def listed(self) -> Iterable[ListedGroup]:
        """ListGroups, unfiltered."""
        return self._administration.listed()

    def delete(self, ticket: int, name: str) -> list[Effect]:
        """DeleteGroups of one group; answered once it is committed."""
        self._administration.delete(ticket, name)
        return self._outbox.take()

    def delete_offsets(self, ticket: int, request: OffsetDeleteRequest) -> list[Effect]:
        """OffsetDelete; answered once it is committed."""
        self._administration.delete_offsets(ticket, request)
        return self._outbox.take()
