"""One consumer group: its members, their votes, its generation. What may happen to it when is in `members`.

Invariants:
- the generation never falls, and only members of the current generation hold an assignment;
- a group with members has a leader, who is one of them, unless it has never had a generation;
- an instance id (KIP-345) names exactly one member, the one that joined last under it;
- what it has counts (see `account`) from `keep` to `let_go`, whatever changes meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from broker.groups.memory_quota import (
    GROUP_BYTES,
    GROUP_LEAST,
    INVITATION_BYTES,
    MEMBER_BYTES,
    MEMBER_LEAST,
    PROTOCOL_BYTES,
    Holdings,
    MemoryKind,
    sized,
)
from broker.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LogRecord,
    MemberMetadata,
    record,
)

CONSUMER = "consumer"


class GroupState(Enum):
    """The names are those that DescribeGroups and ListGroups give."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """Who sent a request, as far as groups show it."""

    id: str
    host: str


@dataclass(slots=True)
class GroupMember:
    """A member. `protocols` by name in the order of preference; `joining` and `syncing` are the tickets of requests of
    this member that wait. `assignment` holds once the generation is stable; until then it is what is on its way, or
    that of an earlier one."""

    id: str
    instance_id: str | None
    client: ConnectedClient
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None
    is_new: bool = False
    """Has never been in a generation: it may wait for one longer than a session."""
    kind: MemoryKind = MemoryKind.NEWCOMERS
    """A newcomer until a generation with it, as it is, is committed; again when it comes to say more."""
    counted: int = 0
    """The size that it is counted with."""

    @property
    def size(self) -> int:
        return self.size_with(self.protocols)

    def size_with(self, protocols: dict[str, bytes]) -> int:
        """The size if these are its protocols."""
        texts = (self.id, self.instance_id, self.client.id, self.client.host, *protocols)
        data = len(self.assignment) + sum(PROTOCOL_BYTES + len(data) for data in protocols.values())
        return sized(MEMBER_LEAST, MEMBER_BYTES, texts, data)

    def metadata(self, protocol: str | None) -> bytes:
        """What this member says under a protocol."""
        return self.protocols.get(protocol or "", b"")

    def vote(self, candidates: set[str]) -> str:
        """The protocol that it prefers among those that all support."""
        return next(name for name in self.protocols if name in candidates)


@dataclass(slots=True)
class Group:
    """A group. `since_ms` is when its state began, in milliseconds since 1970."""

    id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """The ids of static members by their instance ids."""
    invited: dict[str, None] = field(default_factory=dict)
    """Member ids that were given out, and with which nobody has joined yet (KIP-394)."""
    unsynced: set[str] = field(default_factory=set)
    """Members of the generation that have not yet asked for their assignment."""
    storing: int | None = None
    """The last generation whose assignment was appended."""
    newcomers: bool = False
    """Whether somebody joined since the initial delay was last extended."""
    in_initial_delay: bool = False
    initial_delay_left_s: float = 0.0
    since_ms: int = -1
    kind: MemoryKind = MemoryKind.NEWCOMERS
    """A member's kind once the log has a generation of this group, or will; else that of offsets, if there were any."""
    _holdings: Holdings | None = None
    _counted: int = 0

    # --- what it holds

    @property
    def size(self) -> int:
        """Without its members and invitations."""
        return sized(GROUP_LEAST, GROUP_BYTES, (self.id, self.id, self.protocol_type, self.protocol))

    @property
    def newcomer_size(self) -> int:
        """What it adds to a newcomer that comes to it."""
        return self.size if self._holdings is None and self.kind is MemoryKind.NEWCOMERS else 0

    def keep(self, holdings: Holdings) -> None:
        """What this group has is held from here on."""
        self._holdings = holdings
        self._count_names()
        for member_id in self.invited:
            self._count_invitation(member_id)
        for member in self.members.values():
            self._count(member)

    def let_go(self) -> None:
        """It is held no more."""
        if self._holdings is None:
            return
        for member in self.members.values():
            self._discount(member)
        for member_id in self.invited:
            self._discount_invitation(member_id)
        self._holdings.book(self.kind, -self._counted)
        self._holdings, self._counted = None, 0

    def becomes(self, kind: MemoryKind) -> None:
        """The log has something of this group, or will."""
        if self._holdings is not None:
            self._holdings.book(self.kind, -self._counted)
            self._holdings.book(kind, self._counted)
        self.kind = kind

    def _count_names(self) -> None:
        if self._holdings is not None:
            size = self.size
            self._holdings.book(self.kind, size - self._counted)
            self._counted = size

    def are_members(self) -> None:
        """All who are in it are in a generation that is committed."""
        for member in self.members.values():
            self.is_member(member)

    def is_member(self, member: GroupMember) -> None:
        """A generation that has this member as it is was committed."""
        if member.kind is not MemoryKind.MEMBERS:
            self._discount(member)
            member.kind = MemoryKind.MEMBERS
            self._count(member)

    def _count(self, member: GroupMember) -> None:
        if self._holdings is not None:
            member.counted = member.size
            self._holdings.book(member.kind, member.counted)
            if member.kind is MemoryKind.NEWCOMERS:
                self._holdings.enlist(self.id, member.id, large=self._is_long or member.counted > MEMBER_LEAST)

    def _discount(self, member: GroupMember) -> None:
        if self._holdings is not None:
            self._holdings.book(member.kind, -member.counted)
            self._holdings.strike(self.id, member.id)

    def _count_invitation(self, member_id: str) -> None:
        if self._holdings is not None:
            size = invitation_size(member_id)
            self._holdings.book(MemoryKind.NEWCOMERS, size)
            self._holdings.enlist(self.id, member_id, large=self._is_long or size > MEMBER_LEAST)

    def _discount_invitation(self, member_id: str) -> None:
        if self._holdings is not None:
            self._holdings.book(MemoryKind.NEWCOMERS, -invitation_size(member_id))
            self._holdings.strike(self.id, member_id)

    @property
    def _is_long(self) -> bool:
        """Whether its names alone make those large who come to it."""
        return self.kind is MemoryKind.NEWCOMERS and self._counted > GROUP_LEAST

    # --- members

    def invite(self, member_id: str) -> None:
        self.invited[member_id] = None
        self._count_invitation(member_id)

    def uninvite(self, member_id: str) -> None:
        if member_id in self.invited:
            del self.invited[member_id]
            self._discount_invitation(member_id)

    def add(self, member: GroupMember) -> None:
        self.members[member.id] = member
        self._count(member)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> GroupMember:
        """Take a member out; the first of those that have joined, or else any other, leads instead."""
        member = self.members.pop(member_id)
        self._discount(member)
        self.unsynced.discard(member_id)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            joined = (other.id for other in self.members.values() if other.joining is not None)
            self.leader = next(joined, next(iter(self.members), None))
        return member

    def rename(self, member: GroupMember, new_id: str) -> None:
        """A static member has come back under another id; its place, the lead included, stays its own."""
        old_id = member.id
        self._discount(member)
        member.id = new_id
        self._count(member)
        self.members = {(new_id if key == old_id else key): value for key, value in self.members.items()}
        if member.instance_id is not None:
            self.instances[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new_id)

    def update(self, member: GroupMember, protocols: dict[str, bytes], session_ms: int, rebalance_ms: int) -> None:
        """What a member says of itself. Who says more than before has to be in a generation again to be a member."""
        self._discount(member)
        size = member.size
        member.protocols = protocols
        member.session_timeout_ms, member.rebalance_timeout_ms = session_ms, rebalance_ms
        if member.size > size:
            member.kind = MemoryKind.NEWCOMERS
        self._count(member)

    def with_assignments(self, assignments: Mapping[str, bytes]) -> tuple[int, int]:
        """What newcomers here would have, and how much more than now other members would."""
        newcomers, growth = 0, 0
        for member in self.members.values():
            held, member.assignment = member.assignment, assignments.get(member.id, b"")
            if member.kind is MemoryKind.NEWCOMERS:
                newcomers += member.size
            else:
                growth += member.size - member.counted
            member.assignment = held
        return newcomers, growth

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Give all members what they are to read in this generation; nothing to who is not named."""
        for member in self.members.values():
            self._discount(member)
            member.assignment = assignments.get(member.id, b"")
            self._count(member)

    @property
    def all_joined(self) -> bool:
        return not self.invited and all(member.joining is not None for member in self.members.values())

    def elect_joined_leader(self) -> bool:
        """See that the leader is one who has joined; false when nobody has."""
        if self.leader is not None and self.members[self.leader].joining is not None:
            return True
        joined = next((member.id for member in self.members.values() if member.joining is not None), None)
        if joined is not None:
            self.leader = joined
        return joined is not None

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    # --- protocols

    def is_of(self, protocol_type: str) -> None:
        """Its first member says what it is."""
        self.protocol_type = protocol_type
        self._count_names()

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether somebody who speaks these may join: all members must have one in common."""
        names = set(protocols)
        if not self.members:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and bool(self._common() & names)

    def _common(self) -> set[str]:
        return set.intersection(*(set(member.protocols) for member in self.members.values()))

    def elect_protocol(self) -> str:
        """The protocol with the most votes among those that all support; a tie goes to who voted first."""
        candidates = self._common()
        return Counter(member.vote(candidates) for member in self.members.values()).most_common(1)[0][0]

    # --- generations

    def move_to(self, state: GroupState, now_ms: int) -> None:
        self.state, self.since_ms = state, now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Everybody who is left is in it."""
        self.generation += 1
        self.unsynced = set(self.members)
        if self.members:
            self.protocol = self.elect_protocol()
            self.move_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = self.leader = None
            self.move_to(GroupState.EMPTY, now_ms)
        self._count_names()

    @property
    def used(self) -> bool:
        """Whether this group has ever had members; one that has not is only a name for offsets."""
        return self.protocol_type is not None

    # --- the log

    def as_record(self) -> LogRecord:
        """This generation as the log keeps it."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.since_ms,
            members=[
                MemberMetadata(
                    member_id=member.id,
                    group_instance_id=member.instance_id,
                    client_id=member.client.id,
                    client_host=member.client.host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )
        return record(GroupMetadataKey(self.id), value)

    @classmethod
    def from_record(cls, name: str, value: GroupMetadataValue) -> Group:
        """The group that a record describes: in a generation that is complete, or empty."""
        group = cls(
            name,
            state=GroupState.STABLE if value.members else GroupState.EMPTY,
            generation=value.generation,
            protocol_type=value.protocol_type or None,
            protocol=value.protocol,
            leader=value.leader,
            since_ms=value.current_state_timestamp,
            kind=MemoryKind.MEMBERS,
        )
        for entry in value.members:
            group.add(
                GroupMember(
                    id=entry.member_id,
                    instance_id=entry.group_instance_id,
                    client=ConnectedClient(entry.client_id, entry.client_host),
                    rebalance_timeout_ms=entry.rebalance_timeout,
                    session_timeout_ms=entry.session_timeout,
                    protocols={value.protocol or "": entry.subscription},
                    assignment=entry.assignment,
                    kind=MemoryKind.MEMBERS,
                )
            )
        return group


def invitation_size(member_id: str) -> int:
    return sized(0, INVITATION_BYTES, (member_id,))
