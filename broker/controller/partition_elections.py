"""Who leads a partition when brokers come and go, or when somebody asks for it. Pure: an image in, records out.

Invariants: a leader is available and in the ISR; only available brokers are in the ISR. Elections are tried in this
order, each from the first of the assignment on that is available:

1. of the ISR; when that is empty, of the eligible leader replicas (KIP-966): clean, nothing that is committed is lost;
2. where both are empty and every member of the last known ELR has told where its log ends: the most complete of them;
3. of all replicas, where `unclean.leader.election.enable` or a client's ElectLeaders allows it.

A leadership that moves while its holder lives is given to nobody before that holder's lease is over (`handovers`, H31).
After 2 and 3 the ISR is the leader alone, which must recover before it serves anyone (KIP-704).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from broker.config import BrokerConfig
from broker.controller.eligibility import (
    RECOVERED,
    RECOVERING,
    IsrMembership,
    change_record,
    effective_min_insync,
    first_of,
    membership_after,
)
from broker.controller.handovers import Handovers
from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.mutants import Mutants
from broker.protocol.messages.metadata_records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    PartitionChangeRecord,
)


class LogEnd(NamedTuple):
    """Where a replica's log ends. Of two logs the larger one holds all that was committed and is left in either."""

    last_epoch: int
    end_offset: int


class Elected(NamedTuple):
    """The outcome of an election; `leader` is -1 when nobody can lead."""

    leader: int
    members: IsrMembership
    recovery: int = NO_RECOVERY_CHANGE


