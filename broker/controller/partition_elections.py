"""Who leads a partition and who is in its ISR when brokers come and go. Pure: an image in, records out.

Invariants: an ISR is never empty; a fenced broker is in an ISR only as its last member, and then nobody leads; a leader
is available and in the ISR. Every election is clean: it chooses from the ISR, in the order of the assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.protocol.messages.metadata_records import NO_LEADER, NO_LEADER_CHANGE, PartitionChangeRecord


def elect(replicas: Iterable[int], isr: Iterable[int], available: Callable[[int], bool]) -> int:
    """The first replica that is in the ISR and available, -1 when there is none."""
    members = set(isr)
    return next((replica for replica in replicas if replica in members and available(replica)), NO_LEADER)


def broker_leaves(image: MetadataImage, broker_id: int, *, bump_all: bool = False) -> list[PartitionChangeRecord]:
    """The changes that take a broker out of every ISR and off every leadership.

    The last member of an ISR stays its only one: it alone may hold what was acknowledged. `bump_all` raises the leader
    epoch of every partition that changes, even where another broker goes on leading.
    """

    def available(replica: int) -> bool:
        return replica != broker_id and image.is_available(replica)

    records = []
    for topic, index, partition in image.partitions():
        if broker_id not in partition.isr and partition.leader != broker_id:
            continue
        isr = tuple(member for member in partition.isr if member != broker_id) or partition.isr
        leader = partition.leader
        if leader == broker_id:
            leader = elect(partition.replicas, isr, available)
        record = _change(topic, index, partition, isr, leader, bump=bump_all and leader != NO_LEADER)
        if record is not None:
            records.append(record)
    return records


def broker_returns(image: MetadataImage, broker_id: int) -> list[PartitionChangeRecord]:
    """The changes once a broker has become available: it leads what nobody leads, where it is in the ISR."""

    def available(replica: int) -> bool:
        return replica == broker_id or image.is_available(replica)

    records = []
    for topic, index, partition in image.partitions():
        if partition.leader == NO_LEADER and broker_id in partition.isr:
            leader = elect(partition.replicas, partition.isr, available)
            records.append(PartitionChangeRecord(index, topic.id, leader=leader))
    return records


def same_leader_in_next_epoch(image: MetadataImage, broker_id: int) -> list[PartitionChangeRecord]:
    """Every partition that a broker leads: it goes on leading, in a new epoch (K101-10)."""
    return [
        PartitionChangeRecord(index, topic.id, leader=broker_id)
        for topic, index, partition in image.partitions()
        if partition.leader == broker_id
    ]


def _change(
    topic: TopicImage, index: int, partition: PartitionImage, isr: tuple[int, ...], leader: int, *, bump: bool
) -> PartitionChangeRecord | None:
    new_isr = None if isr == partition.isr else list(isr)
    if leader == partition.leader and not bump:
        return None if new_isr is None else PartitionChangeRecord(index, topic.id, isr=new_isr, leader=NO_LEADER_CHANGE)
    return PartitionChangeRecord(index, topic.id, isr=new_isr, leader=leader)
