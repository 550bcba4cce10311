"""One member of the quorum as a pure state machine: takes events, returns effects in the order of execution.

`now` is the loop's time in seconds and never decreases. The runner executes all effects of an event before the next
event, and calls `tick` at `deadline()`.

The follower's part: finds the leader, fetches from it, truncates divergent records.

Source: KIP-595, BeginQuorumEpoch, EndQuorumEpoch and Fetch.
"""

import random
from collections.abc import Iterable
from copy import deepcopy

from broker.clock_rates import PACE
from broker.errors import ErrorCode
from broker.mutants import Mutants
from broker.protocol.schema import NO_ID
from broker.quorum.core import Core, MetadataLogView, initial_role
from broker.quorum.effects import (
    AppendAsFollower,
    CommitEffect,
    Effect,
    Flush,
    InstallSnapshot,
    KeepPiece,
    Persist,
    Reply,
    Send,
    TruncateEffect,
)
from broker.quorum.election_state import ElectionState
from broker.quorum.leading import Leading, QuorumStatus
from broker.quorum.messages import (
    NO_EPOCH_FOLLOWS,
    BeginRequest,
    EndRequest,
    FetchRequest,
    FetchResponse,
    OffsetAndEpoch,
    Request,
    Response,
    SnapshotRequest,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from broker.quorum.request_pacing import Outreach
from broker.quorum.roles import Ballot, Candidate, Follower, Leader, Prospective, Role, Unattached, Voted, earliest
from broker.quorum.settings import QuorumSettings
from broker.quorum.voters import VoterHistory


class Following:
    """The part of the state machine that copies the leader's log."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._truncates_committed = core.mutants.active("truncate_below_hw")

    # --- announcements of leaders

    def receive_begin(self, now: float, ticket: int, request: BeginRequest) -> None:
        """Follow a newly elected leader, unless the request contradicts the known leader of its epoch (K595-24,
        K595-25)."""
        error = self._begin(now, request)
        role = self._core.role
        self._core.emit(Reply(ticket, Response(error, role.leader_id, role.epoch)))

    def _begin(self, now: float, request: BeginRequest) -> ErrorCode:
        core = self._core
        if not core.is_meant(request.voter_directory):
            named = request.voter_directory != NO_ID
            return ErrorCode.INVALID_VOTER_KEY if named else ErrorCode.INCONSISTENT_VOTER_SET
        if request.leader_id not in core.settings.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if request.epoch < core.role.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.leader_id == core.settings.node_id:
            return ErrorCode.INVALID_REQUEST
        if request.epoch == core.role.epoch and core.role.elected_id is not None:
            return ErrorCode.NONE if core.role.elected_id == request.leader_id else ErrorCode.INVALID_REQUEST
        core.become_follower(now, request.epoch, request.leader_id)
        return ErrorCode.NONE

    def receive_end(self, now: float, ticket: int, request: EndRequest) -> None:
        """Stand in the order of the successors when this epoch's leader or candidate resigns (K595-12, K595-29,
        K595-30)."""
        error = self._end(now, request)
        role = self._core.role
        self._core.emit(Reply(ticket, Response(error, role.leader_id, role.epoch)))

    def _end(self, now: float, request: EndRequest) -> ErrorCode:
        core = self._core
        role = core.role
        if not core.is_voter:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if request.leader_id is not None and request.leader_id not in core.settings.voters:
            return ErrorCode.INCONSISTENT_VOTER_SET
        if request.epoch < role.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > role.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if request.leader_id != role.leader_id:
            return ErrorCode.INVALID_REQUEST
        if core.settings.node_id not in request.preferred_successors:
            return ErrorCode.INCONSISTENT_VOTER_SET
        position = request.preferred_successors.index(core.settings.node_id)
        stand_at = now + core.settings.successor_delay(position)
        if isinstance(role, Follower) or (
            isinstance(role, Unattached | Voted) and role.election_at is not None and stand_at < role.election_at
        ):
            role.stand_at(stand_at)
        return ErrorCode.NONE

    # --- fetching

    def poll(self, now: float) -> None:
        """Send the next fetch if it is due and everything that was fetched before is on disk."""
        core = self._core
        role = core.role
        if not isinstance(role, Unattached | Voted | Follower) or core.log_in_motion:
            return
        loop = role.fetching
        if loop.inflight is not None or now < loop.not_before:
            return
        voter = loop.next_voter()
        if voter is None:
            return
        if isinstance(role, Follower) and role.download is not None and voter == role.leader:
            loop.inflight = SnapshotRequest(
                cluster_id=core.cluster_id,
                replica_id=core.settings.node_id,
                epoch=role.epoch,
                snapshot=role.download.snapshot,
                position=role.download.position,
                max_bytes=core.settings.fetch_max_bytes,
                directory=core.settings.directory_id,
            )
            core.emit(Send(voter, loop.inflight))
            return
        loop.inflight = FetchRequest(
            cluster_id=core.cluster_id,
            replica_id=core.settings.node_id,
            epoch=role.epoch,
            fetch_from=core.log_end(),
            max_wait=core.settings.fetch_max_wait_s,
            max_bytes=core.settings.fetch_max_bytes,
            directory=core.settings.directory_id,
        )
        core.emit(Send(voter, loop.inflight))

    def deadline(self) -> float | None:
        """The time of the next fetch."""
        role = self._core.role
        if not isinstance(role, Unattached | Voted | Follower) or self._core.log_in_motion:
            return None
        if not self._core.settings.other_voters:
            return None  # the only voter is this node
        return role.fetching.not_before if role.fetching.inflight is None else None

    def unanswered(self, now: float, request: FetchRequest | SnapshotRequest) -> None:
        """The request failed or timed out, or its records were rejected."""
        role = self._core.role
        loop = role.fetching if isinstance(role, Unattached | Voted | Follower | Prospective) else None
        if loop is not None and loop.inflight is request:
            loop.failed(now)

    def refused(self, now: float, voter: int) -> None:
        """The leader's host refused the connection: the leader's process has ended, so do not wait for the fetch
        timeout.

        Pre-votes keep this safe: a leader that is still alive is not disturbed.
        """
        role = self._core.role
        if not isinstance(role, Follower) or voter != role.leader or role.fetch_deadline is None:
            return
        if not role.leader_is_gone:
            role.stand_at(self._core.election_time(now, 0.0))

    def answered(self, now: float, voter: int, request: FetchRequest, response: FetchResponse) -> None:
        """Handle the answer to the one fetch in flight. Any other answer is stale: the log may have changed since."""
        self._find_leader_again(now, voter, request, response)
        role = self._core.role
        if not isinstance(role, Unattached | Voted | Follower) or role.fetching.inflight is not request:
            return
        by_leader = isinstance(role, Follower) and voter == role.leader and response.epoch == role.epoch
        if isinstance(role, Follower) and by_leader and response.error is ErrorCode.NONE:
            self._succeeded(now, role, response)
            return
        role.fetching.failed(now)
        if isinstance(role, Unattached):
            self._note_leaderless(now, role, voter, response)

    def _find_leader_again(
        self,
        now: float,
        voter: int,
        request: FetchRequest | SnapshotRequest,
        response: FetchResponse | SnapshotResponse,
    ) -> None:
        """Follow the lost leader again: its answer to the fetch in flight arrived while this node asks for
        pre-votes."""
        core, role = self._core, self._core.role
        if not isinstance(role, Prospective) or role.fetching is None or role.fetching.inflight is not request:
            return
        if response.error is not ErrorCode.NONE or (voter, response.epoch) != (role.leader_id, role.epoch):
            role.fetching.failed(now)
            return
        core.become_follower(now, role.epoch, voter)
        assert isinstance(core.role, Follower)
        core.role.resume(role)

    def _note_leaderless(self, now: float, role: Unattached, voter: int, response: FetchResponse) -> None:
        """Stand at once when a majority knows no leader: a longer wait would not find one (K595-48).

        Pre-votes make this safe: an early election does not disturb a leader that the others lost.
        """
        core = self._core
        if response.epoch < role.epoch or (response.epoch == role.epoch and response.leader_id is None):
            role.missed_leader(voter)
        if len(role.leaderless) + 1 >= core.voters.majority and not role.hurried and role.election_at is not None:
            role.hurry(core.election_time(now, 0.0))

    def _succeeded(self, now: float, role: Follower, response: FetchResponse) -> None:
        core = self._core
        role.fetching.succeeded()
        core.note_leader(now, role.leader)
        role.heard_leader(now + core.settings.fetch_timeout_s)
        if response.snapshot is not None:
            role.begin_download(response.snapshot)
            return
        if response.diverging is not None:
            # The high watermark of this answer is not for this log: it moves only after the truncation (H7).
            self._truncate(response.diverging)
            return
        role.learn_high_watermark(response.high_watermark)
        self.advance_high_watermark(role)
        if response.records:
            core.log_in_motion = True
            core.emit(AppendAsFollower(role.epoch, response.records), Flush())

    def snapshot_answered(self, now: float, voter: int, request: SnapshotRequest, response: SnapshotResponse) -> None:
        """Keep a part of the snapshot. When all parts are here, the log restarts at the snapshot's end (KIP-630).

        A part at an unexpected position, or of a snapshot that the leader no longer has, ends the download. The answer
        to
        the next Fetch says how to continue.
        """
        self._find_leader_again(now, voter, request, response)
        core, role = self._core, self._core.role
        if not isinstance(role, Follower) or role.fetching.inflight is not request or role.download is None:
            return
        download = role.download
        next_one = (response.snapshot, response.position) == (download.snapshot, download.position)
        if (
            response.error is not ErrorCode.NONE
            or (voter, response.epoch) != (role.leader, role.epoch)
            or not next_one
            or not response.data
        ):
            role.end_download()
            role.fetching.failed(now)
            return
        role.fetching.succeeded()
        core.note_leader(now, role.leader)
        role.heard_leader(now + core.settings.fetch_timeout_s)
        core.emit(KeepPiece(download.snapshot, download.position, response.data))
        download.took(len(response.data))
        if download.position < response.size:
            return
        role.end_download()
        if download.snapshot.offset > core.high_watermark:
            core.log_in_motion = True
            core.high_watermark = download.snapshot.offset
            core.snapshot = download.snapshot
            core.emit(InstallSnapshot(download.snapshot), Flush())

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        """Remove offsets >= the leader's end of that epoch, and every epoch above it (K595-40).

        `end_offset_for` takes the largest local epoch <= the leader's epoch. With "<", as KIP-595 has it, records that
        both
        logs share would be removed, committed ones among them (H25).
        """
        core = self._core
        offset = min(diverging.offset, core.end_offset_for(diverging.epoch).offset)
        if offset < core.high_watermark and not self._truncates_committed:
            core.fail(
                f"the leader {core.role.leader_id} of epoch {core.role.epoch} asks to truncate the metadata log to "
                f"{offset}, below the high watermark {core.high_watermark}: a voter has lost committed records"
            )
            return
        core.log_in_motion = True
        core.emit(TruncateEffect(offset), Flush())

    def flushed(self) -> None:
        """The fetched records are durable: advance the high watermark to what the leader has committed of them."""
        role = self._core.role
        if isinstance(role, Follower):
            self.advance_high_watermark(role)

    def advance_high_watermark(self, role: Follower) -> None:
        """Advance to the leader's high watermark, at most to the end of this log."""
        core = self._core
        high_watermark = min(role.leader_high_watermark, core.log.durable_end_offset)
        if high_watermark > core.high_watermark:
            core.high_watermark = high_watermark
            core.emit(CommitEffect(high_watermark, role.epoch))


