"""The memory that clients can make a coordinator keep is bounded; existing members and requests of usual size continue
beside large ones."""

import gc
import random
import tracemalloc
from collections.abc import Callable

import pytest

from broker.errors import ErrorCode
from broker.groups.group import Group, GroupState
from broker.groups.memory_quota import (
    ANSWER_BYTES,
    COMMIT_BYTES,
    GROUP_BYTES,
    GROUP_LEAST,
    INVITATION_BYTES,
    MEMBER_BYTES,
    MEMBER_LEAST,
    OFFSET_BYTES,
    OFFSET_LEAST,
    PROTOCOL_BYTES,
    Account,
    MemoryKind,
)
from broker.protocol.messages.group_apis import MemberIdentity
from tests.broker.groups.story import GROUP, TOPIC, Story

LIMIT = 1 << 20
HALF_HOUR_MS = 1_800_000
LONG = "x" * 32_000


def held(story: Story) -> dict[str, int]:
    """What the account says."""
    return {kind.name: story.account.held(kind) for kind in MemoryKind}


def members_held(story: Story) -> int:
    return story.account.held(MemoryKind.NEWCOMERS) + story.account.held(MemoryKind.MEMBERS)


def error_of(story: Story, ticket: int) -> ErrorCode:
    return ErrorCode(story.answers[ticket].error_code)  # type: ignore[attr-defined]


# --- floods


def many_ids(story: Story, number: int) -> None:
    story.asks_to_join(session_ms=HALF_HOUR_MS, group=f"h{number % 50}")


def many_ids_of_one_group(story: Story, _number: int) -> None:
    story.asks_to_join(session_ms=HALF_HOUR_MS, group="h")


def long_ids(story: Story, number: int) -> None:
    story.asks_to_join(session_ms=HALF_HOUR_MS, group=f"h{number % 50}", client=LONG)


def many_groups(story: Story, number: int) -> None:
    story.asks_to_join(session_ms=HALF_HOUR_MS, group=f"h{number}")


def long_groups(story: Story, number: int) -> None:
    story.asks_to_join(session_ms=HALF_HOUR_MS, group=f"h{number}{LONG}")


def huge_metadata(story: Story, number: int) -> None:
    story.asks_to_join(session_ms=HALF_HOUR_MS, group=f"h{number}", version=3, metadata=bytes(100_000))


def huge_metadata_of_static_members(story: Story, number: int) -> None:
    story.asks_to_join(session_ms=HALF_HOUR_MS, group="h", instance=f"i{number}", metadata=bytes(100_000))


def many_protocols(story: Story, number: int) -> None:
    names = [f"p{each}" for each in range(200)]
    story.asks_to_join(session_ms=HALF_HOUR_MS, group=f"h{number}", version=3, protocols=names)


def names_that_take_four_bytes_a_character(story: Story, number: int) -> None:
    story.asks_to_join(session_ms=HALF_HOUR_MS, group=f"h{number}", instance="\U0001f600" + "x" * 7_000)


