"""OffsetCommit and OffsetFetch: checks commits, stores offsets, and returns them."""

from collections.abc import Callable
from dataclasses import dataclass

from broker.errors import ErrorCode, ProtocolError
from broker.groups.group import Group, GroupState
from broker.groups.group_effects import Outbox
from broker.groups.group_settings import GroupSettings
from broker.groups.groups import Groups
from broker.groups.members import find
from broker.groups.memory_quota import ANSWER_BYTES, COMMIT_BYTES, Holdings, MemoryKind, sized
from broker.groups.offsets import CommittedOffset, Offsets, TopicPartition, offset_size
from broker.groups.timers import MemberSessions
from broker.protocol.messages.offset_apis import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
)
from broker.protocol.schema import Topic

NO_OFFSET = -1
LATEST_MS = (1 << 63) - 1  # the latest timestamp of a record


@dataclass(eq=False)
class Commits:
    """Stores offsets for groups. A group that only stores offsets needs no members (`generation` -1)."""

    _settings: GroupSettings
    _holdings: Holdings
    _groups: Groups
    _offsets: Offsets
    _outbox: Outbox
    _sessions: MemberSessions
    _wall_ms: Callable[[], int]
    _knows: Callable[[str, int], bool]

    def commit(self, now: float, ticket: int, request: OffsetCommitRequest) -> None:
        """Check, append, and answer when the offsets are committed."""
        try:
            group = self._checked(now, request)
        except ProtocolError as error:
            self._outbox.reply(ticket, answer_to_all(request, error.code))
            return
        response = OffsetCommitResponse()
        accepted: list[OffsetCommitResponsePartition] = []
        changes: dict[TopicPartition, CommittedOffset] = {}
        for topic in request.topics:
            answers = Topic[OffsetCommitResponsePartition](topic.name)
            response.topics.append(answers)
            for partition in topic.partitions:
                partition_answer = OffsetCommitResponsePartition(
                    partition.partition_index, self._problem(topic.name, partition)
                )
                answers.partitions.append(partition_answer)
                if partition_answer.error_code == ErrorCode.NONE:
                    accepted.append(partition_answer)
                    changes[topic.name, partition.partition_index] = self._offset(partition, request.retention_time_ms)
        if not changes:
            self._outbox.reply(ticket, response)
            return
        self._append(ticket, group, changes, response, accepted)

    def _append(
        self,
        ticket: int,
        group: Group,
        changes: dict[TopicPartition, CommittedOffset],
        response: OffsetCommitResponse,
        accepted: list[OffsetCommitResponsePartition],
    ) -> None:
        def answer(error: ErrorCode) -> None:
            for partition in accepted:
                partition.error_code = error
            self._outbox.reply(ticket, response)

        size = _size(response) + sum(offset_size(partition, offset) for partition, offset in changes.items())
        try:
            self._holdings.admit_commit(size, self._growth(group, changes))
        except ProtocolError as error:
            answer(error.code)
            return
        records = [offset.as_record(group.id, partition) for partition, offset in changes.items()]
        if group.kind is MemoryKind.NEWCOMERS:
            group.becomes(MemoryKind.OFFSETS)
        self._groups.keep(group)
        self._offsets.announce(group.id, changes)
        self._holdings.book(MemoryKind.COMMITS, size)
        replaced = [partition for partition in self._offsets.overdue(group.id) if partition in changes]

        def committed(_now: float) -> None:
            self._holdings.book(MemoryKind.COMMITS, -size)
            self._offsets.make(group.id, changes)
            self._offsets.settle(group.id, replaced)
            answer(ErrorCode.NONE)

        def refused(_now: float, error: ErrorCode) -> None:
            self._holdings.book(MemoryKind.COMMITS, -size)
            self._offsets.withdraw(group.id, changes)
            self._groups.remove_if_idle(group)
            answer(ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error is ErrorCode.MESSAGE_TOO_LARGE else error)

        def late(_now: float, error: ErrorCode) -> None:
            answer(error)  # the batch is in the log and may still be committed

        self._outbox.append(records, committed=committed, refused=refused, late=late)

    def _growth(self, group: Group, changes: dict[TopicPartition, CommittedOffset]) -> int:
        """By how many bytes the offsets grow once this is committed; offsets that shrink do not count."""
        names = group.size if group.kind is MemoryKind.NEWCOMERS else 0
        return names + sum(
            max(self._offsets.growth(group.id, {partition: offset}), 0) for partition, offset in changes.items()
        )

    def _checked(self, now: float, request: OffsetCommitRequest) -> Group:
        """The group, if the sender may commit. Raises `ProtocolError`."""
        generation = request.generation_id_or_member_epoch
        group = self._groups.get(request.group_id)
        if group is None:
            if generation >= 0:
                raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
            return Group(request.group_id)
        if generation < 0 and group.state is GroupState.EMPTY:
            return group  # a consumer that assigns its partitions without the group
        if generation >= 0 or request.member_id or request.group_instance_id is not None:
            member = find(group, request.member_id, request.group_instance_id)
            if generation != group.generation:
                raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
            if group.state is GroupState.COMPLETING_REBALANCE:
                # The members have no assignment yet: the offsets of this commit were read under an older one.
                raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
            self._sessions.heard(now, group, member)
            return group
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)  # only members may commit in a group with members

    def _problem(self, topic: str, partition: OffsetCommitRequestPartition) -> ErrorCode:
        if not self._knows(topic, partition.partition_index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len((partition.committed_metadata or "").encode()) > self._settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _offset(self, partition: OffsetCommitRequestPartition, retention_ms: int) -> CommittedOffset:
        now_ms = self._wall_ms()
        return CommittedOffset(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_ms=now_ms,
            expire_ms=min(now_ms + retention_ms, LATEST_MS) if retention_ms >= 0 else -1,
        )

    def fetch(self, requested_group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """The committed offsets of a group for the named partitions, or for all; -1 without an offset."""
        offsets = self._offsets.of(requested_group.group_id)
        response = OffsetFetchResponseGroup(group_id=requested_group.group_id)
        if requested_group.topics is None:
            partitions_by_topic: dict[str, list[int]] = {}
            for topic, partition in sorted(offsets):
                partitions_by_topic.setdefault(topic, []).append(partition)
        else:
            partitions_by_topic = {topic.name: topic.partition_indexes for topic in requested_group.topics}
        for name, partitions in partitions_by_topic.items():
            partition_offsets = [_shown(index, offsets.get((name, index))) for index in partitions]
            response.topics.append(Topic(name, partition_offsets))
        return response


def answer_to_all(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """The same answer for every partition."""
    return OffsetCommitResponse(
        topics=[
            Topic(
                topic.name,
                [OffsetCommitResponsePartition(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _size(response: OffsetCommitResponse) -> int:
    """The bytes that a commit holds until it is answered, apart from its offsets."""
    names = [topic.name for topic in response.topics]
    entries = len(names) + sum(len(topic.partitions) for topic in response.topics)
    return sized(0, COMMIT_BYTES + ANSWER_BYTES * entries, names)


def _shown(index: int, offset: CommittedOffset | None) -> OffsetFetchResponsePartition:
    if offset is None:
        return OffsetFetchResponsePartition(index, NO_OFFSET, -1, "", ErrorCode.NONE)
    return OffsetFetchResponsePartition(index, offset.offset, offset.leader_epoch, offset.metadata, ErrorCode.NONE)
