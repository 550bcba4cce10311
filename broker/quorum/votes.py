"""Votes: requesting, granting and counting them (KIP-595 Vote; pre-vote after KIP-996)."""

from __future__ import annotations

from broker.clock_rates import PACE
from broker.errors import ErrorCode
from broker.protocol.schema import NO_ID
from broker.quorum.core import Core
from broker.quorum.effects import Reply, Send
from broker.quorum.messages import VoteRequest, VoteResponse
from broker.quorum.request_pacing import Outreach
from broker.quorum.roles import Ballot, Candidate, Follower, Prospective, Unattached, Voted


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
