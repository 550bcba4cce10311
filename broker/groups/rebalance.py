"""From one generation of a group to the next: all members join, the leader assigns, all get their assignment.

    EMPTY -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE
                    ^                      |                 |
                    +----------------------+-----------------+      a member joins, leaves or changes

An assignment is sent only once it is committed, so that a coordinator that takes over knows this generation.
"""

from collections.abc import Callable
from dataclasses import dataclass

from broker.errors import ErrorCode, ProtocolError
from broker.groups.group import Group, GroupMember, GroupState
from broker.groups.group_effects import Outbox, client_error
from broker.groups.group_settings import GroupSettings
from broker.groups.groups import Groups
from broker.groups.memory_quota import Holdings, MemoryKind
from broker.groups.timers import MemberSessions, Timer, Timers
from broker.protocol.messages.group_apis import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

JOINING, SYNCING = "joining", "syncing"
AWAY_S = 1.0  # least time between two checks for joined members, when all remaining members are away


@dataclass(eq=False)
class Rebalance:
    """Moves groups through their states. `wall_ms` is the wall clock in milliseconds, for the log only."""

    _settings: GroupSettings
    _holdings: Holdings
    _groups: Groups
    _outbox: Outbox
    _timers: Timers
    _sessions: MemberSessions
    _wall_ms: Callable[[], int]

    # --- joining

    def begin(self, now: float, group: Group) -> None:
        """Start a rebalance: make all members join, and continue when they have."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self._prepare(now, group)
        self.complete_if_all_joined(now, group)

    def _prepare(self, now: float, group: Group) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._dismiss_syncing(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.clear()
        self._timers.cancel(Timer(SYNCING, group.id))
        timeout_s = group.rebalance_timeout_s
        group.in_initial_delay = group.state is GroupState.EMPTY and self._settings.initial_rebalance_delay_s > 0
        if group.in_initial_delay:
            # More members are likely to join soon: wait once for all of them (KIP-134).
            delay_s = self._settings.initial_rebalance_delay_s
            group.initial_delay_left_s = max(timeout_s - delay_s, 0.0)
            group.newcomers = False
            timeout_s = delay_s
        group.move_to(GroupState.PREPARING_REBALANCE, self._wall_ms())
        self._timers.set(Timer(JOINING, group.id), now + timeout_s)

    def complete_if_all_joined(self, now: float, group: Group) -> None:
        """Start the generation when all members have joined, but not before the initial delay is over."""
        if group.state is GroupState.PREPARING_REBALANCE and not group.in_initial_delay and group.all_joined:
            self._complete(now, group)

    def joining_expired(self, now: float, group: Group) -> None:
        """The time for joining, or the initial delay, is over. The delay starts again while members still join."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.in_initial_delay and group.newcomers and group.initial_delay_left_s > 0:
            group.newcomers = False
            delay_s = min(self._settings.initial_rebalance_delay_s, group.initial_delay_left_s)
            group.initial_delay_left_s -= delay_s
            self._timers.set(Timer(JOINING, group.id), now + delay_s)
            return
        self._complete(now, group)

    def _complete(self, now: float, group: Group) -> None:
        # A static member that is away keeps its place until its session expires: it may return.
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                self.drop(group, member)
        group.in_initial_delay = False
        if group.members and not group.elect_joined_leader():
            self._timers.set(Timer(JOINING, group.id), now + max(group.rebalance_timeout_s, AWAY_S))
            return
        self._timers.cancel(Timer(JOINING, group.id))
        group.begin_generation(self._wall_ms())
        if not group.members:
            if not self._remove_if_idle(group) and group.kind is not MemoryKind.NEWCOMERS:
                group.becomes(MemoryKind.MEMBERS)
                self._outbox.append([group.as_record()])
            return
        self._timers.set(Timer(SYNCING, group.id), now + group.rebalance_timeout_s)
        for member in group.members.values():
            if member.joining is not None:
                ticket, member.joining = member.joining, None
                self._outbox.reply(ticket, joined(group, member))
            member.is_new = False
            self._sessions.heard(now, group, member)

    # --- assigning

    def sync(self, now: float, ticket: int, group: Group, member: GroupMember, request: SyncGroupRequest) -> None:
        """SyncGroup of a member: answered when the leader's assignment is committed. Raises `ProtocolError`."""
        if request.generation_id != group.generation:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        requested, current = (request.protocol_type, request.protocol_name), (group.protocol_type, group.protocol)
        if any(name not in (None, own_name) for name, own_name in zip(requested, current, strict=True)):
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
            case GroupState.STABLE:
                self._synced(group, member)
                self._sessions.heard(now, group, member)
                self._outbox.reply(ticket, assigned(group, member))
            case GroupState.COMPLETING_REBALANCE:
                if member.syncing is not None:
                    self._outbox.reply(member.syncing, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
                member.syncing = ticket
                self._synced(group, member)
                if member.id == group.leader:
                    self._store_assignment(
                        now, group, {assignment.member_id: assignment.assignment for assignment in request.assignments}
                    )
            case _:
                raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)

    def _synced(self, group: Group, member: GroupMember) -> None:
        group.unsynced.discard(member.id)
        if not group.unsynced:
            self._timers.cancel(Timer(SYNCING, group.id))

    def _store_assignment(self, now: float, group: Group, assignments: dict[str, bytes]) -> None:
        if group.storing == group.generation:
            return  # a leader that sends another assignment gets its first one: the log has one per generation
        generation = group.storing = group.generation

        def still_awaited() -> bool:
            return group.state is GroupState.COMPLETING_REBALANCE and group.generation == generation

        def committed(now: float) -> None:
            if not still_awaited():
                return
            group.are_members()
            group.move_to(GroupState.STABLE, self._wall_ms())
            for member in group.members.values():
                if member.syncing is not None:
                    ticket, member.syncing = member.syncing, None
                    self._sessions.heard(now, group, member)
                    self._outbox.reply(ticket, assigned(group, member))

        def give_up(now: float, error: ErrorCode) -> None:
            if still_awaited():
                self._dismiss_syncing(group, client_error(error))
                self.begin(now, group)

        old_kind = group.kind

        def refused(now: float, error: ErrorCode) -> None:
            group.assign({})
            group.becomes(old_kind)
            give_up(now, error)

        try:
            self._holdings.admit_assignment(*group.with_assignments(assignments))
        except ProtocolError as error:
            give_up(now, error.code)
            return
        group.assign(assignments)
        group.becomes(MemoryKind.MEMBERS)
        self._outbox.append([group.as_record()], committed=committed, refused=refused, late=give_up)

    # --- leaving

    def member_removed(self, now: float, group: Group) -> None:
        """A member is gone: the others take over its partitions."""
        if self._remove_if_idle(group):
            return
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.begin(now, group)
        else:
            self.complete_if_all_joined(now, group)

    def invitation_removed(self, now: float, group: Group) -> None:
        """An invitation ended without a join."""
        if not self._remove_if_idle(group):
            self.complete_if_all_joined(now, group)

    def _remove_if_idle(self, group: Group) -> bool:
        """Remove an idle group: the next member that joins starts it without any remaining state."""
        if not self._groups.remove_if_idle(group):
            return False
        for kind in (JOINING, SYNCING):
            self._timers.cancel(Timer(kind, group.id))
        group.state = GroupState.DEAD
        return True

    def drop(self, group: Group, member: GroupMember, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member. The caller handles the consequences for the group."""
        group.remove(member.id)
        self._sessions.close(group, member)
        self.dismiss(member, error)

    def dismiss(self, member: GroupMember, error: ErrorCode) -> None:
        """Answer the pending requests of a member with an error."""
        if member.joining is not None:
            ticket, member.joining = member.joining, None
            self._outbox.reply(ticket, refused_join(error, member.id))
        if member.syncing is not None:
            ticket, member.syncing = member.syncing, None
            self._outbox.reply(ticket, refused_sync(error))

    def _dismiss_syncing(self, group: Group, error: ErrorCode) -> None:
        for member in group.members.values():
            if member.syncing is not None:
                ticket, member.syncing = member.syncing, None
                self._outbox.reply(ticket, refused_sync(error))


def joined(group: Group, member: GroupMember) -> JoinGroupResponse:
    """The answer to a member of the current generation; the leader gets the list of all members."""
    response = JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.id,
    )
    if group.leader == member.id:
        response.members = [
            JoinGroupResponseMember(other.id, other.instance_id, other.metadata(group.protocol))
            for other in group.members.values()
        ]
    return response


def refused_join(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """The answer to a client that is in no generation."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def assigned(group: Group, member: GroupMember) -> SyncGroupResponse:
    """The answer with a member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def refused_sync(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)
