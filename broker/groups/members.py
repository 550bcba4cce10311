"""The membership of groups: joining, heartbeats, leaving, and their effect on the generation.

The rules are those of Apache Kafka's coordinator for the classic protocol: KIP-62 (session and rebalance timeouts),
KIP-134 (initial delay), KIP-345 (static members), KIP-394 (a client gets a member id before it joins), KIP-814
(a returning static leader assigns nothing).
"""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from broker.errors import ErrorCode, ProtocolError
from broker.groups.group import ConnectedClient, Group, GroupMember, GroupState, invitation_size
from broker.groups.group_effects import Outbox, client_error
from broker.groups.group_settings import GroupSettings
from broker.groups.memory_quota import Holdings, MemoryKind, text_bytes
from broker.groups.rebalance import Rebalance, joined, refused_join
from broker.groups.timers import MemberSessions, Timer, Timers
from broker.protocol.messages.group_apis import HeartbeatRequest, JoinGroupRequest, MemberIdentity

INVITATION = "invitation"


@dataclass(eq=False)
class Membership:
    """Changes the members of groups."""

    _settings: GroupSettings
    _holdings: Holdings
    _outbox: Outbox
    _timers: Timers
    _sessions: MemberSessions
    _rebalance: Rebalance
    _rng: random.Random

    # --- joining

    def join(
        self, now: float, ticket: int, group: Group, request: JoinGroupRequest, client: ConnectedClient, version: int
    ) -> None:
        """JoinGroup; answered at once, or when the requested generation starts. Raises `ProtocolError`."""
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
        completing, stable = (group.state is state for state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE))
        # A member that joins again with the same data has missed the answer and gets it again. The leader of a stable
        # group is excepted: it joins again when the partitions to assign have changed.
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
        """Add a new member; this starts a rebalance."""
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
        if member.joining is not None:  # the same member joins again: only its last request keeps waiting
            self._outbox.reply(member.joining, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.id))
        member.joining = ticket
        self._rebalance.begin(now, group)

    @staticmethod
    def _update(group: Group, member: GroupMember, request: JoinGroupRequest, protocols: dict[str, bytes]) -> None:
        # Version 0 has one timeout for both.
        has_rebalance_timeout = request.rebalance_timeout_ms >= 0
        rebalance_ms = request.rebalance_timeout_ms if has_rebalance_timeout else request.session_timeout_ms
        group.update(member, protocols, request.session_timeout_ms, rebalance_ms)

    def _admit_again(self, member: GroupMember, protocols: dict[str, bytes]) -> None:
        """Check the memory quota only if the member's data grow. Raises `ProtocolError`."""
        size = member.size_with(protocols)
        if size > member.size:
            self._holdings.admit_newcomer(size, member.counted if member.kind is MemoryKind.MEMBERS else 0)

    def _check_protocols(self, group: Group, protocol_type: str, protocols: Collection[str]) -> None:
        if not group.supports(protocol_type, protocols):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _check_room(self, group: Group, member_id: str | None) -> None:
        """A known member keeps its place, unless it must rejoin and others have taken all places."""
        if member_id in group.members:
            joined_members = sum(
                1 for member in group.members.values() if member.joining is not None and member.id != member_id
            )
            full = group.state is GroupState.PREPARING_REBALANCE and joined_members >= self._settings.max_size
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
        """Send the client its member id first. A client that does not receive the answer leaves no member behind."""
        member_id = self._new_id(client.id)
        self._holdings.admit_newcomer(invitation_size(member_id) + group.newcomer_size)
        group.invite(member_id)
        self._timers.set(Timer(INVITATION, group.id, member_id), now + request.session_timeout_ms / 1000)
        self._outbox.reply(ticket, refused_join(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _uninvite(self, group: Group, member_id: str) -> None:
        group.uninvite(member_id)
        self._timers.cancel(Timer(INVITATION, group.id, member_id))

    def invitation_expired(self, now: float, group: Group, member_id: str) -> None:
        """The member id was not used in time."""
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
        """A static member returns with a new id. Requests with its former id are fenced."""
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

        # The generation stays, so other members are not involved. The new id is committed before it is used.
        def answer(_now: float) -> None:
            try:  # meanwhile another client may have joined with the instance id, or an administrator removed it
                find(group, new_id, member.instance_id)
            except ProtocolError as error:
                self._outbox.reply(ticket, refused_join(error.code, new_id))
                return
            if group.state is GroupState.STABLE:
                group.is_member(member)
            response = joined(group, member)
            if version >= 9:
                response.skip_assignment = group.leader == member.id
            else:  # versions without skip_assignment name another leader, so that the member assigns nothing
                response.leader, response.members = leader_before or "", []
            self._outbox.reply(ticket, response)

        def give_up(later: float, error: ErrorCode) -> None:
            if group.members.get(new_id) is member and group.state is GroupState.STABLE:
                self._sessions.close(group, member)
                undo()
                self._sessions.heard(later, group, member)
            self._outbox.reply(ticket, refused_join(client_error(error), ""))

        self._outbox.append([group.as_record()], committed=answer, refused=give_up)

    @staticmethod
    def _undo(group: Group, member: GroupMember) -> Callable[[], None]:
        """A function that restores the present state of a static member."""
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
        """Heartbeat. REBALANCE_IN_PROGRESS makes a member join again. Raises `ProtocolError`."""
        member = find(group, request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        self._sessions.heard(now, group, member)
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def session_expired(self, now: float, group: Group, member_id: str) -> None:
        """A member's session has expired. One that waits for an answer is alive; a new one has a limit for waiting."""
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
        """One member of a LeaveGroup; an administrator may name a static one only by its instance id."""
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
        """Remove this newcomer to free memory. Its pending request gets a retriable error; a later request with its
        member id or invitation gets UNKNOWN_MEMBER_ID, and the client starts over."""
        if member_id in group.invited:
            self.invitation_expired(now, group, member_id)
        elif (member := group.members.get(member_id)) is not None:
            self._rebalance.drop(group, member, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._rebalance.member_removed(now, group)

    def remove_unsynced(self, now: float, group: Group) -> None:
        """Remove the members that have not requested their assignment in time."""
        for member_id in sorted(group.unsynced):
            self._rebalance.drop(group, group.members[member_id])
        self._rebalance.member_removed(now, group)

    def _remove(self, now: float, group: Group, member: GroupMember) -> None:
        self._rebalance.drop(group, member)
        self._rebalance.member_removed(now, group)


def find(group: Group, member_id: str, instance_id: str | None) -> GroupMember:
    """The sender of a request. Raises `ProtocolError`: unknown, or fenced by a member that joined with its instance
    id."""
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
