"""Groups and offsets are removed by an administrator, with a deleted topic, and when unused for their retention."""

from typing import Any

import pytest

from broker.errors import ErrorCode
from broker.groups.group import GroupMember
from broker.groups.memory_quota import Account, Holdings
from broker.groups.offsets import Changes, Offsets
from broker.protocol.messages.group_apis import MemberIdentity
from broker.protocol.messages.offset_apis import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
)
from broker.protocol.schema import Topic
from tests.broker.groups.story import GROUP, TOPIC, Story

SUBSCRIBED = b"\0\0\0\0\0\1\0\1t"  # version 0, one topic, t


def deleted_offsets(story: Story, *partitions: int) -> list[ErrorCode]:
    """What OffsetDelete answers for partitions of t."""
    asked = Topic(TOPIC, [OffsetDeleteRequestPartition(index) for index in partitions])
    story._ticket += 1
    story._do(story.shard.delete_offsets(story._ticket, OffsetDeleteRequest(GROUP, [asked])))
    answer: Any = story.answers[story._ticket]
    return [ErrorCode(its.error_code) for its in answer.topics[0].partitions]


def test_a_group_is_deleted_with_its_offsets_when_it_has_no_members() -> None:
    story = Story()
    leader, follower, generation = story.stable_pair()
    story.commits(5, leader, generation)

    def delete() -> int:
        story._ticket += 1
        story._do(story.shard.delete(story._ticket, GROUP))
        return int(story.answers[story._ticket].results[0].error_code)  # type: ignore[attr-defined]

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    story.leave(MemberIdentity(leader), MemberIdentity(follower))
    assert story.state == "Empty"
    assert delete() == ErrorCode.NONE
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
    assert story.committed() == -1
    story.take_over()
    assert (story.committed(), story.state) == (-1, "Dead")


@pytest.mark.parametrize(
    "subscription",
    [
        SUBSCRIBED,
        b"\0\0\0\0\0\3\xff\xfe",
        b"\0\0\0\0\0\3\0\0\xff\xff",
        b"\0\0\0\0\0\1\0\2x",
        b"\0\0\xff\xff\xff\xff",
        b"",
    ],
    ids=["of it", "a name that steps back", "a name of -1", "a name cut short", "-1 names", "empty input"],
)
def test_offsets_of_a_subscribed_topic_are_not_deleted(subscription: bytes) -> None:
    story = Story(offsets_retention_ms=1000, retention_check_interval_s=5.0)
    leader, _, generation = story.stable_pair(metadata=subscription)
    story.commits(5, leader, generation)
    assert deleted_offsets(story, 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    story.wait(6)
    assert story.committed() == 5


def test_offsets_of_a_topic_that_no_member_reads_are_deleted_and_expire() -> None:
    story = Story(offsets_retention_ms=1000, retention_check_interval_s=5.0)
    leader, _, generation = story.stable_pair(metadata=SUBSCRIBED.replace(b"t", b"x"))
    for partition in (0, 1):
        story.commits(5, leader, generation, partition=partition)
    assert deleted_offsets(story, 0) == [ErrorCode.NONE]
    assert (story.committed(0), story.committed(1)) == (-1, 5)
    story.wait(6)
    assert (story.committed(1), story.state) == (-1, "Stable")


def test_subscriptions_are_read_once_for_all_offsets_and_only_for_old_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    metadata = GroupMember.metadata

    def counted(member: GroupMember, protocol: str | None) -> bytes:
        asked.append(member.id)
        return metadata(member, protocol)

    story = Story(offsets_retention_ms=7000, retention_check_interval_s=4.0)
    leader, follower, generation = story.stable_pair(metadata=SUBSCRIBED)
    for partition in range(4):
        story.commits(5, leader, generation, partition=partition)
    monkeypatch.setattr(GroupMember, "metadata", counted)
    story.wait(5)
    assert asked == [], "no offset is old enough"
    story.wait(4)
    assert asked == [leader, follower]
    asked.clear()
    assert deleted_offsets(story, 0, 1, 2, 3) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 4
    assert asked == [leader, follower]


def test_the_offsets_of_a_deleted_topic_are_removed() -> None:
    story = Story()
    story.commits(5)
    story.forgets()
    assert story.committed() == -1
    story.take_over()
    assert story.committed() == -1


def test_pending_offsets_of_a_deleted_topic_are_removed() -> None:
    story = Story(slow_log=True)
    ticket = story.asks_to_commit(5)
    story.forgets()
    story.log_catches_up()
    assert story.commit_answer(ticket) is ErrorCode.NONE
    assert story.committed() == -1
    story.take_over()
    assert story.committed() == -1


def test_offsets_of_a_deleted_topic_are_removed_when_the_log_accepts_the_removal() -> None:
    story = Story()
    story.commits(5, partition=0)
    story.commits(6, partition=1)
    story.appends_fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    story.forgets()
    story.wait(5)
    assert (story.committed(0), story.committed(1)) == (5, 6)
    story.appends_fail_with = None
    assert story.commits(1, partition=1) is ErrorCode.NONE, "there is a new topic of that name"
    story.wait(5)
    assert (story.committed(0), story.committed(1)) == (-1, 1)
    story.take_over()
    assert (story.committed(0), story.committed(1)) == (-1, 1)
    assert story.ticks(60) == 0, "nothing is left to be done"


def test_a_refused_removal_waits_for_pending_commits() -> None:
    story = Story()
    story.commits(5, partition=0)
    story.slow_log = True
    story.asks_to_commit(6, partition=1)
    before_the_deletion = story.uncommitted.pop()
    story.appends_fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    story.forgets()
    story.appends_fail_with = None
    story.asks_to_commit(1, partition=0)
    after_it = story.uncommitted.pop()
    story.wait(5)
    assert story.uncommitted == [], "of both partitions a change is on its way"
    story.uncommitted += [before_the_deletion, after_it]
    story.log_catches_up()
    story.wait(5)
    story.log_catches_up()
    assert (story.committed(0), story.committed(1)) == (1, -1)
    story.take_over()
    assert (story.committed(0), story.committed(1)) == (1, -1)


class Name(str):
    """The name of a group, which counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


def test_a_lookup_of_a_groups_offsets_does_not_scan_other_groups() -> None:
    offsets, groups = Offsets(Holdings(Account(1 << 20))), [Name(f"g{number}") for number in range(100)]
    changes: Changes = {(TOPIC, 0): None}
    for group in groups:
        offsets.announce(group, changes)
    assert offsets.groups() == groups
    Name.compared = 0
    for group in groups:
        assert offsets.known(group) == [(TOPIC, 0)]
        assert offsets.will_change(group)
    assert Name.compared < len(groups)


def test_a_change_is_announced_until_it_is_withdrawn_as_often() -> None:
    offsets = Offsets(Holdings(Account(1 << 20)))
    first: Changes = {(TOPIC, 0): None, (TOPIC, 1): None}
    second: Changes = {(TOPIC, 1): None}
    offsets.announce(GROUP, first)
    offsets.announce(GROUP, second)
    offsets.withdraw(GROUP, first)
    assert offsets.known(GROUP) == [(TOPIC, 1)]
    assert (offsets.is_announced(GROUP, (TOPIC, 0)), offsets.is_announced(GROUP, (TOPIC, 1))) == (False, True)
    offsets.withdraw(GROUP, second)
    assert not offsets.will_change(GROUP)
    assert offsets.groups() == []
