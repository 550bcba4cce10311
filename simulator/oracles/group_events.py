"""The oracle of supposed events at a coordinator of groups: what clients may send to a group of a committed generation.

Theory of operation: a coordinator is a state machine without I/O, and the log has all of its state. The oracle makes
one that has read a single generation, as the next coordinator would, and its members live on there: they send
heartbeats, a newcomer joins, members leave, are silent, or return. The oracle decides what the log commits and refuses.

The references are the generation in the log, and the protocol's rules: KIP-62 (sessions and rebalances), KIP-134
(initial delay), KIP-345 (static members), KIP-394 (a member id comes before the member), CG-1 to CG-4.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, cast

from msgspec import structs

from broker.errors import ErrorCode
from broker.groups.group import ConnectedClient
from broker.groups.group_effects import AppendEffect, Effect, GroupReply
from broker.groups.group_settings import GroupSettings
from broker.groups.shard import Shard
from broker.protocol.messages.group_apis import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from broker.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    read_record,
    record,
)
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetFetchRequestGroup,
)
from broker.protocol.schema import Message, Topic
from simulator.oracles.findings import Expectation, first_difference

TOPIC: Final = "supposed"
"""A topic with one partition, the only one that the coordinator knows."""
NEWEST, UNINVITED = 9, 3
"""Versions of JoinGroup: the newest, and the last one in which a client becomes a member at once."""
LONGEST_METADATA: Final = 16
"""Of an offset, in bytes."""
RETENTION_S: Final = 3600
CHECK_S: Final = 600
"""How often the retention of a group without members is checked."""
NEVER_S: Final = 1e9
"""Longer than any session or rebalance."""
MARGIN_S: Final = 0.01
"""Before and after a deadline."""
MOST_SESSIONS: Final = 100
"""A rebalance that may take more sessions of a member is not asked about: it would be mostly heartbeats."""
MOST_TICKS: Final = 10_000
"""How often a coordinator may have something to do until the next heartbeat: a defect may set a deadline that never
passes."""
OK: Final = ErrorCode.NONE
REBALANCE: Final = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN_ID: Final = ErrorCode.UNKNOWN_MEMBER_ID
OTHER_GENERATION: Final = ErrorCode.ILLEGAL_GENERATION


@dataclass
class SupposedCoordinator:
    """A coordinator that has read one record of a group, at a time of its clock in seconds. `answers` by the ticket of
    their request; `pending`: the appends whose outcome is not decided."""

    group: str
    generation: GroupMetadataValue
    settings: GroupSettings
    now: float = 0.0
    answers: dict[int, Message] = field(default_factory=dict)
    pending: list[AppendEffect] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Read the record again, with the present settings."""
        wall_ms = max(self.generation.current_state_timestamp, 0)
        self.shard = Shard(
            self.settings, Random(0), lambda: wall_ms + int(self.now * 1000), lambda *place: place == (TOPIC, 0)
        )
        its = record(GroupMetadataKey(self.group), self.generation)
        self.shard.replay(its.key, its.value)
        self.shard.begin(self.now)

    def _take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, GroupReply):
                self.answers[effect.ticket] = effect.response
            else:
                self.pending.append(effect)

    def send(self, method: Callable[..., list[Effect]], *arguments: object) -> int:
        """A request to a method of the coordinator; its ticket."""
        self.sent += 1
        self._take(method(self.now, self.sent, *arguments))
        return self.sent

    def commit_log(self) -> None:
        """All appends are committed."""
        while self.pending:
            self._take(self.shard.committed(self.now, self.pending.pop(0).token))

    def refuse_log(self) -> None:
        """All appends are refused: the in-sync replicas are too few."""
        while self.pending:
            self._take(self.shard.refused(self.now, self.pending.pop(0).token, ErrorCode.NOT_COORDINATOR))

    def wait(self, seconds: float, alive: Sequence[MemberMetadata] = (), *, later: int = 0) -> None:
        """Let time pass. `alive`: the members that send heartbeats meanwhile, three in each session."""
        end = self.now + seconds
        step_s = min((member.session_timeout / 3000 for member in alive), default=seconds)
        while self.now < end:
            beat = min(end, self.now + step_s)
            for _ in range(MOST_TICKS):
                if (due := self.shard.deadline()) is None or due > beat:
                    break
                self.now = max(self.now, due)
                self._take(self.shard.tick(self.now))
            self.now = beat
            for member in alive if beat < end else ():
                self.beat(member, later=later)

    # --- requests

    def beat(self, member: MemberMetadata, generation: int | None = None, *, later: int = 0) -> ErrorCode | None:
        """The answer to a heartbeat in this generation (default: `later` after the one of the record)."""
        number = self.generation.generation + later if generation is None else generation
        request = HeartbeatRequest(self.group, number, member.member_id, member.group_instance_id)
        return self.code(self.send(self.shard.heartbeat, request))

    def join(self, member: MemberMetadata, version: int = NEWEST, **changed: Any) -> int:
        """A JoinGroup with the data that the member has; its ticket."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": member.session_timeout,
            "rebalance_timeout_ms": member.rebalance_timeout,
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "protocol_type": self.generation.protocol_type,
            "protocols": [JoinGroupRequestProtocol(self.generation.protocol or "", member.subscription)],
        }
        client = ConnectedClient(member.client_id, member.client_host)
        return self.send(self.shard.join, JoinGroupRequest(**fields | changed), client, version)

    def sync(
        self, member: MemberMetadata, shares: Mapping[str, bytes] | None = None, *, later: int = 0, kind: str = ""
    ) -> int:
        """A SyncGroup; its ticket. `shares`: by member id, what it assigns; `kind`: another type of group."""
        assignments = [SyncGroupRequestAssignment(name, share) for name, share in (shares or {}).items()]
        request = SyncGroupRequest(
            self.group,
            self.generation.generation + later,
            member.member_id,
            member.group_instance_id,
            kind or None,
            assignments=assignments,
        )
        return self.send(self.shard.sync, request)

    def leave(self, member: MemberMetadata) -> None:
        request = LeaveGroupRequest(self.group, members=[MemberIdentity(member.member_id, member.group_instance_id)])
        self.send(self.shard.leave, request, NEWEST)

    def commit(self, member: MemberMetadata, generation: int, *, partition: int = 0, metadata: str = "") -> int:
        """An OffsetCommit of offset 1; its ticket."""
        place = Topic(TOPIC, [OffsetCommitRequestPartition(partition, 1, -1, metadata)])
        request = OffsetCommitRequest(
            self.group, generation, member.member_id, member.group_instance_id, topics=[place]
        )
        return self.send(self.shard.commit, request)

    # --- what is seen

    def code(self, ticket: int) -> ErrorCode | None:
        """The error code of an answer; None while the request waits."""
        answer: Any = self.answers.get(ticket)
        if isinstance(answer, OffsetCommitResponse):
            answer = answer.topics[0].partitions[0]
        return None if answer is None else ErrorCode(answer.error_code)

    def codes(self, tickets: Sequence[int]) -> set[ErrorCode | None]:
        return {self.code(ticket) for ticket in tickets}

    @property
    def offset(self) -> int:
        """The offset that an OffsetFetch shows; -1 without one."""
        topics = self.shard.fetch(OffsetFetchRequestGroup(self.group, topics=None)).topics
        return topics[0].partitions[0].committed_offset if topics else -1

    @property
    def state(self) -> str:
        return self.shard.describe(self.group, 0).group_state


def generation_flaws(group: str, generation: GroupMetadataValue) -> Iterator[str]:
    """What is wrong with how a coordinator would go on from a committed generation, each as the end of a sentence."""
    members = generation.members
    sessions_ms = [member.session_timeout for member in members] or [10_000]
    if members and _longest_s(members) * 1000 > MOST_SESSIONS * min(sessions_ms):
        return
    settings = GroupSettings(
        min_session_timeout_ms=min(sessions_ms),
        max_session_timeout_ms=max(sessions_ms),
        max_size=len(members) + 1 if members else 3,
        offset_metadata_max_bytes=LONGEST_METADATA,
        offsets_retention_ms=RETENTION_S * 1000,
        retention_check_interval_s=NEVER_S if members else CHECK_S,
        new_member_join_timeout_s=NEVER_S,
    )

    def coordinator() -> SupposedCoordinator:
        return SupposedCoordinator(group, generation, settings)

    lives = _LIVES_OF_MEMBERS if members else _LIVES_WITHOUT_MEMBERS
    for life in lives:
        yield from first_difference(life(coordinator()))


# --- a group with members


def _continues(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """A member has its assignment, and is known in its generation alone (CG-1, CG-2)."""
    members, number = coordinator.generation.members, coordinator.generation.generation
    stranger = structs.replace(members[0], member_id="stranger", group_instance_id=None)
    for member in members:
        its = f"of member {member.member_id}"
        yield f"a heartbeat {its}", coordinator.beat(member), OK
        answer = coordinator.answers[coordinator.sync(member)]
        yield f"a SyncGroup {its}", cast(SyncGroupResponse, answer).assignment, member.assignment
        code = coordinator.code(coordinator.sync(member, kind="other"))
        yield f"a SyncGroup {its} of another type", code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        for other in (number - 1, number + 1):
            yield f"a heartbeat {its} in generation {other}", coordinator.beat(member, other), OTHER_GENERATION
            code = coordinator.code(coordinator.sync(member, later=other - number))
            yield f"a SyncGroup {its} in generation {other}", code, OTHER_GENERATION
            code = coordinator.code(coordinator.commit(member, other))
            yield f"a commit {its} in generation {other}", code, OTHER_GENERATION
    yield "a heartbeat of a stranger", coordinator.beat(stranger), UNKNOWN_ID
    yield "a commit of a stranger", coordinator.code(coordinator.commit(stranger, number)), UNKNOWN_ID
    outsider = structs.replace(stranger, member_id="")
    yield "a commit of no member", coordinator.code(coordinator.commit(outsider, -1)), UNKNOWN_ID
    yield "the deletion of a group with members", _deleted(coordinator), ErrorCode.NON_EMPTY_GROUP
    yield "a description", coordinator.state, "Stable"


def _offsets(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """An offset is acknowledged and shown once it is committed, for partitions that exist (CG-3, CG-4)."""
    member, number = coordinator.generation.members[0], coordinator.generation.generation
    unknown_partition = coordinator.commit(member, number, partition=1)
    yield "a commit of an unknown partition", coordinator.code(unknown_partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    long_metadata = coordinator.commit(member, number, metadata="m" * (LONGEST_METADATA + 1))
    yield "a commit with long metadata", coordinator.code(long_metadata), ErrorCode.OFFSET_METADATA_TOO_LARGE
    refused_commit = coordinator.commit(member, number)
    coordinator.refuse_log()
    yield "a commit that the log refuses", coordinator.code(refused_commit), ErrorCode.NOT_COORDINATOR
    yield "an OffsetFetch after a refused commit", coordinator.offset, -1
    ticket = coordinator.commit(member, number, metadata="m" * LONGEST_METADATA)
    yield "a commit that is in no other log", coordinator.code(ticket), None
    yield "an OffsetFetch before the commit", coordinator.offset, -1
    coordinator.commit_log()
    yield "a commit", coordinator.code(ticket), OK
    yield "an OffsetFetch", coordinator.offset, 1


def _joins(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """A newcomer gets a member id first (KIP-394). The generation begins when all have joined (CG-1). The leader's
    assignment is sent once it is committed (CG-2)."""
    members = coordinator.generation.members
    first_member = members[0]
    newcomer = structs.replace(first_member, member_id="", group_instance_id=None)
    settings = coordinator.settings
    for session_ms in (settings.min_session_timeout_ms - 1, settings.max_session_timeout_ms + 1):
        code = coordinator.code(coordinator.join(newcomer, session_timeout_ms=session_ms))
        yield f"a JoinGroup with a session of {session_ms} ms", code, ErrorCode.INVALID_SESSION_TIMEOUT
    for changed_fields in ({"protocol_type": "other"}, {"protocols": [JoinGroupRequestProtocol("other")]}):
        code = coordinator.code(coordinator.join(newcomer, **changed_fields))
        yield f"a JoinGroup with other {', '.join(changed_fields)}", code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    yield "a JoinGroup of a stranger", coordinator.code(coordinator.join(newcomer, member_id="stranger")), UNKNOWN_ID
    invitation = coordinator.join(newcomer)
    yield "the first JoinGroup of a newcomer", coordinator.code(invitation), ErrorCode.MEMBER_ID_REQUIRED
    yield (
        "a JoinGroup when the group is full",
        coordinator.code(coordinator.join(newcomer)),
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    )
    newcomer = structs.replace(newcomer, member_id=_joined(coordinator, invitation).member_id)
    first_ticket, last_ticket = coordinator.join(newcomer), coordinator.join(newcomer)
    yield "the first of two JoinGroups of a member", coordinator.code(first_ticket), REBALANCE
    for member in members:
        yield "a heartbeat when a member joins", coordinator.beat(member), REBALANCE
        sync = coordinator.code(coordinator.sync(member))
        yield "a SyncGroup when a member joins", sync, REBALANCE
    tickets = [last_ticket]
    for member in members:
        yield "a JoinGroup before all have joined", coordinator.codes(tickets), {None}
        tickets.append(coordinator.join(member))
    yield "the JoinGroups of all members", coordinator.codes(tickets), {OK}
    all_members = [newcomer, *members]
    yield from _generation_begins(coordinator, all_members, tickets, coordinator.generation.leader)
    yield from _assigns(coordinator, all_members, _joined(coordinator, last_ticket).leader)
    coordinator.wait(_longest_s(all_members) + MARGIN_S, alive=all_members, later=1)
    beats = {coordinator.beat(member, later=1) for member in all_members}
    yield "a heartbeat when all have their assignment", beats, {OK}


def _generation_begins(
    coordinator: SupposedCoordinator, members: Sequence[MemberMetadata], tickets: Sequence[int], leader: str | None
) -> Iterator[Expectation]:
    """All members are in the next generation, with one leader, who alone gets the list of them."""
    names = sorted(member.member_id for member in members)
    for member, ticket in zip(members, tickets, strict=True):
        answer = _joined(coordinator, ticket)
        number = coordinator.generation.generation + 1
        yield "a JoinGroup", (answer.generation_id, answer.member_id), (number, member.member_id)
        yield "a JoinGroup", f"leader {answer.leader}", f"leader {leader}"
        listed_names = sorted(other.member_id for other in answer.members)
        yield f"the JoinGroup of {member.member_id}", listed_names, names if member.member_id == leader else []


def _assigns(
    coordinator: SupposedCoordinator, members: Sequence[MemberMetadata], leader_id: str
) -> Iterator[Expectation]:
    """The leader alone assigns, and each member gets its share once all of them are committed (CG-2)."""
    number = coordinator.generation.generation + 1
    shares = {member.member_id: f"share of {member.member_id}".encode() for member in members}
    (leader,) = (member for member in members if member.member_id == leader_id)
    followers = [member for member in members if member is not leader]
    tickets = {member.member_id: coordinator.sync(member, dict.fromkeys(shares, b"x"), later=1) for member in followers}
    yield "the SyncGroup of a follower that assigns", len(coordinator.pending), 0
    tickets[leader_id] = coordinator.sync(leader, shares, later=1)
    for member in members:
        yield "a SyncGroup before its commit", coordinator.code(tickets[member.member_id]), None
        yield "a heartbeat before the assignment", coordinator.beat(member, later=1), OK
        commit = coordinator.commit(member, number)
        yield "a commit before the assignment", coordinator.code(commit), REBALANCE
    appended_records = [read_record(one.key, one.value) for effect in coordinator.pending for one in effect.records]
    values = [pair[1] for pair in appended_records if pair is not None]
    stored_generations = [
        (value.generation, {member.member_id: member.assignment for member in value.members})
        for value in values
        if isinstance(value, GroupMetadataValue)
    ]
    yield "the leader's SyncGroup", stored_generations, [(number, shares)]
    coordinator.commit_log()
    for name, ticket in tickets.items():
        answer = cast(SyncGroupResponse, coordinator.answers.get(ticket, SyncGroupResponse()))
        yield f"the SyncGroup of {name}", answer.assignment, shares[name]
    yield "a commit in the last generation", coordinator.code(coordinator.commit(leader, number - 1)), OTHER_GENERATION
    yield "a description", coordinator.state, "Stable"


def _refused(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """An assignment that the log refuses is in no member's hands: all join again."""
    members = coordinator.generation.members
    tickets = yield from _rejoins(coordinator, members)
    leader_id = _joined(coordinator, tickets[0]).leader
    syncs = [
        coordinator.sync(member, {member.member_id: b"x"} if member.member_id == leader_id else None, later=1)
        for member in members
    ]
    coordinator.refuse_log()
    yield "the SyncGroups of a refused assignment", coordinator.codes(syncs), {ErrorCode.NOT_COORDINATOR}
    beats = {coordinator.beat(member, later=1) for member in members}
    yield "a heartbeat after a refused assignment", beats, {REBALANCE}