class Elections:
    """The rules, with a broker's defaults for what neither topics nor the whole cluster set."""

    def __init__(self, config: BrokerConfig, mutants: Mutants) -> None:
        self._config = config
        self.handovers = Handovers()
        self._moves_under_lease = mutants.active("moves_under_lease")
        self._clean_recovery_state = RECOVERED if mutants.active("recovery_flag_lost") else NO_RECOVERY_CHANGE
        self.isr_grows_while_recovering = mutants.active("isr_grows_while_recovering")
        self.takes_stale_partition_epochs = mutants.active("stale_partition_epoch_ok")
        self.takes_stale_broker_epochs = mutants.active("stale_broker_epoch_ok")
        self.takes_fenced = mutants.active("fenced_in_isr")
        self._last_known_leader_leads = mutants.active("last_known_leader_leads")
        self._unclean_keeps_isr = mutants.active("unclean_keeps_isr")

    def successor(self, image: MetadataImage, key: tuple[str, int], leader: int, successor: int) -> int:
        """Whom the record names that takes a partition from `leader`: nobody, as long as that one may act."""
        if self.handovers.holds(key):
            return NO_LEADER
        if self._moves_under_lease or successor == leader or leader == NO_LEADER or not image.is_available(leader):
            return successor
        self.handovers.begin(key, leader)
        return NO_LEADER

    def after_handovers(self, image: MetadataImage, keys: Iterable[tuple[str, int]]) -> list[PartitionChangeRecord]:
        """Elect, for partitions whose leaders' leases are over."""
        records = []
        for name, index in keys:
            topic, partition = image.topics.get(name), image.partition(name, index)
            if topic is None or partition is None or partition.leader != NO_LEADER:
                continue
            members = IsrMembership(partition.isr, partition.elr, partition.last_known_elr)
            elected = self._elect(topic, partition, members, image.is_available)
            record = _elected(topic, index, partition, elected)
            if record is None or elected.leader == NO_LEADER:
                self.handovers.give_up((name, index))
            if record is not None:
                records.append(record)
        return records

    def membership(
        self, topic: TopicImage, partition: PartitionImage, isr: tuple[int, ...], *unclean: int
    ) -> IsrMembership:
        """The membership of a partition once its ISR is `isr` and `unclean` have shut down uncleanly."""
        return membership_after(partition, isr, topic.settings(self._config).min_insync_replicas, unclean)

    # --- brokers come and go

    def broker_leaves(
        self, image: MetadataImage, broker_id: int, *, unclean: bool = False, bump_all: bool = False
    ) -> list[PartitionChangeRecord]:
        """The changes that take a broker out of every ISR and off every leadership.

        `unclean`: it may have lost what it had not synced, so it is eligible nowhere. `bump_all` raises the leader
        epoch of every partition that it was in, even where another broker goes on leading.
        """

        def available(replica: int) -> bool:
            return replica != broker_id and image.is_available(replica)

        lost = (broker_id,) if unclean else ()
        records = []
        for topic, index, partition in image.partitions():
            was_in_sync = broker_id in partition.isr
            if not was_in_sync and not (unclean and broker_id in partition.elr):
                continue
            isr = tuple(member for member in partition.isr if member != broker_id)
            members = self.membership(topic, partition, isr, *lost)
            # One whose record was never committed holds nothing.
            held = partition.leader == NO_LEADER and self.handovers.holds((topic.name, index))
            is_led = partition.leader not in (broker_id, NO_LEADER) or held
            if not is_led:
                elected = self._elect(topic, partition, members, available)
                record = _elected(topic, index, partition, elected)
            else:
                bumped = bump_all and was_in_sync and partition.leader != NO_LEADER
                leader = partition.leader if bumped else NO_LEADER_CHANGE
                record = change_record(topic.id, index, partition, members, leader=leader)
            if record is not None:
                records.append(record)
        return records

    def broker_returns(self, image: MetadataImage, broker_id: int) -> list[PartitionChangeRecord]:
        """The changes once a broker has become available: it leads what nobody leads, where it may."""

        def available(replica: int) -> bool:
            return replica == broker_id or image.is_available(replica)

        records = []
        for topic, index, partition in image.partitions():
            if partition.leader != NO_LEADER or broker_id not in partition.replicas:
                continue
            if self.handovers.holds((topic.name, index)):
                continue
            members = IsrMembership(partition.isr, partition.elr, partition.last_known_elr)
            elected = self._elect(topic, partition, members, available)
            record = _elected(topic, index, partition, elected)
            if record is not None:
                records.append(record)
        return records

    # --- elections that are asked for

    def most_complete(self, topic: TopicImage, index: int, ends: Mapping[int, LogEnd]) -> list[PartitionChangeRecord]:
        """Elect the member of the last known ELR whose log holds most; nothing unless all of them are in `ends`.

        The others stay known as long as the leader recovers: should it lose its log before that is flushed, theirs is
        again the best that is left.
        """
        partition = topic.partitions[index]
        known = partition.last_known_elr
        if not waits_for_logs(partition) or known == () or not set(known) <= ends.keys():
            return []
        leader = known[0] if self._last_known_leader_leads else max(known, key=lambda replica: ends[replica])
        others = tuple(replica for replica in known if replica != leader)
        members = self._settled(topic, partition, IsrMembership((leader,), (), others))
        record = change_record(topic.id, index, partition, members, leader=leader, recovery=RECOVERING)
        return [] if record is None else [record]

    def unclean(self, image: MetadataImage, topic: TopicImage, index: int) -> PartitionChangeRecord | None:
        """Elect whoever is available, for a partition that nobody leads; None when nobody is."""
        partition = topic.partitions[index]
        members = IsrMembership(partition.isr, partition.elr, partition.last_known_elr)
        elected = self._elect(topic, partition, members, image.is_available, unclean_allowed=True)
        return None if elected.leader == NO_LEADER else _elected(topic, index, partition, elected)

    def will_be_led(self, image: MetadataImage, topic: TopicImage, index: int) -> bool:
        """Whether somebody is going to lead without being asked, of a partition that waits for a lease to end."""
        partition = topic.partitions[index]
        members = IsrMembership(partition.isr, partition.elr, partition.last_known_elr)
        return self._elect(topic, partition, members, image.is_available).leader != NO_LEADER

    def _elect(
        self,
        topic: TopicImage,
        partition: PartitionImage,
        members: IsrMembership,
        available: Callable[[int], bool],
        *,
        unclean_allowed: bool | None = None,
    ) -> Elected:
        leader = first_of(partition.replicas, members.isr, available)
        if leader != NO_LEADER:
            return Elected(leader, members, self._clean_recovery_state)
        leader = first_of(partition.replicas, members.elr, available)
        if leader != NO_LEADER and not members.isr:
            elr = tuple(replica for replica in members.elr if replica != leader)
            alone = IsrMembership((leader,), elr, members.last_known_elr)
            return Elected(leader, self._settled(topic, partition, alone), self._clean_recovery_state)
        if unclean_allowed is None:
            unclean_allowed = topic.settings(self._config).unclean_leader_election
        if unclean_allowed:
            leader = first_of(members.last_known_elr, partition.replicas, available)
            if leader == NO_LEADER:
                leader = first_of(partition.replicas, partition.replicas, available)
            if leader != NO_LEADER:
                # The leader's log is what the partition holds from here on: nobody else is eligible (K704-1).
                kept = tuple(replica for replica in members.elr if replica != leader) if self._unclean_keeps_isr else ()
                return Elected(leader, IsrMembership((leader,), kept), RECOVERING)
        return Elected(NO_LEADER, members)

    def _settled(self, topic: TopicImage, partition: PartitionImage, members: IsrMembership) -> IsrMembership:
        """Nobody outside an ISR that is large enough is eligible: more may be committed without them."""
        minimum = effective_min_insync(partition, topic.settings(self._config).min_insync_replicas)
        return IsrMembership(members.isr) if len(members.isr) >= minimum else members


def waits_for_logs(partition: PartitionImage) -> bool:
    """Whether nobody leads and nobody is certain to hold what was committed: what is left must be looked for."""
    return partition.leader == NO_LEADER and not partition.isr and not partition.elr


def same_leader_in_next_epoch(image: MetadataImage, broker_id: int) -> list[PartitionChangeRecord]:
    """Every partition that a broker leads: it goes on leading, in a new epoch (K101-10)."""
    return [
        PartitionChangeRecord(index, topic.id, leader=broker_id)
        for topic, index, partition in image.partitions()
        if partition.leader == broker_id
    ]


def _elected(
    topic: TopicImage, index: int, partition: PartitionImage, elected: Elected
) -> PartitionChangeRecord | None:
    leader = NO_LEADER_CHANGE if elected.leader == partition.leader else elected.leader
    return change_record(topic.id, index, partition, elected.members, leader=leader, recovery=elected.recovery)
