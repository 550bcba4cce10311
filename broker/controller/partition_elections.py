"""Elects partition leaders when brokers come and go, or on request. Pure: takes an image, returns records.

Invariants: a leader is available and in the ISR; only available brokers are in the ISR. Elections are tried in this
order; each takes the first available replica in the order of the assignment (with `tiered.replicas.lead.last.enable`,
1 takes replicas that started after the last tiered offset last):

1. of the ISR, or if it is empty, of the eligible leader replicas (KIP-966): clean, nothing committed is lost;
2. if both are empty and every member of the last known ELR has reported the end of its log: the most complete of them;
3. of all replicas, if `unclean.leader.election.enable` or a client's ElectLeaders allows it.

If a leadership moves while its holder is alive, no replica gets it before the holder's lease is over (`handovers`,
H31). After 2 and 3 the ISR is the leader alone, which must recover before it serves requests (KIP-704).

Handovers: leadership moves from a broker that is alive. Decides when another replica may be elected.

Theory of operation. A broker acts as a leader under its lease. It may not know yet that it no longer leads a partition,
and then still answers reads for it. So a leadership moves in two steps. The first record takes the partition from its
leader; it has no leader then. The second record names the new leader, once the old one has reported that it applied the
first record, or its lease has ended. Until the old leader has reported that, its lease is not renewed, even when
another broker leads already, because both would answer. A new controller does not know which partitions an earlier one
took from which broker, so every broker must report that it applied all earlier records.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from broker.controller.image import MetadataImage, PartitionImage, TopicImage
from broker.mutants import Mutants
from broker.protocol.messages.broker_apis import TieredStarts
from broker.protocol.messages.metadata_records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    PartitionChangeRecord,
)
from broker.topic_settings import LEAD_LAST, is_on

Key = tuple[str, int]
_UNKNOWN = -1


@dataclass
class _Handover:
    """`broker`: the former leader, -1 if unknown. `offset`: of the record that took the partition from it, -1 before
    the commit. `ends_at`: when the last lease of the former leader has ended by any clock, in seconds of the loop's
    clock."""

    broker: int
    offset: int = _UNKNOWN
    ends_at: float = float("inf")
    electing: bool = False


class Handovers:
    """The open handovers of a controller's term."""

    def __init__(self) -> None:
        self._open: dict[Key, _Handover] = {}
        self._known_by_all = _UNKNOWN  # every broker must apply the records of earlier controllers, up to this offset
        self._known_by: dict[int, int] = {}  # by broker: the offset of the last record that took a leadership from it
        self._waiters: list[asyncio.Future[None]] = []

    def holds(self, key: Key) -> bool:
        """Whether no replica may be elected yet."""
        return key in self._open

    def begin_term(self, offset: int) -> None:
        """This controller's term starts at this offset of the metadata log."""
        self._known_by_all = offset

    def begin(self, key: Key, broker: int) -> None:
        """A record that takes a partition from its leader is about to be committed."""
        self._open[key] = _Handover(broker)

    def begin_after(self, key: Key, ends_at: float) -> None:
        """An earlier controller may have taken a partition from a leader whose lease lasts until `ends_at`."""
        self._open[key] = _Handover(_UNKNOWN, 0, ends_at)

    def applied(self, image: MetadataImage, lease_ends_at: Callable[[int], float | None]) -> None:
        """Records were committed. `lease_ends_at`: the end of a broker's lease, None without one."""
        for key, handover in list(self._open.items()):
            partition = image.partition(*key)
            if handover.offset == _UNKNOWN:
                self._known_by[handover.broker] = image.offset
            if partition is None or partition.leader != NO_LEADER:
                self._close(key)
            elif handover.offset == _UNKNOWN:
                handover.offset = image.offset
                ends_at = lease_ends_at(handover.broker)
                handover.ends_at = float("-inf") if ends_at is None else ends_at

    def lease_over(self, broker: int) -> None:
        """The broker no longer acts as a leader."""
        for handover in self._open.values():
            if handover.broker == broker and handover.offset != _UNKNOWN:
                handover.ends_at = float("-inf")

    def heard(self, broker: int, metadata_offset: int) -> bool:
        """A broker has applied the metadata log up to an offset. Returns whether it has applied all records that took a
        leadership from it; otherwise its lease must not be renewed."""
        knows = metadata_offset >= max(self._known_by_all, self._known_by.get(broker, _UNKNOWN))
        for handover in self._open.values():
            if handover.broker != broker:
                continue
            if handover.offset == _UNKNOWN or metadata_offset < handover.offset:
                knows = False
            else:
                handover.ends_at = float("-inf")
        return knows

    def take_over(self, now: float) -> list[Key]:
        """The partitions for which another leader may be elected now; each is returned once."""
        over = sorted(key for key, handover in self._open.items() if handover.ends_at <= now and not handover.electing)
        for key in over:
            self._open[key].electing = True
        return over

    def put_off(self, keys: Iterable[Key], until: float) -> None:
        """The election for these failed; `take_over` returns them again at `until`."""
        for key in keys:
            if key in self._open:
                self._open[key].electing, self._open[key].ends_at = False, until

    def give_up(self, key: Key) -> None:
        """No replica can lead the partition now; any that returns later may."""
        self._close(key)

    def next_end(self) -> float | None:
        """The latest possible end of the next handover; None without one."""
        ends = (
            handover.ends_at
            for handover in self._open.values()
            if not handover.electing and handover.ends_at < float("inf")
        )
        return min(ends, default=None)

    def clear(self) -> None:
        """The term is over."""
        self._known_by_all = _UNKNOWN
        self._known_by.clear()
        for key in list(self._open):
            self._close(key)

    async def all_over(self) -> None:
        """Return when no partition waits for a leader."""
        while self._open:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def _close(self, key: Key) -> None:
        del self._open[key]
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class LogEnd(NamedTuple):
    """The end of a replica's log. Of two logs the larger one holds everything committed that is left in either."""

    last_epoch: int
    end_offset: int


