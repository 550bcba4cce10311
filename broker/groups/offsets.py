"""The committed offsets of groups, as far as the log has them committed."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from broker.groups.memory_quota import OFFSET_BYTES, OFFSET_LEAST, Holdings, MemoryKind, sized
from broker.protocol.messages.group_records import LogRecord, OffsetCommitKey, OffsetCommitValue, record

TopicPartition = tuple[str, int]


class CommittedOffset(NamedTuple):
    """The position of a group in a partition. Times in ms since 1970; `expire_ms` -1: by the retention time."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1

    def as_record(self, group: str, partition: TopicPartition) -> LogRecord:
        value = OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_ms,
            expire_timestamp=self.expire_ms,
        )
        return record(OffsetCommitKey(group, *partition), value)


Changes = Mapping[TopicPartition, CommittedOffset | None]
"""New offsets by partition; None removes one."""


class Offsets:
    """The offsets by group. A change is announced when it is appended and made when it is committed, in log order, so
    that no client reads an offset that a fail-over could undo. Committed offsets count as held; pending changes are
    counted by the code that appends them."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._announced: dict[str, dict[TopicPartition, int]] = {}
        self._overdue: dict[str, list[TopicPartition]] = {}

    def of(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The committed offsets of a group."""
        return self._committed.get(group, {})

    def known(self, group: str) -> list[TopicPartition]:
        """The partitions for which a group has an offset or a pending change."""
        return list(dict.fromkeys([*self.of(group), *self._announced.get(group, {})]))

    def groups(self) -> list[str]:
        """Groups that have offsets or a pending change."""
        return list(dict.fromkeys([*self._committed, *self._announced]))

    def is_announced(self, group: str, partition: TopicPartition) -> bool:
        """Whether a change of this offset is pending."""
        return partition in self._announced.get(group, {})

    def will_change(self, group: str) -> bool:
        """Whether a change of any of a group's offsets is pending."""
        return group in self._announced

    def announce(self, group: str, changes: Changes) -> None:
        for partition in changes:
            announced = self._announced.setdefault(group, {})
            announced[partition] = announced.get(partition, 0) + 1

    def withdraw(self, group: str, changes: Changes) -> None:
        """The announced changes were not appended."""
        for partition in changes:
            announced = self._announced[group]
            announced[partition] -= 1
            if not announced[partition]:
                del announced[partition]
            if not announced:
                del self._announced[group]

    def make(self, group: str, changes: Changes) -> None:
        """The announced changes are committed."""
        self.withdraw(group, changes)
        self.apply(group, changes)

    def growth(self, group: str, changes: Changes) -> int:
        """By how many bytes a group's offsets grow with these changes; negative: they shrink."""
        offsets = self.of(group)
        return sum(
            offset_size(partition, offset) - offset_size(partition, offsets.get(partition))
            for partition, offset in changes.items()
        )

    # --- removals that the log has refused

    def put_off(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Remember offsets whose removal must be tried again later."""
        self._overdue[group] = list(dict.fromkeys([*self.overdue(group), *partitions]))

    def overdue(self, group: str) -> list[TopicPartition]:
        return self._overdue.get(group, [])

    def take_overdue(self) -> dict[str, list[TopicPartition]]:
        """All remembered removals by group; the caller must handle them."""
        overdue, self._overdue = self._overdue, {}
        return overdue

    def settle(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Forget remembered removals: other offsets have replaced these."""
        if partitions:
            self._overdue[group] = [partition for partition in self.overdue(group) if partition not in partitions]

    # --- the log

    def apply(self, group: str, changes: Changes) -> None:
        """Apply changes that are in the log."""
        offsets = self._committed.setdefault(group, {})
        self._holdings.book(MemoryKind.OFFSETS, self.growth(group, changes))
        for partition, offset in changes.items():
            if offset is None:
                offsets.pop(partition, None)
            else:
                offsets[partition] = offset
        if not offsets:
            del self._committed[group]


def offset_size(partition: TopicPartition, offset: CommittedOffset | None) -> int:
    """The bytes of an offset; 0 for None."""
    return 0 if offset is None else sized(OFFSET_LEAST, OFFSET_BYTES, (partition[0], offset.metadata))


def removals(group: str, changes: Changes) -> list[LogRecord]:
    """The records that remove offsets."""
    return [record(OffsetCommitKey(group, *partition), None) for partition in changes]