FLOODS = [
    many_ids,
    many_ids_of_one_group,
    long_ids,
    many_groups,
    long_groups,
    huge_metadata,
    huge_metadata_of_static_members,
    many_protocols,
    names_that_take_four_bytes_a_character,
]


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_newcomers_is_bounded_and_an_honest_group_rebalances_beside_it(
    flood: Callable[[Story, int], None],
) -> None:
    story = Story(max_bytes=LIMIT, initial_rebalance_delay_s=0.0)
    leader, follower, generation = story.stable_pair()
    before = held(story)
    for number in range(1500):
        flood(story, number)
        assert story.account.held(MemoryKind.NEWCOMERS) <= LIMIT // 4
        assert members_held(story) <= LIMIT // 2
    assert story.heartbeat(follower, generation) is ErrorCode.NONE
    third, ticket = story.joins()
    again = [story.asks_to_join(member) for member in (leader, follower)]
    flood(story, 1500)
    generation = story.join_answer(ticket).generation_id
    assert [story.join_answer(each).generation_id for each in again] == [generation] * 2
    assigned = story.asks_to_sync(third, generation)
    flood(story, 1501)
    story.asks_to_sync(leader, generation, {third: b"c"})
    assert story.sync_answer(assigned).assignment == b"c"
    assert story.leave(MemberIdentity(third)) == [ErrorCode.NONE]
    for member in (leader, follower):
        story.asks_to_join(member)
    for member in (follower, leader):
        story.asks_to_sync(member, generation + 1)
    for _ in range(HALF_HOUR_MS // 5000 + 130):  # until the last of them has no session any more
        story.wait(5)
        for member in (leader, follower):
            assert story.heartbeat(member, generation + 1) is ErrorCode.NONE
    assert {group.group_id for group in story.shard.listed()} == {GROUP}
    assert held(story) == before, "everything is given back"


def test_an_invited_member_that_does_not_join_frees_its_memory() -> None:
    story = Story(max_bytes=LIMIT)
    first = story.is_invited(session_ms=HALF_HOUR_MS)
    for _ in range(1000):
        last = story.is_invited(session_ms=HALF_HOUR_MS)
    assert error_of(story, story.asks_to_join(first)) is ErrorCode.UNKNOWN_MEMBER_ID, "it must join from the start"
    ticket = story.asks_to_join(last)
    assert not story.is_answered(ticket), "others are invited"
    assert members_held(story) <= LIMIT // 2


def test_an_evicted_new_member_is_asked_to_retry() -> None:
    story = Story(max_bytes=LIMIT, initial_rebalance_delay_s=3.0)
    ticket = story.asks_to_join(version=3, metadata=bytes(100_000))
    for number in range(3):
        story.asks_to_join(version=3, metadata=bytes(100_000), group=f"h{number}")
    assert error_of(story, ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.state == "Dead"


def test_large_requests_do_not_exclude_members_of_usual_size() -> None:
    story = Story(max_bytes=LIMIT, initial_rebalance_delay_s=3.0)
    _, ticket = story.joins(rebalance_ms=60_000)
    for number in range(1000):
        huge_metadata(story, number)
        long_groups(story, number)
    story.wait(3)
    assert error_of(story, ticket) is ErrorCode.NONE


def test_a_member_larger_than_the_limit_is_refused() -> None:
    story = Story(max_bytes=LIMIT)
    for how in ({"version": 3}, {"instance": "i"}):
        ticket = story.asks_to_join(metadata=bytes(LIMIT // 4), **how)
        assert error_of(story, ticket) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error_of(story, story.asks_to_join(client="x" * LIMIT)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    leader, _, _ = story.stable_pair()
    refused = story.asks_to_join(leader, metadata=bytes(LIMIT // 4))
    assert error_of(story, refused) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert story.state == "Stable", "nothing has changed"


# --- members that have been in a generation


def becomes_a_member(story: Story, group: str, assignment: bytes = b"", **how: object) -> str:
    """One that does all that is asked of it, alone in its group; its id."""
    member = story.join_answer(story.asks_to_join(group=group, version=3, **how)).member_id  # type: ignore[arg-type]
    story.asks_to_sync(member, 1, {member: assignment}, group=group)
    return member


def fill(story: Story) -> dict[str, str]:
    """Members until no more are taken: their ids by their groups."""
    members: dict[str, str] = {}
    for number in range(1000):
        group = f"h{number}"
        ticket = story.asks_to_join(group=group, version=3, session_ms=HALF_HOUR_MS, metadata=bytes(20_000))
        answer = story.join_answer(ticket)
        if answer.error_code:
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            return members
        members[group] = answer.member_id
        story.asks_to_sync(answer.member_id, 1, {}, group=group)
    raise AssertionError("the memory is unbounded")


def test_members_are_bounded_and_existing_ones_continue() -> None:
    story = Story(max_bytes=LIMIT)
    leader, follower, _ = story.stable_pair(metadata=bytes(1000))
    others = fill(story)
    assert LIMIT // 2 - 30_000 < members_held(story) <= LIMIT // 2
    small = 0
    while error_of(story, story.asks_to_join(group=f"s{small}")) is ErrorCode.MEMBER_ID_REQUIRED and small < 1000:
        small += 1
    assert members_held(story) <= LIMIT // 2, "newcomers have what members leave"
    # The honest group rebalances without any of that room.
    tickets = [story.asks_to_join(member, metadata=bytes(1000)) for member in (leader, follower)]
    generation = story.join_answer(tickets[0]).generation_id
    waits = story.asks_to_sync(follower, generation)
    story.asks_to_sync(leader, generation, {leader: bytes(500), follower: b"b" * 500})
    assert story.sync_answer(waits).assignment == b"b" * 500
    # Who grows has to have room for it.
    refused = story.asks_to_join(leader, metadata=bytes(30_000))
    assert error_of(story, refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.state == "Stable"
    for group, member in others.items():
        story.leave(MemberIdentity(member), group=group)
    assert not story.is_answered(story.asks_to_join(leader, metadata=bytes(30_000))), "there is room again"


def test_a_member_with_larger_metadata_counts_as_new_until_the_commit() -> None:
    for commits in (False, True):
        story = Story(max_bytes=LIMIT)
        member = becomes_a_member(story, GROUP)
        story.asks_to_join(member, metadata=bytes(100_000))
        if commits:
            story.asks_to_sync(member, 2)
        for number in range(10):
            huge_metadata(story, number)
        assert story.heartbeat(member, 2) is (ErrorCode.NONE if commits else ErrorCode.UNKNOWN_MEMBER_ID)


def test_an_assignment_without_room_starts_another_rebalance() -> None:
    story = Story(max_bytes=LIMIT)
    leader, follower, generation = story.stable_pair()
    log = len(story.log)
    story.asks_to_join(leader)
    story.asks_to_join(follower)
    much = {leader: bytes(LIMIT // 4), follower: bytes(LIMIT // 4)}
    assert error_of(story, story.asks_to_sync(leader, generation + 1, much)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (story.state, len(story.log)) == ("PreparingRebalance", log)
    tickets = [story.asks_to_join(member) for member in (leader, follower)]
    assert story.join_answer(tickets[1]).generation_id == generation + 2
    story.asks_to_sync(leader, generation + 2, {leader: b"a"})
    assert story.state == "Stable"


def test_assignments_for_unknown_members_are_not_kept() -> None:
    story = Story(max_bytes=LIMIT, slow_log=True)
    leader, _ = story.joins()
    before = held(story)
    story.asks_to_sync(leader, 1, {leader: b"a", "stranger": bytes(LIMIT)})
    story.log_catches_up()
    assert story.state == "Stable"
    assert members_held(story) == sum(before.values())


def test_an_assignment_that_the_log_refuses_is_not_kept() -> None:
    story = Story(max_bytes=LIMIT)
    leader, _ = story.joins()
    before = held(story)
    story.appends_fail_with = ErrorCode.MESSAGE_TOO_LARGE
    story.asks_to_sync(leader, 1, {leader: bytes(LIMIT // 8)})
    assert held(story) == before


# --- offsets


def test_offsets_are_bounded_and_existing_groups_can_commit() -> None:
    story = Story(max_bytes=LIMIT, offsets_retention_ms=1000, retention_check_interval_s=5.0)
    leader, _, generation = story.stable_pair()
    assert story.commits(1, leader, generation, metadata="m" * 100) is ErrorCode.NONE
    codes = [story.commits(1, metadata="x" * 4000, group=f"h{number}{LONG[:1000]}") for number in range(300)]
    assert set(codes) == {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert story.account.held(MemoryKind.OFFSETS) + story.account.held(MemoryKind.COMMITS) <= LIMIT // 2
    assert len(list(story.shard.listed())) == 1 + codes.count(ErrorCode.NONE), "a name that is refused is not kept"
    assert story.commits(2, leader, generation, metadata="n" * 100) is ErrorCode.NONE
    assert story.committed() == 2
    assert members_held(story) <= 3 * MEMBER_LEAST, "members have room of their own"
    assert error_of(story, story.asks_to_join(group="new")) is ErrorCode.MEMBER_ID_REQUIRED
    story.wait(6)
    assert story.commits(1, group="another") is ErrorCode.NONE, "what has expired is given back"


def test_commits_that_are_on_their_way_are_bounded() -> None:
    story = Story(max_bytes=LIMIT)
    assert story.commits(0, metadata="x" * 4000) is ErrorCode.NONE
    before = held(story)
    story.slow_log = True
    tickets = [story.asks_to_commit(number, metadata="x" * 4000) for number in range(1, 100)]
    assert story.account.held(MemoryKind.COMMITS) <= LIMIT // 8
    taken = [ticket for ticket in tickets if not story.is_answered(ticket)]
    assert 10 < len(taken) < 90
    assert {story.commit_answer(it) for it in tickets if story.is_answered(it)} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    story.log_is_late()
    assert story.account.held(MemoryKind.COMMITS) > 0, "they may be committed yet"
    story.log_catches_up()
    assert (held(story), story.committed()) == (before, len(taken))


def test_a_commit_larger_than_the_limit_is_refused() -> None:
    story = Story(max_bytes=1 << 15)
    assert story.commits(0, metadata="x" * 4000) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert story.state == "Dead"


# --- groups


def test_a_group_without_records_is_removed_with_its_last_member() -> None:
    story = Story(initial_rebalance_delay_s=3.0)
    story.is_invited()
    story.wait(11)
    member, waits = story.joins()
    story.leave(MemberIdentity(member))
    assert error_of(story, waits) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (story.state, list(story.shard.listed())) == ("Dead", [])
    assert sum(held(story).values()) == 0
    assert story.log == []
    first = story.shard.deadline()
    member, waits = story.joins(session_ms=HALF_HOUR_MS, rebalance_ms=HALF_HOUR_MS)
    story.wait(3)
    assert error_of(story, waits) is ErrorCode.NONE
    story.leave(MemberIdentity(member))
    assert story.shard.deadline() == first, "no deadline of it is left"


# --- several coordinators


def test_shards_of_one_broker_share_one_bound() -> None:
    account = Account(LIMIT)
    one, other = (Story(account=account, initial_rebalance_delay_s=3.0) for _ in range(2))
    ticket = one.asks_to_join(version=3, metadata=bytes(50_000))
    for number in range(20):
        huge_metadata(other, number)
    assert account.held(MemoryKind.NEWCOMERS) <= LIMIT // 4
    assert error_of(one, ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "the oldest is in another shard"
    other.shard.holdings.close()
    assert held(one) == dict.fromkeys(held(one), 0)


def test_a_new_coordinator_loads_a_log_above_its_limit_and_accepts_no_more() -> None:
    story = Story(max_bytes=64 * LIMIT)
    leader, follower, _ = story.stable_pair()
    others = {f"h{number}": becomes_a_member(story, f"h{number}", bytes(30_000)) for number in range(50)}
    for number in range(700):
        assert story.commits(7, group=f"c{number}") is ErrorCode.NONE
    story.account = Account(LIMIT)
    story.take_over()
    assert story.account.held(MemoryKind.MEMBERS) > LIMIT
    assert story.account.held(MemoryKind.OFFSETS) > LIMIT
    before = held(story)
    assert error_of(story, story.asks_to_join(group="new")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error_of(story, story.asks_to_join(version=3)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.commits(1, group="new") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.commits(8, group="c1") is ErrorCode.NONE
    tickets = [story.asks_to_join(member, protocols=("range", "sticky")) for member in (leader, follower)]
    generation = story.join_answer(tickets[0]).generation_id
    story.asks_to_sync(leader, generation, {leader: b"b", follower: b"a"})
    assert story.sync_answer(story.asks_to_sync(follower, generation)).assignment == b"a"
    assert held(story) == before
    for group, member in others.items():
        story.leave(MemberIdentity(member), group=group)
    assert error_of(story, story.asks_to_join(group="new")) is ErrorCode.MEMBER_ID_REQUIRED


# --- what counts


def text(value: str | None) -> int:
    return 0 if value is None else len(value) if value.isascii() else 4 * len(value)


def recounted(story: Story, commits: dict[int, int]) -> dict[str, int]:
    """What there is, looked at one by one; `commits`: the sizes of those on their way."""
    sums = dict.fromkeys(MemoryKind, 0)
    groups: dict[str, Group] = story.shard._groups._groups
    for group in groups.values():
        names = 2 * text(group.id) + text(group.protocol_type) + text(group.protocol)
        sums[group.kind] += max(GROUP_LEAST, GROUP_BYTES + names)
        for invited in group.invited:
            sums[MemoryKind.NEWCOMERS] += INVITATION_BYTES + text(invited)
        for member in group.members.values():
            said = sum(text(name) + PROTOCOL_BYTES + len(data) for name, data in member.protocols.items())
            ids = text(member.id) + text(member.instance_id) + text(member.client.id) + text(member.client.host)
            sums[member.kind] += max(MEMBER_LEAST, MEMBER_BYTES + ids + said + len(member.assignment))
    for offsets in story.shard._offsets._committed.values():
        for (topic, _), offset in offsets.items():
            sums[MemoryKind.OFFSETS] += max(OFFSET_LEAST, OFFSET_BYTES + text(topic) + text(offset.metadata))
    sums[MemoryKind.COMMITS] = sum(commits.values())
    return {kind.name: size for kind, size in sums.items()}


class Clients:
    """Clients that do anything, in any order, in a few groups."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        delay_s = self.rng.choice([0.0, 3.0])
        self.story = Story(
            slow_log=True, max_bytes=400_000, initial_rebalance_delay_s=delay_s, offsets_retention_ms=100_000
        )
        self.commits: dict[int, int] = {}
        """The sizes of those that may be on their way, by their tickets."""

    def group(self) -> Group | str:
        """One that there is, or the name of one."""
        groups = self.story.shard._groups._groups
        name = self.rng.choice(["g", "h", "\u00e9" * 3000, "i"])
        return groups.get(name, name)

    def member(self) -> tuple[str, str, str | None, int]:
        """Group, id, instance and generation of a member."""
        group = self.group()
        if isinstance(group, str):
            return group, "", None, -1
        ids = [*group.members, *group.invited, "stranger"]
        found = self.rng.choice(ids)
        member = group.members.get(found)
        return group.id, found, None if member is None else member.instance_id, group.generation

    def joins(self) -> None:
        group, member, instance, _ = self.member()
        if self.rng.random() < 0.4:
            member, instance = "", self.rng.choice([None, None, "s1", "s2"])
        self.story.asks_to_join(
            member,
            instance=instance,
            protocols=self.rng.choice([("range",), ("range", "sticky"), ("sticky", "range")]),
            version=self.rng.choice([3, 9]),
            session_ms=self.rng.choice([6_000, 30_000]),
            rebalance_ms=self.rng.choice([1_000, 20_000]),
            metadata=bytes(self.rng.choice([1, 10, 3_000, 20_000, 60_000, 200_000])),
            group=group,
            client=self.rng.choice(["c", "\u00e9" * 500]),
        )

    def syncs(self) -> None:
        group, member, instance, generation = self.member()
        found = self.group()
        members = [] if isinstance(found, str) else list(found.members)
        assignments = {each: bytes(self.rng.choice([1, 5_000, 100_000])) for each in [*members, "stranger"]}
        self.story.asks_to_sync(member, generation, assignments, instance, group)

    def everybody_goes_on(self) -> None:
        """All members of a group rejoin, with those that are invited, and sync."""
        found = self.group()
        if isinstance(found, str):
            return
        for member_id in list(found.invited):
            self.story.asks_to_join(member_id, group=found.id)
        for member in list(found.members.values()):
            if member.joining is None and member.id in found.members:
                metadata = next(iter(member.protocols.values()), b"")
                self.story.asks_to_join(
                    member.id,
                    instance=member.instance_id,
                    protocols=list(member.protocols),
                    metadata=metadata,
                    group=found.id,
                )
        self.story.wait(self.rng.choice([0, 4]))
        if found.state is GroupState.COMPLETING_REBALANCE and found.leader is not None:
            shares = {member: bytes(self.rng.choice([1, 8_000])) for member in found.members}
            leader = found.members[found.leader]
            self.story.asks_to_sync(leader.id, found.generation, shares, leader.instance_id, found.id)
            if self.rng.random() < 0.5:
                self.story.log_catches_up()

    def leaves(self) -> None:
        group, member, instance, _ = self.member()
        self.story.leave(MemberIdentity(member, instance), group=group)

    def time_passes(self) -> None:
        self.story.wait(self.rng.choice([1, 5, 40]))

    def retention_passes(self) -> None:
        self.story.wait(700)

    def commits_an_offset(self) -> None:
        group, member, instance, generation = self.member()
        if self.rng.random() < 0.5:
            member, instance, generation = "", None, -1
        metadata = self.rng.choice(["", "m" * 300, "\u00e9" * 1000])
        ticket = self.story.asks_to_commit(
            1, member, generation, partition=self.rng.randrange(5), instance=instance, metadata=metadata, group=group
        )
        size = max(OFFSET_LEAST, OFFSET_BYTES + len(TOPIC) + text(metadata))
        self.commits[ticket] = COMMIT_BYTES + 2 * ANSWER_BYTES + len(TOPIC) + size

    def log_goes_on(self) -> None:
        self.story.log_catches_up()

    def log_refuses(self) -> None:
        self.story.appends_fail_with = None if self.rng.random() < 0.7 else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def topic_is_deleted(self) -> None:
        self.story.forgets()

    def group_is_deleted(self) -> None:
        name = self.member()[0]
        self.story._ticket += 1
        self.story._do(self.story.shard.delete(self.story._ticket, name))

    def coordinator_is_replaced(self) -> None:
        self.commits.clear()
        self.story.take_over()

    def on_their_way(self) -> dict[int, int]:
        self.commits = {ticket: size for ticket, size in self.commits.items() if ticket not in self.story.answers}
        return self.commits


STEPS: list[tuple[int, Callable[[Clients], None]]] = [
    (10, Clients.joins),
    (4, Clients.syncs),
    (8, Clients.everybody_goes_on),
    (4, Clients.leaves),
    (3, Clients.time_passes),
    (1, Clients.retention_passes),
    (5, Clients.commits_an_offset),
    (8, Clients.log_goes_on),
    (2, Clients.log_refuses),
    (1, Clients.topic_is_deleted),
    (1, Clients.group_is_deleted),
    (1, Clients.coordinator_is_replaced),
]


@pytest.mark.parametrize("seed", range(20))
def test_the_account_equals_the_held_memory_for_any_requests(seed: int) -> None:
    clients = Clients(seed)
    story, reached = clients.story, set[GroupState]()
    weights, steps = zip(*STEPS, strict=True)
    for number in range(600):
        step = clients.rng.choices(steps, weights)[0]
        step(clients)
        assert held(story) == recounted(story, clients.on_their_way()), f"step {number}: {step.__name__}"
        assert story.account.held(MemoryKind.NEWCOMERS) <= story.account.newcomers_at_most
        assert members_held(story) <= story.account.members_at_most
        reached |= {group.state for group in story.shard._groups}
    assert reached >= {GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.STABLE}
    story.shard.holdings.close()
    assert sum(held(story).values()) == 0


def an_invitation(story: Story, number: int) -> None:
    story.asks_to_join(client=f"consumer-{number:06}")


def a_member(story: Story, number: int) -> None:
    story.asks_to_join(version=3, client=f"consumer-{number:06}", protocols=("range", "sticky"), metadata=bytes(100))


def a_static_member_of_its_own_group(story: Story, number: int) -> None:
    story.asks_to_join(instance=f"i{number:06}", group=f"group-{number:06}", metadata=b"%06d" % number)


def an_offset_of_its_own_group(story: Story, number: int) -> None:
    story.asks_to_commit(number, group=f"group-{number:06}", metadata=f"{number:06}")


def protocols(story: Story, number: int) -> None:
    names = [f"{number:06}-{each:06}" for each in range(50)]
    story.asks_to_join(version=3, group=f"group-{number:06}", protocols=names, metadata=b"x")


@pytest.mark.parametrize(
    "what", [an_invitation, a_member, a_static_member_of_its_own_group, an_offset_of_its_own_group, protocols]
)
def test_counted_sizes_cover_the_allocated_memory(what: Callable[[Story, int], None]) -> None:
    story = Story(initial_rebalance_delay_s=3.0)
    what(story, 0)
    gc.collect()
    tracemalloc.start()
    try:
        counted = sum(held(story).values())
        for number in range(1, 301):
            what(story, number)
        counted = sum(held(story).values()) - counted
        story.log.clear()
        story.answers.clear()
        gc.collect()
        allocated, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert allocated < counted
