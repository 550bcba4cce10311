"""The leader's part: announces its epoch, appends, serves fetches, commits, and resigns in time.

Changes of the voter set: the leader makes them, through records of its log (KIP-853).

The first leader names the disks of all voters. Nothing is committed before each voter has that record. Afterwards, a
log
without it belongs to an empty disk, and cannot win an election (H22).

A disk that replaces another joins automatically, as in Apache Kafka 4 with `controller.quorum.auto.join.enable`
(KIP-1186). First the lost voter leaves the set; then the new one joins it once it has the leader's log. Only one voter
changes at a time, and each change is committed before the next: two consecutive majorities have a voter in common.
"""

from dataclasses import dataclass

from broker.errors import ErrorCode
from broker.protocol.schema import NO_ID
from broker.quorum.core import Core
from broker.quorum.effects import (
    AppendAsLeader,
    AppendLeaderChange,
    AppendVoters,
    CommitEffect,
    Flush,
    LeadershipEstablished,
    Read,
    ReadSnapshot,
    RefuseAppend,
    Reply,
    Send,
)
from broker.quorum.messages import (
    BeginRequest,
    EndRequest,
    FetchRequest,
    FetchResponse,
    OffsetAndEpoch,
    Predecessor,
    SnapshotRequest,
    SnapshotResponse,
)
from broker.quorum.request_pacing import Outreach
from broker.quorum.roles import Candidate, Leader, ParkedQuorumFetch, ReplicaProgress, Resigned
from broker.quorum.voters import VoterSet


