"""The leader of a partition in one leader epoch: progress of the followers, in-sync set, high watermark.

Pure: no I/O, and no clock; times are seconds of the caller's clock. One object lasts one leader epoch. Every follower
starts an epoch as unknown (end -1), so that only fetches of this epoch count.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.mutants import Mutants

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1


@dataclass
class FollowerState:
    """The leader's knowledge of one follower in this epoch."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    last_caught_up: float = float("-inf")
    last_fetch: float = float("-inf")
    leader_end_at_last_fetch: int = UNKNOWN_OFFSET


@dataclass(frozen=True)
class IsrProposal:
    """A change of the ISR, or the end of a recovery, that is in flight to the controller. It applies only to
    `partition_epoch`."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    recovering: bool = False


class PartitionLeader:
    """One leader epoch of one partition. Invariant: `high_watermark` never decreases, and every record below it is on
    every member of the ISR that the controller has or may get (H13).

    `recovering`: it was elected uncleanly. Until the controller has accepted the end of its recovery, it is alone in
    the ISR and commits nothing (K704-4, K704-5).
    """

    def __init__(
        self,
        *,
        node_id: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        leader_epoch: int,
        partition_epoch: int,
        epoch_start_offset: int,
        log_start_offset: int,
        committable_end: int,
        high_watermark: int,
        min_insync_replicas: int,
        lag_time_max: float,
        now: float,
        recovering: bool = False,
        mutants: Mutants | None = None,
    ) -> None:
        self.node_id = node_id
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.epoch_start_offset = epoch_start_offset
        self.log_start_offset = log_start_offset
        mutants = mutants or Mutants()
        self.high_watermark = 0 if mutants.active("hw_forgotten_at_lead") else high_watermark
        self.min_insync_replicas = self._effective(min_insync_replicas)
        self.pending: IsrProposal | None = None
        self.recovering = recovering
        self._rebuilt = False
        self._commits_below_min_isr = mutants.active("hw_below_min_isr")
        self._counts_committed_isr = mutants.active("hw_on_committed_isr")
        self._shrinks_early = mutants.active("shrink_applied_early")
        self._joins_at_high_watermark = mutants.active("isr_join_at_hw_only")
        self._shows_any_high_watermark = mutants.active("leader_hw_kept")
        self._lag_time_max = lag_time_max
        self._committable_end = committable_end
        self._followers = {replica: FollowerState() for replica in self.replicas if replica != node_id}
        for replica in self.isr:
            if replica in self._followers:
                # A member of the ISR has a full lag period for its first fetch in this epoch.
                self._followers[replica].last_caught_up = now
        self._advance_high_watermark()

    def follower(self, replica: int) -> FollowerState:
        """The state of a follower. Raises `KeyError` for a broker that is not a replica."""
        return self._followers[replica]

    def _effective(self, min_insync_replicas: int) -> int:
        # As in Kafka: a topic with fewer replicas than min.insync.replicas can still be written.
        return min(min_insync_replicas, len(self.replicas))

    def set_replicas(self, replicas: Iterable[int]) -> None:
        """Replicas were added, or have another order. A removal is not possible within a leader epoch."""
        self.replicas = tuple(replicas)
        for replica in self.replicas:
            if replica != self.node_id:
                self._followers.setdefault(replica, FollowerState())

    def set_min_insync_replicas(self, number: int) -> bool:
        """`min.insync.replicas` of the topic was changed. True: the high watermark rose."""
        self.min_insync_replicas = self._effective(number)
        return self._advance_high_watermark()

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The ISR together with the proposed one: the controller may already elect from either (H13)."""
        if self._counts_committed_isr:
            return frozenset(self.isr)
        if self._shrinks_early and self.pending is not None:
            return frozenset(self.pending.isr)
        return frozenset(self.isr if self.pending is None else (*self.isr, *self.pending.isr))

    @property
    def enough_in_sync(self) -> bool:
        """Whether the committed ISR has at least `min.insync.replicas` members."""
        return len(self.isr) >= self.min_insync_replicas

    @property
    def high_watermark_is_known(self) -> bool:
        """Whether the high watermark covers everything that earlier leaders may have committed (KIP-207).

        A new leader starts with a high watermark that may be lower than its predecessor's. When it reaches the start of
        this epoch, everything that was ever committed is below it.
        """
        return self.high_watermark >= self.epoch_start_offset or self._shows_any_high_watermark

    # -- progress -----------------------------------------------------------------------------------------------

    def log_grew(self, committable_end: int) -> bool:
        """The leader's log counts up to here (up to what is on disk if flushes are required). True: the HW rose."""
        if committable_end > self._committable_end:
            self._committable_end = committable_end
        return self._advance_high_watermark()

    def follower_fetched(
        self, replica: int, *, broker_epoch: int, fetch_offset: int, log_start_offset: int, leader_end: int, now: float
    ) -> bool:
        """A follower asked for `fetch_offset`, so it holds everything from its `log_start_offset` to there. True: the
        high watermark rose.

        The caller has checked that the fetch carries this leader epoch and does not diverge (H6). A fetch of an older
        incarnation of the follower is ignored (H15). `leader_end` is the log end offset, durable or not.
        """
        state = self._followers[replica]
        if broker_epoch < state.broker_epoch:
            return False
        if fetch_offset >= leader_end:
            state.last_caught_up = max(state.last_caught_up, now)
        elif fetch_offset >= state.leader_end_at_last_fetch != UNKNOWN_OFFSET:
            # It now has everything that the leader had at its previous fetch: it was caught up at that moment.
            state.last_caught_up = max(state.last_caught_up, state.last_fetch)
        state.broker_epoch = broker_epoch
        state.log_end_offset, state.log_start_offset = fetch_offset, log_start_offset
        state.last_fetch = now
        state.leader_end_at_last_fetch = leader_end
        return self._advance_high_watermark()

    def _advance_high_watermark(self) -> bool:
        # Below min.insync.replicas nothing new is committed: the remaining members could all be lost at once (H16).
        if self.recovering or not (self.enough_in_sync or self._commits_below_min_isr):
            return False
        candidate = self._committable_end
        if candidate <= self.high_watermark:
            return False  # the leader is in each of its ISRs: the other replicas cannot raise it further
        awaited = self.maximal_isr if self._followers else ()  # a single replica waits for no other
        for replica in awaited:
            if replica != self.node_id:
                candidate = min(candidate, self._followers[replica].log_end_offset)
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def low_watermark(self, members: Iterable[int]) -> int:
        """The lowest log start of this leader, of every replica that may lead next, and of the `members`: live
        replicas, and those that are eligible outside of the ISR (KIP-107). Of a replica that has not fetched in this
        epoch it is unknown, -1."""
        needed = {*self.maximal_isr, *members} & self._followers.keys()
        return min((self._followers[replica].log_start_offset for replica in needed), default=self.log_start_offset)

    # -- the in-sync set ----------------------------------------------------------------------------------------

    def may_join(self, replica: int) -> bool:
        """Whether a follower holds everything that is or may be committed (H5), and nothing that was deleted (K107-2).

        The high watermark alone is not sufficient: that of a new leader may be lower than the true one, which is at or
        below the start of this epoch.
        """
        end = self._followers[replica].log_end_offset
        return (
            self.pending is None
            and not self.recovering
            and replica not in self.isr
            and end >= self.high_watermark
            and self._followers[replica].log_start_offset >= self.log_start_offset
            and (end >= self.epoch_start_offset or self._joins_at_high_watermark)
        )

    def waiting_to_join(self, now: float) -> tuple[int, ...]:
        """Followers that keep up and may join because of their last fetch; they need not fetch again."""
        return tuple(
            replica
            for replica, state in self._followers.items()
            if now - state.last_caught_up <= self._lag_time_max and self.may_join(replica)
        )

    def lagging(self, leader_end: int, now: float) -> tuple[int, ...]:
        """Members of the ISR that have not been caught up within `replica.lag.time.max.ms`."""
        return tuple(
            replica
            for replica in self.isr
            if replica != self.node_id
            and self._followers[replica].log_end_offset != leader_end
            and now - self._followers[replica].last_caught_up > self._lag_time_max
        )

    def propose_expansion(self, replica: int, own_broker_epoch: int) -> IsrProposal | None:
        """Propose to add a follower to the ISR; None if it may not join. One proposal is in flight at a time."""
        if not self.may_join(replica):
            return None
        return self._propose((*self.isr, replica), own_broker_epoch)

    def propose_shrink(self, leader_end: int, now: float, own_broker_epoch: int) -> IsrProposal | None:
        """Propose an ISR without the lagging followers; None without such or while a proposal is in flight."""
        if self.pending is not None:
            return None
        lagging = self.lagging(leader_end, now)
        if not lagging:
            return None
        return self._propose(tuple(replica for replica in self.isr if replica not in lagging), own_broker_epoch)

    def _propose(self, isr: tuple[int, ...], own_broker_epoch: int) -> IsrProposal:
        # The incarnation whose fetches were counted; the controller refuses one that has restarted since (H15).
        epochs = tuple(
            own_broker_epoch if replica == self.node_id else self._followers[replica].broker_epoch for replica in isr
        )
        recovering = self.recovering and not self._rebuilt
        self.pending = IsrProposal(isr, epochs, self.leader_epoch, self.partition_epoch, recovering)
        return self.pending

    def rebuilt(self) -> None:
        """The whole log is checked and on disk: the recovery may end."""
        self._rebuilt = True

    def propose_recovered(self, own_broker_epoch: int) -> IsrProposal | None:
        """Propose to end the recovery; None if it is not complete, or if that proposal is in flight (K704-7)."""
        if not (self.recovering and self._rebuilt) or self.pending is not None:
            return None
        return self._propose(self.isr, own_broker_epoch)

    def isr_committed(self, isr: Iterable[int], partition_epoch: int, now: float, *, recovering: bool = False) -> bool:
        """The controller's ISR, from its answer or from the metadata log, whichever arrives first. True: it is news.

        Any newer partition epoch settles the proposal in flight: it was applied, or the controller refuses it for its
        stale partition epoch.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        joined = set(isr) - set(self.isr)
        self.isr = tuple(isr)
        self.partition_epoch = partition_epoch
        self.recovering = recovering
        self.pending = None
        for replica in joined & self._followers.keys():
            state = self._followers[replica]
            state.last_caught_up = max(state.last_caught_up, now)
        self._advance_high_watermark()
        return True

    def proposal_refused(self, proposal: IsrProposal) -> None:
        """The controller has certainly not applied this proposal: only the committed ISR counts again."""
        if self.pending == proposal:
            self.pending = None
            self._advance_high_watermark()
