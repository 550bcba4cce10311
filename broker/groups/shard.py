"""The groups of one partition of `__consumer_offsets`, in one leader epoch.

Theory of operation. A shard lives for one leader epoch. It starts with the content of the log and ends with the
leadership, so that it answers nothing from an older epoch. Requests come in with tickets, and every method returns the
effects to execute now: replies and appends. A reply is emitted only when everything that it reports is committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable

from broker.errors import ErrorCode, ProtocolError
from broker.groups.administration import REMOVAL, Administration
from broker.groups.commits import Commits
from broker.groups.group import ConnectedClient, Group
from broker.groups.group_effects import Effect, Outbox
from broker.groups.group_settings import GroupSettings
from broker.groups.groups import Groups
from broker.groups.members import INVITATION, Membership, find
from broker.groups.memory_quota import Account, Holdings, MemoryKind
from broker.groups.offsets import CommittedOffset, Offsets
from broker.groups.rebalance import JOINING, SYNCING, Rebalance, refused_join, refused_sync
from broker.groups.timers import SESSION, MemberSessions, Timer, Timers
from broker.protocol.messages.group_apis import (
    DescribedGroup,
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
    OffsetCommitKey,
    OffsetCommitValue,
    read_record,
)
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)

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
        self.holdings = held = Holdings(account or Account(settings.max_bytes))
        self._settings = settings
        self._offsets = Offsets(held)
        self._groups = Groups(held, self._offsets)
        self._outbox = outbox = Outbox()
        self._timers = timers = Timers()
        self._sessions = sessions = MemberSessions(timers)
        self._rebalance = Rebalance(settings, held, self._groups, outbox, timers, sessions, wall_ms)
        self._membership = Membership(settings, held, outbox, timers, sessions, self._rebalance, rng)
        self._commits = Commits(settings, held, self._groups, self._offsets, outbox, sessions, wall_ms, knows)
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
            least, most = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
            if not least <= request.session_timeout_ms <= most:
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

    def fetch(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """OffsetFetch of one group."""
        return self._commits.fetch(asked)

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