class Elected(NamedTuple):
    """The outcome of an election; `leader` is -1 when no replica can lead."""

    leader: int
    members: IsrMembership
    recovery: int = NO_RECOVERY_CHANGE


class TieredStartsOfBrokers:
    """Which replicas started after the last tiered offset, and so are the last choice as leaders (KIP-1023).

    Such a replica has few local records, and would read the others from remote storage. Brokers report these replicas
    with every heartbeat. The controller keeps the latest report of each broker's current registration in memory; a new
    controller has them after one heartbeat of each broker. They only order replicas that have everything that is
    committed, in elections from the ISR or the ELR and at the end of a reassignment: which replicas may lead does not
    depend on them. An election of the preferred leader is refused while that replica is the last choice. An unclean
    election does not use the reports: only what a replica has counts there.
    """

    def __init__(self) -> None:
        self._reports: dict[int, tuple[int, frozenset[tuple[bytes, int]]]] = {}

    def reported(self, broker: int, broker_epoch: int, starts: Iterable[TieredStarts]) -> None:
        """Replace a broker's report."""
        partitions = frozenset((topic.topic_id, index) for topic in starts for index in topic.partitions)
        self._reports[broker] = (broker_epoch, partitions)

    def last(self, partition: tuple[bytes, int], replicas: Sequence[int]) -> list[int]:
        """The replicas, those that started after the last tiered offset behind the others."""
        return sorted(replicas, key=lambda broker: partition in self._reports.get(broker, (0, frozenset()))[1])


