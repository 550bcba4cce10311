"""Who is in a group: joining, leaving, staying alive, and what each of them means for the generation.

The rules are those of Apache Kafka's coordinator for the classic protocol: KIP-62 (session and rebalance timeouts),
KIP-134 (the initial delay), KIP-345 (static members), KIP-394 (a member id is asked for before it is used), KIP-814
(a static leader that comes back assigns nothing).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from uuid import UUID

from broker.errors import ErrorCode, ProtocolError
from broker.groups.group import ConnectedClient, Group, GroupMember, GroupState, invitation_size
from broker.groups.group_effects import Outbox, told
from broker.groups.group_settings import GroupSettings
from broker.groups.memory_quota import Holdings, MemoryKind, text_bytes
from broker.groups.rebalance import Rebalance, joined, refused_join
from broker.groups.timers import MemberSessions, Timer, Timers
from broker.protocol.messages.heartbeat import HeartbeatRequest
from broker.protocol.messages.join_group import JoinGroupRequest
from broker.protocol.messages.leave_group import MemberIdentity

INVITATION = "invitation"


class Membership:
    """Changes the members of groups."""

    def __init__(
        self,
        settings: GroupSettings,
        holdings: Holdings,
        outbox: Outbox,
        timers: Timers,
        sessions: MemberSessions,
        rebalance: Rebalance,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._holdings = holdings
        self._outbox = outbox
        self._timers = timers
        self._sessions = sessions
        self._rebalance = rebalance
        self._rng = rng

    # --- joining

    def join(
        self, now: float, ticket: int, group: Group, request: JoinGroupRequest, client: ConnectedClient, version: int
    ) -> None:
        """JoinGroup; answered at once, or when the generation that it asks for begins. Raises `ProtocolError`."""
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        if not request.member_id:
            self._check_room(group, None)
            self._check_protocols(group, request.protocol_type, protocols)
            if request.group_instance_id is not None:
                self._join_static(now, ticket, group, request, client, version)
            elif version >= 4:
                self._invite(now, ticket, group, request, client)
            else:
                self._add(now, ticket, group, self._new_id(client.id), request, client)
            return
        self._check_room(group, request.member_id)
        self._check_protocols(group, request.protocol_type, protocols)
        if request.member_id in group.invited and request.group_instance_id is None:
            self._add(now, ticket, group, request.member_id, request, client)
            return
        member = find(group, request.member_id, request.group_instance_id)
        self._rejoin(now, ticket, group, member, request, protocols)

    def _rejoin(
        self,
        now: float,
        ticket: int,
        group: Group,
        member: GroupMember,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
    ) -> None:
        same = list(member.protocols.items()) == list(protocols.items())
        completing, stable = (group.state is it for it in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE))
        # Who asks again for the generation that it is in has missed the answer, unless it is the leader of a stable
        # one: a leader comes when what it has to assign has changed.
        if same and (completing or (stable and group.leader != member.id)):
            self._sessions.heard(now, group, member)
            self._outbox.reply(ticket, joined(group, member))
            return
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._admit_again(member, protocols)
        self._update(group, member, request, protocols)
        self._wait_for_generation(now, ticket, group, member)

    def _add(
        self, now: float, ticket: int, group: Group, member_id: str, request: JoinGroupRequest, client: ConnectedClient
    ) -> None:
        """A member that the group did not have; with it a rebalance begins."""
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        member = GroupMember(member_id, request.group_instance_id, client, 0, 0, protocols, is_new=True)
        names = 0 if group.members else group.newcomer_size + text_bytes(request.protocol_type)
        self._holdings.admit_newcomer(member.size + names)
        self._uninvite(group, member_id)
        if not group.members:
            group.is_of(request.protocol_type)
        group.add(member)
        self._update(group, member, request, protocols)
        group.newcomers = True
        self._sessions.open(now, group, member, self._settings.new_member_join_timeout_s)
        self._wait_for_generation(now, ticket, group, member)

    def _wait_for_generation(self, now: float, ticket: int, group: Group, member: GroupMember) -> None:
        if member.joining is not None:  # the same member asks again: only its last request is still waited for
            self._outbox.reply(member.joining, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.id))
        member.joining = ticket
        self._rebalance.begin(now, group)

    @staticmethod
    def _update(group: Group, member: GroupMember, request: JoinGroupRequest, protocols: dict[str, bytes]) -> None:
        # Version 0 knows one timeout for both.
        known = request.rebalance_timeout_ms >= 0
        rebalance_ms = request.rebalance_timeout_ms if known else request.session_timeout_ms
        group.update(member, protocols, request.session_timeout_ms, rebalance_ms)

    def _admit_again(self, member: GroupMember, protocols: dict[str, bytes]) -> None:
        """Whoever says no more than before needs no room. Raises `ProtocolError`."""
        size = member.size_with(protocols)
        if size > member.size:
            self._holdings.admit_newcomer(size, member.counted if member.kind is MemoryKind.MEMBERS else 0)

    def _check_protocols(self, group: Group, protocol_type: str, protocols: Collection[str]) -> None:
        if not group.supports(protocol_type, protocols):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _check_room(self, group: Group, member_id: str | None) -> None:
        """A member that is known keeps its place, unless it must rejoin and others have taken all places."""
        if member_id in group.members:
            others = sum(
                1 for member in group.members.values() if member.joining is not None and member.id != member_id
            )
            full = group.state is GroupState.PREPARING_REBALANCE and others >= self._settings.max_size
        elif member_id in group.invited:
            full = len(group.members) >= self._settings.max_size
        else:
            full = len(group.members) + len(group.invited) >= self._settings.max_size
        if full:
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    # --- invitations (KIP-394)

    def _invite(
        self, now: float, ticket: int, group: Group, request: JoinGroupRequest, client: ConnectedClient
    ) -> None:
        """Tell the client its id first: one that then fails to hear of it leaves no member behind."""
        member_id = self._new_id(client.id)
        self._holdings.admit_newcomer(invitation_size(member_id) + group.newcomer_size)
        group.invite(member_id)
        self._timers.set(Timer(INVITATION, group.id, member_id), now + request.session_timeout_ms / 1000)
        self._outbox.reply(ticket, refused_join(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _uninvite(self, group: Group, member_id: str) -> None:
        group.uninvite(member_id)
        self._timers.cancel(Timer(INVITATION, group.id, member_id))

    def invitation_expired(self, now: float, group: Group, member_id: str) -> None:
        """Nobody has come with this id."""
        self._uninvite(group, member_id)
        self._rebalance.invitation_removed(now, group)

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-{UUID(bytes=self._rng.randbytes(16), version=4)}"

    # --- static members (KIP-345)

    def _join_static(
        self, now: float, ticket: int, group: Group, request: JoinGroupRequest, client: ConnectedClient, version: int
    ) -> None:
        instance = request.group_instance_id
        assert instance is not None, "a static member has an instance id"
        new_id = self._new_id(instance)
        old_id = group.instances.get(instance)
        if old_id is None:
            self._add(now, ticket, group, new_id, request, client)
        else:
            self._replace(now, ticket, group, group.members[old_id], new_id, request, version)

    def _replace(
        self,
        now: float,
        ticket: int,
        group: Group,
        member: GroupMember,
        new_id: str,
        request: JoinGroupRequest,
        version: int,
    ) -> None:
        """A static member comes back. Whoever still uses its former id is fenced."""
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        self._admit_again(member, protocols)
        leader_before = group.leader
        undo = self._undo(group, member)
        self._rebalance.dismiss(member, ErrorCode.FENCED_INSTANCE_ID)
        self._sessions.close(group, member)
        group.rename(member, new_id)
        self._update(group, member, request, protocols)
        self._sessions.heard(now, group, member)
        if group.state is not GroupState.STABLE or group.elect_protocol() != group.protocol:
            self._wait_for_generation(now, ticket, group, member)
            return

        # The generation stays: nobody else need know. Its id is on the log before it is used.
        def answer(_now: float) -> None:
            try:  # while this was on its way another may have come under the instance id, or an administrator
                find(group, new_id, member.instance_id)
            except ProtocolError as error:
                self._outbox.reply(ticket, refused_join(error.code, new_id))
                return
            if group.state is GroupState.STABLE:
                group.is_member(member)
            response = joined(group, member)
            if version >= 9:
                response.skip_assignment = group.leader == member.id
            else:  # who may not be told to assign nothing is told that another leads
                response.leader, response.members = leader_before or "", []
            self._outbox.reply(ticket, response)

        def give_up(later: float, error: ErrorCode) -> None:
            if group.members.get(new_id) is member and group.state is GroupState.STABLE:
                self._sessions.close(group, member)
                undo()
                self._sessions.heard(later, group, member)
            self._outbox.reply(ticket, refused_join(told(error), ""))

        self._outbox.append([group.as_record()], committed=answer, refused=give_up)

    @staticmethod
    def _undo(group: Group, member: GroupMember) -> Callable[[], None]:
        """What brings a static member back to how it is now."""
        old_id, protocols, kind = member.id, member.protocols, member.kind
        timeouts = member.session_timeout_ms, member.rebalance_timeout_ms

        def undo() -> None:
            group.rename(member, old_id)
            group.update(member, protocols, *timeouts)
            if kind is MemoryKind.MEMBERS:
                group.is_member(member)

        return undo

    # --- staying

    def heartbeat(self, now: float, group: Group, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat. REBALANCE_IN_PROGRESS tells a member to join anew. Raises `ProtocolError`."""
        member = find(group, request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._sessions.heard(now, group, member)
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def session_expired(self, now: float, group: Group, member_id: str) -> None:
        """A member was not heard of. One that waits for an answer lives; a new one does not wait for ever."""
        member = group.members.get(member_id)
        if member is None:
            return
        waits = member.joining is not None or member.syncing is not None
        if waits and not member.is_new:
            self._sessions.heard(now, group, member)
            return
        self._remove(now, group, member)

    # --- leaving

    def leave(self, now: float, group: Group, leaving: MemberIdentity) -> ErrorCode:
        """One member of a LeaveGroup; an administrator names a static one by its instance id alone."""
        member_id, instance = leaving.member_id, leaving.group_instance_id
        if not member_id and instance is not None:
            member_id = group.instances.get(instance, "")
        if member_id in group.invited and instance is None:
            self.invitation_expired(now, group, member_id)
            return ErrorCode.NONE
        try:
            member = find(group, member_id, instance)
        except ProtocolError as error:
            return error.code
        self._remove(now, group, member)
        return ErrorCode.NONE

    def evict(self, now: float, group: Group, member_id: str) -> None:
        """There is no room for this newcomer. Who waits is told to come again later; who comes with what it was invited
        by is a stranger, and begins anew."""
        if member_id in group.invited:
            self.invitation_expired(now, group, member_id)
        elif (member := group.members.get(member_id)) is not None:
            self._rebalance.drop(group, member, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._rebalance.member_removed(now, group)

    def remove_unsynced(self, now: float, group: Group) -> None:
        """Who has not asked for its assignment in time is gone."""
        for member_id in sorted(group.unsynced):
            self._rebalance.drop(group, group.members[member_id])
        self._rebalance.member_removed(now, group)

    def _remove(self, now: float, group: Group, member: GroupMember) -> None:
        self._rebalance.drop(group, member)
        self._rebalance.member_removed(now, group)


def find(group: Group, member_id: str, instance_id: str | None) -> GroupMember:
    """The member that a request speaks for. Raises `ProtocolError`: unknown, or fenced by who joined in its name."""
    if instance_id is not None:
        current = group.instances.get(instance_id)
        if current is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        if current != member_id:
            raise ProtocolError(ErrorCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member
