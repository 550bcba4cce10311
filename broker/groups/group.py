"""One consumer group: its members, their votes, its generation. `members` and `rebalance` decide when it changes.

Invariants:
- the generation never decreases, and only members of the current generation have an assignment;
- a group with members has a leader, which is one of them, unless it has never had a generation;
- an instance id (KIP-345) identifies exactly one member, the one that joined last with it;
- the memory of the group is counted (see `memory_quota`) from `keep` to `let_go`, with every change.
"""

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
    """The names are those of DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """The sender of a request, as descriptions of groups show it."""

    id: str
    host: str


@dataclass(slots=True)
class GroupMember:
    """A member. `protocols` by name in order of preference; `joining` and `syncing` are the tickets of its waiting
    requests. `assignment` is valid once the generation is stable; until then it is a pending one, or that of an earlier
    generation."""

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
    """Has never been in a generation: may wait for one longer than a session."""
    kind: MemoryKind = MemoryKind.NEWCOMERS
    """NEWCOMERS until a generation with the member in its present form is committed; again when its data grow."""
    counted: int = 0
    """The size with which the member is counted."""

    @property
    def size(self) -> int:
        return self.size_with(self.protocols)

    def size_with(self, protocols: dict[str, bytes]) -> int:
        """The member's size with these protocols."""
        texts = (self.id, self.instance_id, self.client.id, self.client.host, *protocols)
        data = len(self.assignment) + sum(PROTOCOL_BYTES + len(data) for data in protocols.values())
        return sized(MEMBER_LEAST, MEMBER_BYTES, texts, data)

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for a protocol."""
        return self.protocols.get(protocol or "", b"")

    def vote(self, candidates: set[str]) -> str:
        """The member's most preferred protocol among those that all members support."""
        return next(name for name in self.protocols if name in candidates)


@dataclass(slots=True)
class Group:
    """A group. `since_ms`: when its present state started, in ms since 1970."""

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
    """Member ids that were handed out and not yet used to join (KIP-394)."""
    unsynced: set[str] = field(default_factory=set)
    """Members of the generation that have not yet asked for their assignment."""
    storing: int | None = None
    """The last generation whose assignment was appended."""
    newcomers: bool = False
    """Whether a member joined since the initial delay was last extended."""
    in_initial_delay: bool = False
    initial_delay_left_s: float = 0.0
    since_ms: int = -1
    kind: MemoryKind = MemoryKind.NEWCOMERS
    """MEMBERS once the log has a generation of this group, or will; else OFFSETS, if the group had any."""
    _holdings: Holdings | None = None
    _counted: int = 0

    # --- memory

    @property
    def size(self) -> int:
        """The size of the group without its members and invitations."""
        return sized(GROUP_LEAST, GROUP_BYTES, (self.id, self.id, self.protocol_type, self.protocol))

    @property
    def newcomer_size(self) -> int:
        """The size that the group adds to a newcomer."""
        return self.size if self._holdings is None and self.kind is MemoryKind.NEWCOMERS else 0

    def keep(self, holdings: Holdings) -> None:
        """Count the memory of this group from now on."""
        self._holdings = holdings
        self._count_names()
        for member_id in self.invited:
            self._count_invitation(member_id)
        for member in self.members.values():
            self._count(member)

    def let_go(self) -> None:
        """Stop counting the memory of this group."""
        if self._holdings is None:
            return
        for member in self.members.values():
            self._discount(member)
        for member_id in self.invited:
            self._discount_invitation(member_id)
        self._holdings.book(self.kind, -self._counted)
        self._holdings, self._counted = None, 0

    def becomes(self, kind: MemoryKind) -> None:
        """Count the group as `kind`: the log has a record of it, or will."""
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
        """All members are in a committed generation."""
        for member in self.members.values():
            self.is_member(member)

    def is_member(self, member: GroupMember) -> None:
        """A generation with this member in its present form was committed."""
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
        """Whether the group's names alone make each of its newcomers a large one."""
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
        """Remove a member. If it was the leader, the first joined member succeeds it, or else any other."""
        member = self.members.pop(member_id)
        self._discount(member)
        self.unsynced.discard(member_id)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            joined = (member.id for member in self.members.values() if member.joining is not None)
            self.leader = next(joined, next(iter(self.members), None))
        return member

    def rename(self, member: GroupMember, new_id: str) -> None:
        """A static member has returned with another id; it keeps its place and its leadership."""
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
        """Update a member's data. If they grow, it counts as a newcomer until its next generation."""
        self._discount(member)
        size = member.size
        member.protocols = protocols
        member.session_timeout_ms, member.rebalance_timeout_ms = session_ms, rebalance_ms
        if member.size > size:
            member.kind = MemoryKind.NEWCOMERS
        self._count(member)

    def with_assignments(self, assignments: Mapping[str, bytes]) -> tuple[int, int]:
        """The bytes of newcomers with these assignments, and the growth of the other members."""
        newcomers, growth = 0, 0
        for member in self.members.values():
            old_assignment, member.assignment = member.assignment, assignments.get(member.id, b"")
            if member.kind is MemoryKind.NEWCOMERS:
                newcomers += member.size
            else:
                growth += member.size - member.counted
            member.assignment = old_assignment
        return newcomers, growth

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Set the assignments of this generation; members that are not named get an empty one."""
        for member in self.members.values():
            self._discount(member)
            member.assignment = assignments.get(member.id, b"")
            self._count(member)

    @property
    def all_joined(self) -> bool:
        return not self.invited and all(member.joining is not None for member in self.members.values())

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined; false when no member has."""
        if self.leader is not None and self.members[self.leader].joining is not None:
            return True
        joined = next((member.id for member in self.members.values() if member.joining is not None), None)
        if joined is not None:
            self.leader = joined
        return joined is not None

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000

    # --- protocols

    def is_of(self, protocol_type: str) -> None:
        """Set the protocol type, by the first member."""
        self.protocol_type = protocol_type
        self._count_names()

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols may join: all members must have one in common."""
        names = set(protocols)
        if not self.members:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and bool(self._common() & names)

    def _common(self) -> set[str]:
        return set.intersection(*(set(member.protocols) for member in self.members.values()))

    def elect_protocol(self) -> str:
        """The protocol with the most votes among those that all support; on a tie the one that was voted for first."""
        candidates = self._common()
        return Counter(member.vote(candidates) for member in self.members.values()).most_common(1)[0][0]

    # --- generations

    def move_to(self, state: GroupState, now_ms: int) -> None:
        self.state, self.since_ms = state, now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Start the next generation with all present members."""
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
        """Whether this group has ever had members; otherwise it only names offsets."""
        return self.protocol_type is not None

    # --- the log

    def as_record(self) -> LogRecord:
        """This generation as a record of the log."""
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
    def from_record(cls, name: str, value: GroupMetadataValue) -> "Group":
        """The group of a record: with a complete generation, or empty."""
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