# ---- Votes: requesting, granting and counting them (KIP-595 Vote; pre-vote after KIP-996).


class Votes:
    """The part of the state machine that elects a leader."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._ignores_log = core.mutants.active("vote_ignores_log")
        self._length_only = core.mutants.active("vote_length_only")
        self._minority_wins = core.mutants.active("minority_wins")
        self._counts_late_votes = core.mutants.active("late_vote_counted")

    # --- as a voter

    def receive_vote(self, now: float, ticket: int, request: VoteRequest) -> None:
        """Answer a vote request; the grant leaves after the vote is on disk (K595-16, K595-18, K595-19)."""
        error, granted = self._decide(now, request)
        role = self._core.role
        silence_s = now - self._core.last_leader.heard_at
        self._core.emit(Reply(ticket, VoteResponse(error, role.leader_id, role.epoch, granted, silence_s)))

    def _decide(self, now: float, request: VoteRequest) -> tuple[ErrorCode, bool]:
        core = self._core
        if not core.is_meant(request.voter_directory):
            # The request is for another disk's vote. This disk does not know what that one has promised (H22).
            named = request.voter_directory != NO_ID
            return ErrorCode.INVALID_VOTER_KEY if named else ErrorCode.INCONSISTENT_VOTER_SET, False
        if request.candidate_id == core.settings.node_id:
            return ErrorCode.INVALID_REQUEST, False
        if request.epoch < core.role.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, False
        if request.candidate_id not in core.settings.voters:
            # The candidate is not a voter: if adopted, its epoch would spread, be persisted, and have no leader (H30).
            return ErrorCode.INCONSISTENT_VOTER_SET, False
        up_to_date = self._ignores_log or request.log_end.up_to_date_with(core.log_end())
        if self._length_only:
            up_to_date = request.log_end.offset >= core.log_end().offset
        if request.epoch > core.role.epoch and not (up_to_date and not request.pre_vote):
            core.become_unattached(now, request.epoch)
        return ErrorCode.NONE, self._grant(now, request, up_to_date)

    def _grant(self, now: float, request: VoteRequest, up_to_date: bool) -> bool:
        role = self._core.role
        if request.pre_vote:
            return role.may_pre_vote(up_to_date)
        newer = request.epoch > role.epoch
        if not newer and not role.may_vote_for(request.candidate_id, up_to_date):
            return False
        if newer or role.voted_id is None:
            # A candidate of a higher epoch ends any role of this node, also that of a leader (K595-20).
            self._core.become_voted(
                now, request.epoch, request.candidate_id, wait=self._core.settings.election_timeout_s
            )
        return True

    # --- as a candidate

    def stand(self, now: float) -> None:
        """Ask for pre-votes in the current epoch; become a candidate at once if this node is the only voter."""
        core = self._core
        role = core.role
        voters = core.voters.ids
        core.transition_durably(
            Prospective(
                epoch=role.epoch,
                ballot=Ballot(voters, {core.settings.node_id: core.last_leader.heard_at}),
                outreach=Outreach(core.other_voters, core.settings),
                give_up_at=core.election_time(now, core.settings.election_timeout_s),
                last_leader_id=role.leader_id,
                vote=role.voted_id,
                fetching=role.fetching if isinstance(role, Follower) else None,
                download=role.download if isinstance(role, Follower) else None,
            )
        )
        self._settle(now)

    def answered(self, now: float, voter: int, request: VoteRequest, response: VoteResponse) -> None:
        """Count an answer to a vote request, unless its election is over (K595-21)."""
        role = self._core.role
        if not isinstance(role, Prospective | Candidate) or not self._is_current(request):
            return
        role.outreach.answered(voter)
        granted = response.granted and response.error is ErrorCode.NONE
        role.ballot.record(voter, granted, now - response.silence_s / PACE)  # its clock may be fast, this one slow
        leads = response.error is ErrorCode.NONE and (response.leader_id, response.epoch) == (voter, role.epoch)
        if leads and isinstance(role, Prospective):
            role.heard_leader(now)
        if not granted:
            # A voter refused, perhaps because of a rival: do not wait the whole timeout for voters that may be dead.
            role.give_up_by(now + self._core.settings.election_backoff_max_s)
        self._settle(now)

    def unanswered(self, now: float, voter: int, request: VoteRequest) -> None:
        """Ask again later while the election lasts."""
        role = self._core.role
        if isinstance(role, Prospective | Candidate) and self._is_current(request):
            role.outreach.failed(voter, now)

    def _is_current(self, request: VoteRequest) -> bool:
        role = self._core.role
        same_epoch = request.epoch == role.epoch or self._counts_late_votes
        return same_epoch and request.pre_vote == isinstance(role, Prospective)

    def _settle(self, now: float) -> None:
        """Continue once the ballot is decided. `Leading` promotes a candidate that has won."""
        role = self._core.role
        assert isinstance(role, Prospective | Candidate)
        if role.ballot.lost:
            self._step_down(now)
        elif role.ballot.won and isinstance(role, Prospective):
            self._become_candidate(now)

    def _become_candidate(self, now: float) -> None:
        """Increment the epoch and persist the vote for itself before the first vote request is sent (K595-13)."""
        core = self._core
        core.transition_durably(
            Candidate(
                epoch=core.role.epoch + 1,
                node_id=core.settings.node_id,
                ballot=Ballot(
                    core.voters.ids,
                    {core.settings.node_id: core.last_leader.heard_at},
                    minority_wins=self._minority_wins,
                ),
                outreach=Outreach(core.other_voters, core.settings),
                give_up_at=core.election_time(now, core.settings.election_timeout_s),
            )
        )

    def _step_down(self, now: float) -> None:
        """Back off after an election that cannot be won any more, or that took too long (K595-22).

        The node keeps looking for a leader while it waits, and stands again after a random delay. If the leader itself
        has
        answered that it still leads, only its answers were late: it gets a whole fetch timeout again, from that answer
        on.
        The fetch in flight from the leader is kept in any case. Otherwise an answer that takes longer than all timeouts
        would never arrive, and voters on faster links could decide before it.
        """
        core = self._core
        role = core.role
        if isinstance(role, Prospective) and role.leader_id is not None:
            heard_at = role.leader_heard_at
            core.become_follower(now if heard_at is None else heard_at, role.epoch, role.leader_id)
            assert isinstance(core.role, Follower)
            core.role.resume(role)
            if heard_at is None:
                core.role.stand_at(core.election_time(now, 0.0))
        elif role.voted_id is not None:
            core.become_voted(now, role.epoch, role.voted_id, wait=0.0)
        else:
            core.become_unattached(now, role.epoch, soon=True)

    def poll(self, now: float) -> None:
        """Do what is due: stand, give up, or repeat requests to voters that have not answered."""
        role = self._core.role
        if isinstance(role, Unattached | Voted):
            if role.election_at is not None and now >= role.election_at:
                self.stand(now)
        elif isinstance(role, Follower):
            self._poll_follower(now, role)
        role = self._core.role
        if isinstance(role, Prospective | Candidate):
            if now >= role.give_up_at and not role.ballot.won:
                self._step_down(now)
            else:
                self._ask(now, role)

    def _poll_follower(self, now: float, role: Follower) -> None:
        """The leader was silent for the fetch timeout: stand after a random delay (K595-12, K595-15)."""
        if role.fetch_deadline is None:
            return
        if not role.leader_is_gone and now >= role.fetch_deadline:
            role.stand_at(self._core.election_time(now, 0.0))
        if role.election_at is not None and now >= role.election_at:
            self.stand(now)

    def _ask(self, now: float, role: Prospective | Candidate) -> None:
        core = self._core
        for voter in role.outreach.take_due(now):
            request = VoteRequest(
                cluster_id=core.cluster_id,
                candidate_id=core.settings.node_id,
                epoch=role.epoch,
                log_end=core.log_end(),
                pre_vote=isinstance(role, Prospective),
                voter_directory=core.voters.directory_of(voter),
            )
            core.emit(Send(voter, request))


class RaftNode:
    """Call `start` once, then any of the events. After the effect `Fail`, events have no effect."""

    def __init__(
        self,
        now: float,
        settings: QuorumSettings,
        stored: ElectionState,
        log: MetadataLogView,
        voters: VoterHistory,
        rng: random.Random,
        mutants: Mutants | None = None,
    ) -> None:
        """`voters`: the voter sets that the log names. The runner keeps it up to date with the log."""
        mutants = mutants or Mutants()
        resumes = mutants.active("resume_as_leader")
        role = initial_role(now, stored, settings, log, voters.current, rng, resumes=resumes)
        self._core = Core(settings, log, voters, rng, role, mutants, now)
        self._votes = Votes(self._core)
        self._following = Following(self._core)
        self._leading = Leading(self._core)

    @property
    def role(self) -> Role:
        return self._core.role

    @property
    def leading(self) -> Leading:
        """The leader's part, which exists in every role."""
        return self._leading

    @property
    def voters(self) -> VoterHistory:
        """The voter sets that this node's log names."""
        return self._core.history

    @property
    def high_watermark(self) -> int:
        """The offset below which this node knows everything to be committed; 0 after a start, until a leader reports
        more."""
        return self._core.high_watermark

    @property
    def election_state(self) -> ElectionState:
        """The election state that must be on disk for the current role."""
        return self._core.election_state(self._core.role)

    @property
    def snapshot(self) -> OffsetAndEpoch | None:
        """The newest snapshot of this node, at whose end the log starts; None without one."""
        return self._core.snapshot

    def snapshot_taken(self, snapshot: OffsetAndEpoch) -> None:
        """A snapshot of everything below this committed offset was written; the log now starts there."""
        self._core.snapshot = snapshot
        self._core.high_watermark = max(self._core.high_watermark, snapshot.offset)

    def remember_committed(self, high_watermark: int, epoch: int) -> list[Effect]:
        """Restore the offset that an earlier process knew to be committed, in `epoch` or earlier. It stays committed
        under
        any leader."""
        if high_watermark > self._core.high_watermark:
            self._core.high_watermark = high_watermark
            self._core.emit(CommitEffect(high_watermark, epoch))
        return self._core.take_effects()

    def learn_cluster_id(self, cluster_id: str) -> None:
        """Use the committed cluster id: from now on every request carries it (K595-49)."""
        self._core.cluster_id = cluster_id

    # --- events

    def start(self, now: float) -> list[Effect]:
        """Start. The state that was read from disk is written again: after a crash it may be in the page cache only,
        and a
        vote that is repeated from there could still be forgotten (K595-14)."""
        self._core.emit(Persist(self.election_state))
        return self._finish(now)

    def receive(self, now: float, ticket: int, request: Request) -> list[Effect]:
        """Handle a request of another node. Each is answered once by a `Reply` with its ticket; a parked fetch
        later."""
        if not self._begins(now):
            return []
        if self._foreign(request):
            self._refuse_foreign(ticket, request)
        elif request.epoch >= NO_EPOCH_FOLLOWS:
            self._refuse(ticket, request, ErrorCode.INVALID_REQUEST)  # H30
        elif isinstance(request, VoteRequest):
            self._votes.receive_vote(now, ticket, request)
        elif isinstance(request, BeginRequest):
            self._following.receive_begin(now, ticket, request)
        elif isinstance(request, EndRequest):
            self._following.receive_end(now, ticket, request)
        elif isinstance(request, SnapshotRequest):
            self._leading.receive_snapshot_fetch(now, ticket, request)
        else:
            self._leading.receive_fetch(now, ticket, request)
        return self._finish(now)

    def answered(self, now: float, voter: int, request: Request, response: Response) -> list[Effect]:
        """Handle the answer to a `Send`."""
        core = self._core
        if not self._begins(now):
            return []
        if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._refused_as_foreign(now, voter, request)
        else:
            if not core.shutting_down and response.epoch < NO_EPOCH_FOLLOWS:
                core.observe(now, response.leader_id, response.epoch)
            self._dispatch_answer(now, voter, request, response)
        return self._finish(now)

    def unanswered(self, now: float, voter: int, request: Request, *, refused: bool = False) -> list[Effect]:
        """A `Send` failed, or was not answered within the request timeout.

        `refused`: the voter's host refused the connection.
        """
        if not self._begins(now):
            return []
        self._dispatch_failure(now, voter, request)
        if refused:
            self._following.refused(now, voter)
        return self._finish(now)

    def append(self, now: float, ticket: int, records: tuple[bytes, ...]) -> list[Effect]:
        """Append records of this node's controller, as one batch."""
        if not self._begins(now):
            return []
        self._leading.append(ticket, records)
        return self._finish(now)

    def flushed(self, now: float) -> list[Effect]:
        """An fsync of the log has returned; `durable_end_offset` of the log says how far it reached."""
        core = self._core
        if not self._begins(now):
            return []
        core.log_in_motion = core.log.durable_end_offset < core.log.log_end_offset
        self._following.flushed()
        self._leading.flushed(now)
        return self._finish(now)

    def synced_by_mistake(self, now: float) -> list[Effect]:
        """The mutant `follower_fetch_before_fsync`: appended records count as durable."""
        self._core.log_in_motion = False
        return self._finish(now)

    def tick(self, now: float) -> list[Effect]:
        """Do what is due at `now`."""
        return self._finish(now) if self._begins(now) else []

    def resign(self, now: float, epoch: int) -> list[Effect]:
        """Resign from the leadership of `epoch` and notify the voters (K595-27); no effect if this node no longer leads
        it."""
        role = self._core.role
        if not self._begins(now) or not isinstance(role, Leader) or role.epoch != epoch:
            return []
        self._leading.resign(now)
        return self._finish(now)

    def shut_down(self, now: float) -> list[Effect]:
        """Resign as leader or candidate and notify the voters (K595-27). This node starts no election from now on."""
        core = self._core
        if not self._begins(now):
            return []
        core.shutting_down = True
        role = core.role
        if isinstance(role, Leader):
            self._leading.resign(now)
        elif isinstance(role, Candidate):
            other_voters = core.other_voters
            request = EndRequest(core.cluster_id, None, role.epoch, other_voters)
            core.emit(*(Send(voter, request) for voter in other_voters))
        return self._finish(now)

    # --- queries

    def describe(self, now: float) -> QuorumStatus | None:
        """The leader's view of the quorum; None when this node does not lead."""
        return self._leading.describe(now)

    def waits_for(self) -> tuple[int, ...]:
        """The voters that the leader of a new quorum waits for; empty at any other node."""
        return self._leading.waits_for()

    def deadline(self) -> float | None:
        """The time of the next `tick`; None when only events can change the state."""
        if self._core.failed:
            return None
        if self._core.shutting_down:
            return None
        return earliest(self._core.role.deadline(), self._following.deadline())

    def twin(self, log: MetadataLogView | None = None, shared: Iterable[object] = ()) -> "RaftNode":
        """A copy for questions that must not change this node. It reads `log`, or the log of this node, and draws from
        a random source of its own. The `shared` objects are not copied."""
        core = self._core
        constants = (core.settings, core.mutants, core.voters, *(voters for _, voters in core.history.sets))
        memo: dict[int, object] = {id(part): part for part in (*constants, *shared)}
        return deepcopy(self, {**memo, id(core.log): log or core.log, id(core.rng): random.Random(0)})

    # --- inside

    def _begins(self, now: float) -> bool:
        """Whether events may still change the state. Applies voter changes by the effects of earlier events."""
        if self._core.failed:
            return False
        self._core.take_in_voters(now)
        if isinstance(self._core.role, Leader):
            self._core.note_leader(now, self._core.settings.node_id)
        return True

    def _finish(self, now: float) -> list[Effect]:
        """Do whatever is due in the role after the event, and return all effects."""
        core = self._core
        old_role: Role | None = None
        while core.role is not old_role and not core.failed:
            old_role = core.role
            if not core.shutting_down:
                self._votes.poll(now)
                if isinstance(core.role, Candidate) and core.role.ballot.won:
                    self._leading.start(now)
                self._following.poll(now)
            self._leading.poll(now)
        return core.take_effects()

    def _foreign(self, request: Request) -> bool:
        """Whether the request comes from another cluster. A sender that does not know its cluster id yet passes
        (K595-47)."""
        own_cluster = self._core.cluster_id
        return request.cluster_id is not None and own_cluster is not None and request.cluster_id != own_cluster

    def _refuse_foreign(self, ticket: int, request: Request) -> None:
        core = self._core
        self._refuse(ticket, request, ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not isinstance(request, BeginRequest):
            return
        if request.leader_id in core.settings.other_voters and request.epoch >= core.role.epoch:
            core.fail(_foreign_leader(request.leader_id, f"{request.cluster_id!r}", core.cluster_id))

    def _refuse(self, ticket: int, request: Request, error: ErrorCode) -> None:
        """Answer a request of any type with an error, without a change of state."""
        leader, epoch = self._core.role.leader_id, self._core.role.epoch
        answer = Response(error, leader, epoch)
        if isinstance(request, VoteRequest):
            answer = VoteResponse(error, leader, epoch, False)
        elif isinstance(request, SnapshotRequest):
            answer = SnapshotResponse(error, leader, epoch)
        elif isinstance(request, FetchRequest):
            answer = FetchResponse(error, leader, epoch)
        self._core.emit(Reply(ticket, answer))

    def _refused_as_foreign(self, now: float, voter: int, request: Request) -> None:
        """Another cluster rejected the request: a rejected vote, but fatal if the elected leader says so (K595-47)."""
        core = self._core
        if isinstance(request, FetchRequest | SnapshotRequest) and voter == core.role.leader_id:
            core.fail(_foreign_leader(voter, "another", core.cluster_id))
        elif isinstance(request, VoteRequest):
            response = VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, None, request.epoch, False)
            self._votes.answered(now, voter, request, response)
        else:
            self._dispatch_failure(now, voter, request)

    def _dispatch_answer(self, now: float, voter: int, request: Request, response: Response) -> None:
        if isinstance(request, VoteRequest):
            assert isinstance(response, VoteResponse)
            self._votes.answered(now, voter, request, response)
        elif isinstance(request, BeginRequest):
            if response.error is ErrorCode.NONE:
                self._leading.begin_answered(voter, request)
            else:
                self._leading.begin_unanswered(now, voter, request)
        elif isinstance(request, EndRequest):
            self._leading.end_answered(voter, request)
        elif isinstance(request, SnapshotRequest):
            assert isinstance(response, SnapshotResponse)
            self._following.snapshot_answered(now, voter, request, response)
        else:
            assert isinstance(response, FetchResponse)
            self._following.answered(now, voter, request, response)

    def _dispatch_failure(self, now: float, voter: int, request: Request) -> None:
        if isinstance(request, VoteRequest):
            self._votes.unanswered(now, voter, request)
        elif isinstance(request, BeginRequest):
            self._leading.begin_unanswered(now, voter, request)
        elif isinstance(request, EndRequest):
            # Best effort, never repeated (K595-32): a voter that missed it notices by its own timers.
            self._leading.end_answered(voter, request)
        else:
            self._following.unanswered(now, request)


def _foreign_leader(leader_id: int, theirs: str, own_cluster: str | None) -> str:
    return (
        f"the elected leader {leader_id} belongs to the cluster {theirs}, this node to {own_cluster!r}; "
        "correct cluster.id or quorum.voters"
    )