class VoterChanges:
    """The part of a leader that changes the voter set."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def settled(self) -> bool:
        """Whether the first set that names disks is committed, and therefore on the disks of all voters."""
        history = self._core.history
        return self._core.voters.keyed and self._core.high_watermark > history.first_offset

    def missing(self, role: Leader) -> tuple[int, ...]:
        """The voters that a new quorum waits for; empty once the first set is committed."""
        if self.settled():
            return ()
        first_offset = max(0, self._core.history.first_offset)
        return tuple(voter for voter, replica in role.voters.items() if (replica.fetch_offset or 0) <= first_offset)

    def may_settle(self, role: Leader, own_durable_end: int) -> bool:
        """Whether every voter has the first set that names disks."""
        return self._core.voters.keyed and role.everywhere(own_durable_end) > self._core.history.first_offset

    def due(self, now: float, role: Leader) -> VoterSet | None:
        """The next voter set. None while there is nothing to change, while the last change is not committed, or while
        this
        leader has committed nothing in its own epoch."""
        voters = self._core.voters
        if not voters.keyed:
            return self._first(role)
        if role.high_watermark is None or role.high_watermark <= self._core.history.offset or self._core.ignores_keys:
            return None
        for replica, newcomer in role.observers.items():
            if replica not in self._core.settings.voters or not self._has_the_log(now, newcomer):
                continue
            if replica not in role.voters:
                return voters.with_voter(replica, newcomer.directory)
            if self._is_gone(now, role, role.voters[replica]):
                return voters.without(replica)
        return None

    def _first(self, role: Leader) -> VoterSet | None:
        settings = self._core.settings
        disks = {voter: progress.directory for voter, progress in role.voters.items()}
        if NO_ID in disks.values():
            return None
        return VoterSet(tuple(sorted({**disks, settings.node_id: settings.directory_id}.items())))

    def _has_the_log(self, now: float, newcomer: ReplicaProgress) -> bool:
        caught_up = newcomer.last_caught_up_at
        within = self._core.settings.fetch_timeout_s
        return newcomer.directory != NO_ID and caught_up is not None and now - caught_up <= within

    def _is_gone(self, now: float, role: Leader, voter: ReplicaProgress) -> bool:
        heard_at = role.began_at if voter.last_fetch_at is None else voter.last_fetch_at
        return now - heard_at > self._core.settings.check_quorum_timeout_s


# A replica that is not a voter is forgotten when it has not fetched for this long. The leader remembers at most this
# many.
OBSERVER_SESSION_TIMEOUT_S = 300.0
MAX_OBSERVERS = 1_000


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica in DescribeQuorum. Times are seconds of the event loop's clock."""

    replica_id: int
    directory: bytes
    log_end_offset: int | None
    last_fetch_at: float | None
    last_caught_up_at: float | None


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """The leader's view of the quorum, for DescribeQuorum (K595-44)."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]


class Leading:
    """The part of the state machine that leads an epoch."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._changes = VoterChanges(core)
        self._commits_old_epochs = core.mutants.active("commit_old_epoch")
        self._counts_unsynced = core.mutants.active("leader_counts_unsynced")
        self._counts_observers = core.mutants.active("observer_counts")
        self._checks_no_epoch = core.mutants.active("fetch_no_epoch_check")

    def start(self, now: float) -> None:
        """Persist the leadership, append the LeaderChange record, then announce it (K595-21)."""
        core = self._core
        candidate = core.role
        assert isinstance(candidate, Candidate)
        assert candidate.ballot.won
        other_voters = core.other_voters
        core.transition_durably(
            Leader(
                epoch=candidate.epoch,
                node_id=core.settings.node_id,
                epoch_start_offset=core.log.log_end_offset,
                voters={voter: ReplicaProgress() for voter in other_voters},
                outreach=Outreach(other_voters, core.settings),
                check_quorum_at=now + core.settings.check_quorum_timeout_s if core.voters.majority > 1 else None,
                began_at=now,
                predecessor=Predecessor(core.last_leader.leader_id, max(candidate.ballot.granted.values())),
            )
        )
        core.log_in_motion = True
        granted = tuple(sorted(candidate.ballot.granted))
        core.emit(
            AppendLeaderChange(candidate.epoch, core.settings.node_id, core.voters.ids, granted),
            Flush(),
        )

    def append(self, ticket: int, records: tuple[bytes, ...]) -> None:
        """Append records as one batch and send them to followers with parked fetches."""
        core = self._core
        role = core.role
        if not isinstance(role, Leader):
            core.emit(RefuseAppend(ticket))
            return
        core.log_in_motion = True
        core.emit(AppendAsLeader(role.epoch, records, ticket), Flush())
        for replica, parked in role.parked():
            self._complete(role, replica, parked)

    # --- fetches of the other replicas

    def receive_fetch(self, now: float, ticket: int, request: FetchRequest) -> None:
        """Serve a fetch, report a divergence, or park the fetch until there is news (K595-34, K595-35, K595-38)."""
        core = self._core
        role = core.role
        error = self._fetch_error(request)
        if error is not ErrorCode.NONE:
            core.emit(Reply(ticket, core.fetch_error(error)))
            return
        assert isinstance(role, Leader)
        replica = self._replica(now, role, request)
        self.heard_from(now, role, replica)
        if replica.parked is not None:
            # At most one fetch per replica: the replica no longer waits for the older one.
            self._complete(role, replica, replica.parked)
        snapshot = self._needs_snapshot(request.fetch_from)
        if snapshot is not None:
            response = FetchResponse(ErrorCode.NONE, role.leader_id, role.epoch, _or_unknown(role), snapshot=snapshot)
            core.emit(Reply(ticket, response))
            return
        diverging = self._divergence(request.fetch_from)
        if diverging is not None:
            # The logs may differ below this offset, so the replica's progress stays unchanged (H6).
            response = FetchResponse(ErrorCode.NONE, role.leader_id, role.epoch, _or_unknown(role), diverging)
            core.emit(Reply(ticket, response))
            return
        replica.fetched(now, request.fetch_from.offset, core.log.log_end_offset)
        parked = ParkedQuorumFetch(ticket, request, now + min(request.max_wait, core.settings.fetch_max_wait_s))
        replica.park(parked)
        self.advance_high_watermark()
        if replica.parked is parked and self._has_news(role, replica, request):
            self._complete(role, replica, parked)
        self._change_voters(now, role)

    def _needs_snapshot(self, fetch_from: OffsetAndEpoch) -> OffsetAndEpoch | None:
        """The snapshot that a replica must fetch first, because this log no longer has the records behind the replica's
        log
        end, or does not know the replica's epoch any more (KIP-630)."""
        snapshot, start = self._core.snapshot, self._core.log.log_start_offset
        if snapshot is None:
            return None
        removed = fetch_from.offset < start or fetch_from.epoch < snapshot.epoch
        parted = fetch_from.offset == start == snapshot.offset and fetch_from.epoch != snapshot.epoch
        return snapshot if removed or parted else None

    def receive_snapshot_fetch(self, now: float, ticket: int, request: SnapshotRequest) -> None:
        """Serve a part of the newest snapshot. The fetch endorses this leader as any fetch does."""
        core = self._core
        role = core.role
        error = self._fetch_error(request)
        if error is ErrorCode.NONE and request.snapshot != core.snapshot:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if error is ErrorCode.NONE and request.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        response = SnapshotResponse(error, role.leader_id, role.epoch, request.snapshot, request.position)
        if error is not ErrorCode.NONE:
            core.emit(Reply(ticket, response))
            return
        assert isinstance(role, Leader)
        replica = self._replica(now, role, request)
        replica.last_fetch_at = now
        self.heard_from(now, role, replica)
        max_bytes = max(1, min(request.max_bytes, core.settings.fetch_max_bytes))
        core.emit(Reply(ticket, response, ReadSnapshot(request.snapshot, request.position, max_bytes)))

    def _fetch_error(self, request: FetchRequest | SnapshotRequest) -> ErrorCode:
        role = self._core.role
        if request.replica_id < 0 or request.replica_id == self._core.settings.node_id:
            return ErrorCode.INVALID_REQUEST
        if request.epoch < role.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > role.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def _divergence(self, fetch_from: OffsetAndEpoch) -> OffsetAndEpoch | None:
        """Where the replica's log diverges from the leader's; None when it is a prefix of the leader's log (K595-35).

        If the ends are equal in (epoch, offset), the logs are equal up to there, because one leader wrote each epoch.
        """
        core = self._core
        if fetch_from.offset == core.log.log_start_offset == 0:
            return None
        if self._checks_no_epoch and core.log.log_start_offset <= fetch_from.offset <= core.log.log_end_offset:
            return None
        epoch_end = core.end_offset_for(fetch_from.epoch)
        if epoch_end.epoch == fetch_from.epoch and core.log.log_start_offset <= fetch_from.offset <= epoch_end.offset:
            return None
        return epoch_end

    def _replica(self, now: float, role: Leader, request: FetchRequest | SnapshotRequest) -> ReplicaProgress:
        """The progress of the replica that fetches. It counts as a voter if it fetches with a voter's disk (H22)."""
        replica_id = request.replica_id
        if replica_id in role.voters and self._core.counts(replica_id, request.directory):
            replica = role.voters[replica_id]
        else:
            self._forget_observers(now, role, replica_id)
            replica = role.observer(replica_id)
        replica.comes_with(request.directory)
        return replica

    def _forget_observers(self, now: float, role: Leader, newcomer: int) -> None:
        """Make room for a new observer: forget those that expired and, above the limit, any without a parked fetch."""
        if newcomer in role.observers:
            return
        for observer, progress in list(role.observers.items()):
            expired = progress.last_fetch_at is None or progress.last_fetch_at + OBSERVER_SESSION_TIMEOUT_S < now
            if (expired or len(role.observers) >= MAX_OBSERVERS) and progress.parked is None:
                role.forget_observer(observer)

    def heard_from(self, now: float, role: Leader, replica: ReplicaProgress) -> None:
        """A voter's fetch endorses this leader (K595-23). A majority of fetches postpones its resignation (K595-43,
        H19)."""
        voter = next((voter for voter, progress in role.voters.items() if progress is replica), None)
        if voter is not None:
            role.endorsed(voter, self._core.voters.majority, now + self._core.settings.check_quorum_timeout_s)

    def _change_voters(self, now: float, role: Leader) -> None:
        """Append the next voter set if one is due, and send it to followers with parked fetches."""
        voters = self._changes.due(now, role)
        if voters is None:
            return
        self._core.log_in_motion = True
        self._core.emit(AppendVoters(role.epoch, voters), Flush())
        for replica, parked in role.parked():
            self._complete(role, replica, parked)

    def _has_news(self, role: Leader, replica: ReplicaProgress, request: FetchRequest) -> bool:
        """Whether there are records for the replica, or a high watermark that it does not know yet."""
        return (
            request.fetch_from.offset < self._core.log.log_end_offset or _or_unknown(role) > replica.high_watermark_sent
        )

    def _complete(self, role: Leader, replica: ReplicaProgress, parked: ParkedQuorumFetch) -> None:
        replica.answered(_or_unknown(role))
        response = FetchResponse(ErrorCode.NONE, role.leader_id, role.epoch, _or_unknown(role))
        max_bytes = min(parked.request.max_bytes, self._core.settings.fetch_max_bytes)
        self._core.emit(Reply(parked.ticket, response, Read(parked.request.fetch_from.offset, max_bytes)))

    # --- committing

    def flushed(self, now: float) -> None:
        """The appended records are durable on this node."""
        self.advance_high_watermark()
        role = self._core.role
        if isinstance(role, Leader):
            self._change_voters(now, role)

    def advance_high_watermark(self) -> None:
        """Commit what is on the disks of a majority, once that includes an entry of this epoch (K595-36).

        Entries of earlier epochs alone never count: a later leader could still replace them (Raft, figure 8). Nothing
        is
        committed before every voter has the record that names the voters' disks.
        """
        core = self._core
        role = core.role
        if not isinstance(role, Leader):
            return
        own_end = core.log.log_end_offset if self._counts_unsynced else core.log.durable_end_offset
        if not self._changes.settled() and not self._changes.may_settle(role, own_end):
            return
        offset = role.majority_offset(own_end, observers_count=self._counts_observers)
        old = offset <= role.epoch_start_offset and not self._commits_old_epochs
        if old or offset <= (role.high_watermark or 0):
            return
        established = role.high_watermark is not None
        role.commit(offset)
        core.high_watermark = max(core.high_watermark, offset)
        core.emit(CommitEffect(offset, role.epoch))
        if not established:
            core.emit(LeadershipEstablished(role.epoch))
        for replica, parked in role.parked():
            # A follower that learns of the commit now applies it now.
            self._complete(role, replica, parked)

    # --- resigning

    def poll(self, now: float) -> None:
        """Do what is due: resign, repeat the announcement of the epoch, end long polls."""
        core = self._core
        role = core.role
        if isinstance(role, Leader):
            if role.check_quorum_at is not None and now >= role.check_quorum_at:
                self.resign(now)
                return self.poll(now)
            for voter in role.outreach.take_due(now):
                core.emit(Send(voter, self._announcement(voter, role)))
            for replica, parked in role.parked():
                if now >= parked.deadline:
                    self._complete(role, replica, parked)
        elif isinstance(role, Resigned):
            self._poll_resigned(now, role)
        return None

    def _announcement(self, voter: int, role: Leader) -> BeginRequest:
        core = self._core
        return BeginRequest(core.cluster_id, core.settings.node_id, role.epoch, core.voters.directory_of(voter))

    def _poll_resigned(self, now: float, role: Resigned) -> None:
        core = self._core
        if role.give_up_at is not None and now >= role.give_up_at:
            # This node was the leader of this epoch, so it cannot have another one: continue in the next epoch.
            core.become_unattached(now, role.epoch + 1, soon=True)
            return
        request = EndRequest(core.cluster_id, role.node_id, role.epoch, role.preferred_successors)
        for voter in role.outreach.take_due(now):
            core.emit(Send(voter, request))

    def resign(self, now: float) -> None:
        """Resign and send the voters the preferred order of successors (K595-27, K595-28)."""
        core = self._core
        role = core.role
        assert isinstance(role, Leader)
        wait = None if core.shutting_down else core.election_time(now, core.settings.election_timeout_s)
        other_voters = core.other_voters
        core.transition_durably(
            Resigned(role.epoch, role.node_id, role.preferred_successors(), Outreach(other_voters, core.settings), wait)
        )

    def begin_answered(self, voter: int, request: BeginRequest) -> None:
        """The voter endorses this leader; it needs no further announcement."""
        role = self._core.role
        if isinstance(role, Leader) and role.epoch == request.epoch:
            role.outreach.answered(voter)

    def begin_unanswered(self, now: float, voter: int, request: BeginRequest) -> None:
        role = self._core.role
        if isinstance(role, Leader) and role.epoch == request.epoch:
            role.outreach.failed(voter, now)

    def end_answered(self, voter: int, request: EndRequest) -> None:
        role = self._core.role
        if isinstance(role, Resigned) and role.epoch == request.epoch:
            role.outreach.answered(voter)

    # --- reporting

    def waits_for(self) -> tuple[int, ...]:
        """The voters that must take part before a new quorum commits anything, as far as this leader knows."""
        role = self._core.role
        return self._changes.missing(role) if isinstance(role, Leader) else ()

    def describe(self, now: float) -> QuorumStatus | None:
        """The leader's view of the quorum; None when this node does not lead (K595-44)."""
        core = self._core
        role = core.role
        if not isinstance(role, Leader):
            return None
        own_status = ReplicaStatus(role.node_id, core.settings.directory_id, core.log.log_end_offset, now, now)
        voters = {role.node_id: own_status} | {
            voter: _status(voter, progress) for voter, progress in role.voters.items()
        }
        return QuorumStatus(
            role.node_id,
            role.epoch,
            _or_unknown(role),
            tuple(voters[voter] for voter in sorted(voters)),
            tuple(_status(observer, role.observers[observer]) for observer in sorted(role.observers)),
        )


def _status(replica_id: int, progress: ReplicaProgress) -> ReplicaStatus:
    return ReplicaStatus(
        replica_id, progress.directory, progress.fetch_offset, progress.last_fetch_at, progress.last_caught_up_at
    )


def _or_unknown(role: Leader) -> int:
    return -1 if role.high_watermark is None else role.high_watermark