def _rejoins(
    coordinator: SupposedCoordinator, members: Sequence[MemberMetadata]
) -> Generator[Expectation, None, list[int]]:
    """The leader starts a rebalance by joining again; a follower with the same data does not. Returns the tickets."""
    leader_id = coordinator.generation.leader
    for member in members:
        if member.member_id != leader_id:
            answer = coordinator.answers.get(coordinator.join(member))
            number = cast(JoinGroupResponse, answer).generation_id if answer is not None else None
            yield "the JoinGroup of a follower again", number, coordinator.generation.generation
    yield "a heartbeat after that", coordinator.beat(members[0]), OK
    leader_first = sorted(members, key=lambda member: member.member_id != leader_id)
    tickets = {member.member_id: coordinator.join(member) for member in leader_first}
    yield "the JoinGroups of all members", coordinator.codes(list(tickets.values())), {OK}
    return [tickets[member.member_id] for member in members]


def _interrupted(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """A newcomer interrupts a generation that has no assignment yet: a member that waits for it joins again, and the
    time for asking is over."""
    members = coordinator.generation.members
    if len(members) < 2:
        return
    yield from _rejoins(coordinator, members)
    leader, *followers = sorted(members, key=lambda member: member.member_id != coordinator.generation.leader)
    syncs = [coordinator.sync(member, later=1) for member in followers]
    half_s = _longest_s(members) / 2
    coordinator.wait(half_s, alive=members, later=1)
    tickets = [coordinator.join(structs.replace(leader, member_id="", group_instance_id=None), UNINVITED)]
    yield "the SyncGroups when a member joins", coordinator.codes(syncs), {REBALANCE}
    tickets.append(coordinator.join(leader))
    coordinator.wait(half_s + MARGIN_S, alive=followers, later=1)
    yield "the JoinGroups before all have joined", coordinator.codes(tickets), {None}
    tickets += map(coordinator.join, followers)
    yield "the JoinGroups of all members", coordinator.codes(tickets), {OK}


def _longest_s(members: Sequence[MemberMetadata]) -> float:
    """How long a rebalance waits for a member, in seconds."""
    return max(member.rebalance_timeout for member in members) / 1000


def _absent(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """A rebalance waits for an absent member as long as the longest rebalance timeout, and goes on without it. A static
    one keeps its place as long as its session (KIP-345)."""
    *present_members, absent_member = coordinator.generation.members
    newcomer = structs.replace(absent_member, member_id="", group_instance_id=None)
    tickets = [coordinator.join(newcomer, UNINVITED), *map(coordinator.join, present_members)]
    coordinator.wait(_longest_s(coordinator.generation.members) - MARGIN_S, alive=[absent_member])
    yield "the JoinGroups while one is absent", coordinator.codes(tickets), {None}
    is_member = coordinator.beat(absent_member)
    yield "a heartbeat of the absent member", is_member, REBALANCE
    coordinator.wait(2 * MARGIN_S)
    yield "the JoinGroups without the absent one", coordinator.codes(tickets), {OK}
    expected = OK if absent_member.group_instance_id is not None else UNKNOWN_ID
    yield "a heartbeat of the one that was absent", coordinator.beat(absent_member, later=1), expected
    newcomer = structs.replace(newcomer, member_id=_joined(coordinator, tickets[0]).member_id)
    coordinator.wait(newcomer.session_timeout / 1000 + MARGIN_S)
    yield "a heartbeat of a silent newcomer", coordinator.beat(newcomer, later=1), UNKNOWN_ID


def _unsynced(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """A member that does not ask for its assignment in time is removed, and the others take over."""
    members = coordinator.generation.members
    if len(members) < 2:
        return
    yield from _rejoins(coordinator, members)
    *prompt_members, late_member = members
    for member in prompt_members:
        coordinator.sync(member, later=1)
    coordinator.commit_log()
    coordinator.wait(_longest_s(members) - MARGIN_S, alive=members, later=1)
    yield "a heartbeat before that time is over", coordinator.beat(late_member, later=1), OK
    coordinator.wait(2 * MARGIN_S)
    yield "a heartbeat of one that asks for no assignment", coordinator.beat(late_member, later=1), UNKNOWN_ID
    expected = REBALANCE
    yield "a heartbeat of the others", {coordinator.beat(member, later=1) for member in prompt_members}, {expected}


def _silent(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """A member is removed at the end of its session, and not before, and the others take over (KIP-62, CG-4)."""
    members = coordinator.generation.members
    first_member, *silent_members = members
    if not silent_members:
        coordinator.wait(first_member.session_timeout / 1000 - MARGIN_S)
        yield "a description at the end of a session", coordinator.state, "Stable"
        coordinator.wait(2 * MARGIN_S)
        yield "a heartbeat after the session", coordinator.beat(first_member), UNKNOWN_ID
        yield "a description of a group without members", coordinator.state, "Empty"
        coordinator.commit_log()
        yield "the deletion of an empty group", _deleted(coordinator), OK
        return
    shortest_s = min(member.session_timeout for member in silent_members) / 1000
    coordinator.wait(shortest_s - MARGIN_S, alive=[first_member])
    yield "a heartbeat before the others' sessions end", coordinator.beat(first_member), OK
    coordinator.wait(2 * MARGIN_S)
    yield "a heartbeat when a member is silent", coordinator.beat(first_member), REBALANCE
    ticket = coordinator.join(first_member)
    longest_s = max(max(member.session_timeout, member.rebalance_timeout) for member in members) / 1000
    coordinator.wait(longest_s + MARGIN_S)
    answer = _joined(coordinator, ticket)
    next_number = coordinator.generation.generation + 1
    yield (
        "a JoinGroup beside silent members",
        (answer.generation_id, answer.leader),
        (next_number, first_member.member_id),
    )


def _leaves(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """A member that leaves is gone at once. The last one leaves an empty group, in the next generation."""
    *other_members, leaver = coordinator.generation.members
    outsider = structs.replace(leaver, member_id="", group_instance_id=None)
    newcomer = structs.replace(outsider, member_id=_joined(coordinator, coordinator.join(outsider)).member_id)
    ticket = coordinator.join(newcomer)
    coordinator.leave(newcomer)
    yield "the JoinGroup of one that has left", coordinator.code(ticket), UNKNOWN_ID
    coordinator.leave(leaver)
    yield "a heartbeat of one that has left", coordinator.beat(leaver), UNKNOWN_ID
    for member in other_members:
        yield "a heartbeat after one has left", coordinator.beat(member), REBALANCE
        coordinator.leave(member)
    yield "a description of a group without members", coordinator.state, "Empty"
    ticket = coordinator.commit(outsider, -1)
    coordinator.commit_log()
    yield "a commit of no member in a group without members", coordinator.code(ticket), OK
    ticket = coordinator.join(outsider, UNINVITED)
    coordinator.wait(coordinator.settings.initial_rebalance_delay_s + MARGIN_S)
    number = coordinator.generation.generation + 2
    yield "the generation of the next member", _joined(coordinator, ticket).generation_id, number


def _invites(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """A rebalance waits for a client that has its member id, at most as long as the session that it asked for."""
    members = coordinator.generation.members
    session_ms = min(members[0].session_timeout, int(_longest_s(members) * 500))  # less than the rebalance may take
    newcomer = structs.replace(members[0], member_id="", group_instance_id=None, session_timeout=session_ms)
    least_ms = min(session_ms, coordinator.settings.min_session_timeout_ms)
    coordinator.settings = replace(coordinator.settings, min_session_timeout_ms=least_ms)
    coordinator.restart()
    invitation = coordinator.join(newcomer)
    leader_first = sorted(members, key=lambda member: member.member_id != coordinator.generation.leader)
    tickets = [coordinator.join(member) for member in leader_first]
    coordinator.wait(session_ms / 1000 - MARGIN_S)
    yield "the JoinGroups beside an unused member id", coordinator.codes(tickets), {None}
    coordinator.wait(2 * MARGIN_S)
    yield "the JoinGroups after an unused member id", coordinator.codes(tickets), {OK}
    late_ticket = coordinator.join(newcomer, member_id=_joined(coordinator, invitation).member_id)
    yield "a JoinGroup with a member id that has expired", coordinator.code(late_ticket), UNKNOWN_ID


def _returns(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """A static member that returns has its assignment under a new id, and fences its former one, once both are
    committed (KIP-345). Between generations it joins like any other, and its former request is fenced."""
    members = coordinator.generation.members
    static_members = [member for member in members if member.group_instance_id is not None]
    coordinator.settings = replace(coordinator.settings, max_size=len(members) + 2)
    coordinator.restart()
    for member in static_members[:1]:
        refused_ticket = coordinator.join(structs.replace(member, member_id=""))
        coordinator.refuse_log()
        yield "a JoinGroup that returns, and is refused", coordinator.code(refused_ticket), ErrorCode.NOT_COORDINATOR
        yield "a heartbeat of the former id, which stays", coordinator.beat(member), OK
        ticket = coordinator.join(structs.replace(member, member_id=""))
        yield "a JoinGroup that returns, before its commit", coordinator.code(ticket), None
        coordinator.commit_log()
        answer = _joined(coordinator, ticket)
        number = coordinator.generation.generation
        yield "a JoinGroup that returns", (answer.error_code, answer.generation_id), (OK, number)
        yield "a heartbeat of the former id", coordinator.beat(member), ErrorCode.FENCED_INSTANCE_ID
        renewed_member = structs.replace(member, member_id=answer.member_id)
        yield "a heartbeat of the new id", coordinator.beat(renewed_member), OK
        sync = coordinator.answers[coordinator.sync(renewed_member)]
        yield "a SyncGroup of the new id", cast(SyncGroupResponse, sync).assignment, member.assignment
        other_member = structs.replace(member, member_id="", group_instance_id="another")
        yield "the first JoinGroup of another static member", coordinator.code(coordinator.join(other_member)), None
        join_ticket = coordinator.join(renewed_member)
        return_ticket = coordinator.join(structs.replace(renewed_member, member_id=""))
        if len(members) > 1:
            codes = (coordinator.code(join_ticket), coordinator.code(return_ticket))
            yield "two JoinGroups of a static member", codes, (ErrorCode.FENCED_INSTANCE_ID, None)


# --- a group without members


def _waits_for_members(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """The first generation after an empty one waits for more members (KIP-134), again when one has come meanwhile."""
    settings = coordinator.settings
    session_ms = settings.max_session_timeout_ms
    newcomer = MemberMetadata(rebalance_timeout=10 * session_ms, session_timeout=session_ms)
    coordinator.generation = structs.replace(coordinator.generation, protocol_type="consumer", protocol="range")
    yield "a heartbeat in a group without members", coordinator.beat(newcomer), UNKNOWN_ID
    tickets = [coordinator.join(newcomer, UNINVITED)]
    delay_s = settings.initial_rebalance_delay_s
    for _ in range(2):
        coordinator.wait(delay_s / 2)
        tickets.append(coordinator.join(newcomer, UNINVITED))
        coordinator.wait(delay_s / 2 - MARGIN_S)
        yield "a JoinGroup in the initial delay", coordinator.codes(tickets), {None}
        coordinator.wait(MARGIN_S)
        yield "a JoinGroup in the longer delay", coordinator.codes(tickets), {None}
    coordinator.wait(delay_s + MARGIN_S)
    yield "the JoinGroups after the delay", coordinator.codes(tickets), {OK}
    number = coordinator.generation.generation + 1
    yield "the first generation", {_joined(coordinator, ticket).generation_id for ticket in tickets}, {number}
    names = [_joined(coordinator, ticket).member_id for ticket in tickets]
    next_tickets = [coordinator.join(structs.replace(newcomer, member_id=name)) for name in names]
    yield "the JoinGroups of the next generation", coordinator.codes(next_tickets), {OK}


def _offsets_expire(coordinator: SupposedCoordinator) -> Iterator[Expectation]:
    """The offsets of a group without members expire after the retention time; the group is removed with them."""
    outsider = MemberMetadata()
    ticket = coordinator.commit(outsider, -1)
    coordinator.commit_log()
    yield "a commit in a group without members", coordinator.code(ticket), OK
    check_s = coordinator.settings.retention_check_interval_s
    coordinator.wait(RETENTION_S - check_s)
    coordinator.commit_log()
    yield "an OffsetFetch before the retention time", coordinator.offset, 1
    coordinator.wait(2 * check_s)
    yield "an OffsetFetch before the removal is committed", coordinator.offset, 1
    coordinator.commit_log()
    yield "an OffsetFetch after the retention time", coordinator.offset, -1
    yield "a description of an expired group", coordinator.state, "Dead"


_LIVES_OF_MEMBERS: Final = (
    _continues,
    _offsets,
    _joins,
    _refused,
    _interrupted,
    _absent,
    _unsynced,
    _silent,
    _leaves,
    _invites,
    _returns,
)
_LIVES_WITHOUT_MEMBERS: Final = (_waits_for_members, _offsets_expire)


def _joined(coordinator: SupposedCoordinator, ticket: int) -> JoinGroupResponse:
    """The answer to a JoinGroup; an empty one while it waits."""
    return cast(JoinGroupResponse, coordinator.answers.get(ticket, JoinGroupResponse()))


def _deleted(coordinator: SupposedCoordinator) -> ErrorCode | None:
    """The answer to a deletion of the group, once it is committed."""
    coordinator.sent += 1
    for effect in coordinator.shard.delete(coordinator.sent, coordinator.group):
        if isinstance(effect, AppendEffect):
            coordinator.pending.append(effect)
        else:
            coordinator.answers[effect.ticket] = effect.response
    coordinator.commit_log()
    answer: Any = coordinator.answers.get(coordinator.sent)
    return None if answer is None else ErrorCode(answer.results[0].error_code)
