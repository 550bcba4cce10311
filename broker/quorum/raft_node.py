"""One member of the quorum as a pure state machine: takes events, returns effects in the order of execution.

`now` is the loop's time in seconds and never decreases. The runner executes all effects of an event before the next
event, and calls `tick` at `deadline()`.
"""

from __future__ import annotations

import random

from broker.errors import ErrorCode
from broker.mutants import Mutants
from broker.quorum.core import Core, MetadataLogView, initial_role
from broker.quorum.effects import CommitEffect, Effect, Persist, Reply, Send
from broker.quorum.election_state import ElectionState
from broker.quorum.following import Following
from broker.quorum.leading import Leading, QuorumStatus
from broker.quorum.messages import (
    NO_EPOCH_FOLLOWS,
    BeginRequest,
    BeginResponse,
    EndRequest,
    EndResponse,
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
from broker.quorum.roles import Candidate, Leader, Role, earliest
from broker.quorum.settings import QuorumSettings
from broker.quorum.voters import VoterHistory
from broker.quorum.votes import Votes


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
            others = core.other_voters
            request = EndRequest(core.cluster_id, None, role.epoch, others)
            core.emit(*(Send(voter, request) for voter in others))
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
        before: Role | None = None
        while core.role is not before and not core.failed:
            before = core.role
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
        own = self._core.cluster_id
        return request.cluster_id is not None and own is not None and request.cluster_id != own

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
        answer: Response
        if isinstance(request, VoteRequest):
            answer = VoteResponse(error, leader, epoch, False)
        elif isinstance(request, BeginRequest):
            answer = BeginResponse(error, leader, epoch)
        elif isinstance(request, EndRequest):
            answer = EndResponse(error, leader, epoch)
        elif isinstance(request, SnapshotRequest):
            answer = SnapshotResponse(error, leader, epoch)
        else:
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


def _foreign_leader(leader_id: int, theirs: str, own: str | None) -> str:
    return (
        f"the elected leader {leader_id} belongs to the cluster {theirs}, this node to {own!r}; correct cluster.id or "
        "quorum.voters"
    )