class Elections:
    """The rules, with a broker's defaults for settings that neither the topic nor the cluster has."""

    def __init__(self, config: BrokerConfig, mutants: Mutants) -> None:
        self._config = config
        self.handovers = Handovers()
        self.tiered_starts = TieredStartsOfBrokers()
        self._moves_under_lease = mutants.active("moves_under_lease")
        self._clean_recovery_state = RECOVERED if mutants.active("recovery_flag_lost") else NO_RECOVERY_CHANGE
        self.isr_grows_while_recovering = mutants.active("isr_grows_while_recovering")
        self.takes_stale_partition_epochs = mutants.active("stale_partition_epoch_ok")
        self.takes_stale_broker_epochs = mutants.active("stale_broker_epoch_ok")
        self.removed_leader_stays = mutants.active("removed_leader_stays")
        self.takes_fenced = mutants.active("fenced_in_isr")
        self._last_known_leader_leads = mutants.active("last_known_leader_leads")
        self._unclean_keeps_isr = mutants.active("unclean_keeps_isr")

    def successor(self, image: MetadataImage, key: tuple[str, int], leader: int, successor: int) -> int:
        """The leader in the record that takes a partition from `leader`: none while `leader` may still act."""
        if self.handovers.holds(key):
            return NO_LEADER
        if self._moves_under_lease or successor == leader or leader == NO_LEADER or not image.is_available(leader):
            return successor
        self.handovers.begin(key, leader)
        return NO_LEADER

    def after_handovers(self, image: MetadataImage, keys: Iterable[tuple[str, int]]) -> list[PartitionChangeRecord]:
        """Elect for partitions whose former leaders' leases are over."""
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
        """The membership of a partition when its ISR is `isr` and `unclean` have shut down uncleanly."""
        return membership_after(partition, isr, topic.settings(self._config).min_insync_replicas, unclean)

    # --- brokers come and go

    def broker_leaves(
        self, image: MetadataImage, broker_id: int, *, unclean: bool = False, bump_all: bool = False
    ) -> list[PartitionChangeRecord]:
        """The changes that remove a broker from every ISR and every leadership.

        `unclean`: it may have lost what it had not synced, so it is not eligible anywhere. `bump_all` raises the leader
        epoch of every partition that it was in, even if another broker continues to lead.
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
            # A handover whose record was never committed holds nothing.
            is_held = partition.leader == NO_LEADER and self.handovers.holds((topic.name, index))
            is_led = partition.leader not in (broker_id, NO_LEADER) or is_held
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
        """The changes when a broker becomes available: it leads partitions without a leader, where it may."""

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

    # --- requested elections

    def most_complete(self, topic: TopicImage, index: int, ends: Mapping[int, LogEnd]) -> list[PartitionChangeRecord]:
        """Elect the member of the last known ELR with the most complete log; no election unless all members are in
        `ends`.

        The others stay in the last known ELR while the leader recovers: if the leader loses its log before that is
        flushed, theirs are again the best that is left.
        """
        partition = topic.partitions[index]
        candidates = partition.last_known_elr
        if not waits_for_logs(partition) or candidates == () or not set(candidates) <= ends.keys():
            return []
        leader = candidates[0] if self._last_known_leader_leads else max(candidates, key=lambda replica: ends[replica])
        other_candidates = tuple(replica for replica in candidates if replica != leader)
        members = self._settled(topic, partition, IsrMembership((leader,), (), other_candidates))
        record = change_record(topic.id, index, partition, members, leader=leader, recovery=RECOVERING)
        return [] if record is None else [record]

    def unclean(self, image: MetadataImage, topic: TopicImage, index: int) -> PartitionChangeRecord | None:
        """Elect any available replica for a partition without a leader; None if all are unavailable."""
        partition = topic.partitions[index]
        members = IsrMembership(partition.isr, partition.elr, partition.last_known_elr)
        elected = self._elect(topic, partition, members, image.is_available, unclean_allowed=True)
        return None if elected.leader == NO_LEADER else _elected(topic, index, partition, elected)

    def will_be_led(self, image: MetadataImage, topic: TopicImage, index: int) -> bool:
        """Whether a partition that waits for the end of a lease will get a leader automatically."""
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
        leader = first_of(self._in_order(topic, partition, members.isr), members.isr, available)
        if leader != NO_LEADER:
            return Elected(leader, members, self._clean_recovery_state)
        leader = first_of(self._in_order(topic, partition, members.elr), members.elr, available)
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
                # From now on the leader's log defines the content of the partition: no other replica is eligible
                # (K704-1).
                kept_replicas = (
                    tuple(replica for replica in members.elr if replica != leader) if self._unclean_keeps_isr else ()
                )
                return Elected(leader, IsrMembership((leader,), kept_replicas), RECOVERING)
        return Elected(NO_LEADER, members)

    def in_order(self, topic: TopicImage, index: int, replicas: Sequence[int], among: Sequence[int]) -> Sequence[int]:
        """The replicas in the order in which those of `among`, all with everything that is committed, are elected."""
        if len(among) < 2 or not is_on(LEAD_LAST, topic.defaults, self._config):
            return replicas
        return self.tiered_starts.last((topic.id, index), replicas)

    def _in_order(self, topic: TopicImage, partition: PartitionImage, among: Sequence[int]) -> Sequence[int]:
        if len(among) < 2:
            return partition.replicas
        index = next((index for index, topic_partition in topic.partitions.items() if topic_partition is partition), -1)
        return self.in_order(topic, index, partition.replicas, among)

    def _settled(self, topic: TopicImage, partition: PartitionImage, members: IsrMembership) -> IsrMembership:
        """No replica outside a large enough ISR is eligible, because more may be committed without it."""
        minimum = effective_min_insync(partition, topic.settings(self._config).min_insync_replicas)
        return IsrMembership(members.isr) if len(members.isr) >= minimum else members


def waits_for_logs(partition: PartitionImage) -> bool:
    """Whether the partition has no leader and no certain holder of what was committed, so that logs must be
    compared."""
    return partition.leader == NO_LEADER and not partition.isr and not partition.elr


def same_leader_in_next_epoch(image: MetadataImage, broker_id: int) -> list[PartitionChangeRecord]:
    """A new epoch for every partition that a broker leads; the broker continues to lead it (K101-10)."""
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
