"""Which replicas of a partition may lead it: ISR, eligible leader replicas, last known ELR (KIP-966). Pure.

- ISR: available, and holds everything that is or may be committed. It is empty only while the partition has no leader.
- ELR: left the ISR when the ISR had, or thereby got, fewer than `min.insync.replicas` members. Below that number
  nothing is committed, so such a replica still holds everything committed, reachable or not. The ELR becomes empty when
  the ISR is large enough again: from then on more may be committed without its members.
- Last known ELR: was in ISR or ELR and has shut down uncleanly since. What it had in the page cache may be lost. If ISR
  and ELR are empty, the most complete of these logs is the best that is left. The last leader is named first.

The three are disjoint. Everything committed is on every member of ISR and ELR. If both are empty, it is on every member
of the last known ELR that has lost nothing.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from broker.controller.image import PartitionImage
from broker.protocol.messages.metadata_records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    PartitionChangeRecord,
)

RECOVERED, RECOVERING = 0, 1


@dataclass(frozen=True)
class IsrMembership:
    """The replicas that may lead a partition, and those that possibly still hold everything committed."""

    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


def effective_min_insync(partition: PartitionImage, min_insync_replicas: int) -> int:
    """As in Kafka: a partition with fewer replicas than `min.insync.replicas` can still be written."""
    return min(min_insync_replicas, len(partition.replicas))


def membership_after(
    partition: PartitionImage, isr: Iterable[int], min_insync_replicas: int, unclean: Collection[int] = ()
) -> IsrMembership:
    """The membership when the ISR becomes `isr`; `unclean` replicas lost an unknown part in an unclean shutdown."""
    members = tuple(isr)
    if len(members) >= effective_min_insync(partition, min_insync_replicas):
        return IsrMembership(members)
    holders = [*partition.elr, *(replica for replica in partition.isr if replica not in partition.elr)]
    elr = tuple(replica for replica in holders if replica not in members and replica not in unclean)
    candidates = dict.fromkeys([*holders, *partition.last_known_elr])
    lost = [replica for replica in candidates if replica not in members and replica not in elr]
    lost.sort(key=lambda replica: replica != partition.leader)
    return IsrMembership(members, elr, tuple(lost))


def first_of(replicas: Iterable[int], members: Collection[int], available: Callable[[int], bool]) -> int:
    """The first replica of the assignment that is in `members` and available; -1 without one."""
    return next((replica for replica in replicas if replica in members and available(replica)), NO_LEADER)


def change_record(
    topic_id: bytes,
    index: int,
    partition: PartitionImage,
    members: IsrMembership,
    *,
    leader: int = NO_LEADER_CHANGE,
    recovery: int = NO_RECOVERY_CHANGE,
) -> PartitionChangeRecord | None:
    """The record that changes a partition to this state; None if it has it already. Naming a leader raises its
    epoch."""
    record = PartitionChangeRecord(index, topic_id, leader=leader)
    if members.isr != partition.isr:
        record.isr = list(members.isr)
    if members.elr != partition.elr:
        record.eligible_leader_replicas = list(members.elr)
    if members.last_known_elr != partition.last_known_elr:
        record.last_known_elr = list(members.last_known_elr)
    if recovery not in (NO_RECOVERY_CHANGE, int(partition.recovering)):
        record.leader_recovery_state = recovery
    return None if record == PartitionChangeRecord(index, topic_id) else record
