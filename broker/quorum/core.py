"""The state that all parts of the state machine share: the role, the log's ends, the effects, and the role change.

The legal transitions between roles: one table, and the invariants that hold for every transition.

No other module decides whether a role may follow another; `Core.transition_durably` is the only caller.
"""

import random
from typing import Protocol

from broker.errors import ErrorCode
from broker.mutants import Mutants
from broker.protocol.schema import NO_ID
from broker.quorum.effects import Effect, Fail, LeadershipLost, Persist, Reply
from broker.quorum.election_state import ElectionState
from broker.quorum.messages import FetchResponse, OffsetAndEpoch, Predecessor
from broker.quorum.request_pacing import FetchLoop, Outreach
from broker.quorum.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    ReplicaProgress,
    Resigned,
    Role,
    Unattached,
    Voted,
)
from broker.quorum.settings import QuorumSettings
from broker.quorum.voters import VoterHistory, VoterSet

WITHIN_AN_EPOCH: dict[type[Role], tuple[type[Role], ...]] = {
    Unattached: (Voted, Prospective, Follower),
    Voted: (Prospective, Follower),
    Prospective: (Unattached, Voted, Follower),
    Candidate: (Leader, Voted, Follower),
    Leader: (Resigned,),
    Follower: (Prospective,),
    Resigned: (),
}

TO_A_LATER_EPOCH: dict[type[Role], tuple[type[Role], ...]] = {
    Unattached: (Unattached, Voted, Follower),
    Voted: (Unattached, Voted, Follower),
    Prospective: (Unattached, Voted, Follower, Candidate),
    Candidate: (Unattached, Voted, Follower),
    Leader: (Unattached, Voted, Follower),
    Follower: (Unattached, Voted, Follower),
    Resigned: (Unattached, Voted, Follower),
}

OBSERVER_ROLES: tuple[type[Role], ...] = (Unattached, Voted, Follower)
"""From Voted, too: the newer log of a candidate may make this node a voter before its own log does (KIP-853)."""


class IllegalTransitionError(AssertionError):
    """A bug of this broker: the state machine asked for a transition that the protocol forbids."""


def check_transition(old: Role, new: Role, *, is_voter: bool) -> None:
    """Raise `IllegalTransitionError` unless `new` may follow `old`."""
    edge = f"{old.name} of epoch {old.epoch} -> {new.name} of epoch {new.epoch}"
    if new.epoch < old.epoch:
        raise IllegalTransitionError(f"{edge}: an epoch never goes back")
    table = WITHIN_AN_EPOCH if new.epoch == old.epoch else TO_A_LATER_EPOCH
    if type(new) not in table[type(old)]:
        raise IllegalTransitionError(f"{edge}: not in the table of transitions")
    if not is_voter and type(new) not in OBSERVER_ROLES:
        raise IllegalTransitionError(f"{edge}: this node is an observer")
    if isinstance(new, Candidate) and new.epoch != old.epoch + 1:
        raise IllegalTransitionError(f"{edge}: a candidate stands in the next epoch")
    if new.epoch > old.epoch:
        return
    if old.voted_id is not None and new.voted_id != old.voted_id:
        raise IllegalTransitionError(f"{edge}: the vote for {old.voted_id} would change to {new.voted_id}")
    if old.elected_id is not None and new.elected_id != old.elected_id:
        raise IllegalTransitionError(f"{edge}: the leader {old.elected_id} would change to {new.elected_id}")


class Epochs(Protocol):
    """The leader epochs of a log."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch <= `epoch` and its end offset; epoch -1 if the log has no such epoch."""
        ...


class MetadataLogView(Protocol):
    """The part of the log that the state machine reads. Only the runner writes to the log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def durable_end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int: ...

    @property
    def epochs(self) -> Epochs: ...


class Core:
    """The state of one member of the quorum. `RaftNode` owns it; the parts change it only through these methods."""

    def __init__(
        self,
        settings: QuorumSettings,
        log: MetadataLogView,
        voters: VoterHistory,
        rng: random.Random,
        role: Role,
        mutants: Mutants,
        now: float,
    ) -> None:
        self.settings = settings
        self.log = log
        self.history = voters
        self._voters_seen = voters.current
        self.rng = rng
        self.role = role
        self.last_leader = Predecessor(None, now)
        """The leader that this node has heard last. A process that ended before `now` may have heard one until then."""
        self.mutants = mutants
        self._strictly_less = mutants.active("diverging_strictly_less")
        self.ignores_keys = mutants.active("voter_key_ignored")
        self.cluster_id = settings.cluster_id
        """None until this node knows the id. Requests then carry no id, and requests of any cluster pass (K595-47,
        K595-49)."""
        self.snapshot: OffsetAndEpoch | None = None
        """The newest snapshot on this node: the log starts at its end."""
        self.high_watermark = 0
        """The offset below which this node knows everything to be committed. It never decreases while the node runs."""
        self.log_in_motion = False
        """Whether appends or truncations are not yet durable. The node does not fetch meanwhile, because a fetch offset
        promises that everything below it is on disk (K595-7)."""
        self.shutting_down = False
        self.failed = False
        self._effects: list[Effect] = []

    def emit(self, *effects: Effect) -> None:
        """Append to the list of effects that the runner executes, in order."""
        self._effects.extend(effects)

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def fail(self, reason: str) -> None:
        """Stop this node permanently."""
        self.failed = True
        self.emit(Fail(reason))

    def log_end(self) -> OffsetAndEpoch:
        """The end of the log, in the form that votes and fetches carry."""
        return OffsetAndEpoch(self.log.last_epoch, self.log.log_end_offset)

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The largest local epoch <= `epoch` and its end; without such an epoch the log's start, with epoch -1."""
        if epoch >= self.log.last_epoch:
            return self.log_end()
        below = epoch - 1 if self._strictly_less else epoch
        found_epoch, end = self.log.epochs.end_offset_for(below, self.log.log_end_offset)
        if found_epoch < 0 or found_epoch > epoch:
            return OffsetAndEpoch(-1, self.log.log_start_offset)
        return OffsetAndEpoch(found_epoch, end)

    # --- voters

    @property
    def voters(self) -> VoterSet:
        """The voters: the newest set in the log, committed or not (KIP-853)."""
        return self.history.current

    @property
    def is_voter(self) -> bool:
        """Whether this node is a voter according to its own log."""
        return self.counts(self.settings.node_id, self.settings.directory_id)

    @property
    def other_voters(self) -> tuple[int, ...]:
        return self.voters.others(self.settings.node_id)

    def counts(self, replica: int, directory: bytes) -> bool:
        """Whether a replica with this disk is a voter. A voter whose disk was replaced does not count (H22)."""
        return replica in self.voters.ids if self.ignores_keys else self.voters.has(replica, directory)

    def is_meant(self, voter_directory: bytes) -> bool:
        """Whether a request to a voter addresses this node with this disk. The sender may have a newer log than this
        observer and then knows the voters better (KIP-853)."""
        if voter_directory == NO_ID or self.ignores_keys:
            return self.is_voter
        return voter_directory == self.settings.directory_id

    def take_in_voters(self, now: float) -> None:
        """Adapt the role's timers after an append or a truncation, because another voter set may be in force."""
        voters = self.voters
        if voters is self._voters_seen:
            return
        self._voters_seen = voters
        role, settings = self.role, self.settings
        if isinstance(role, Leader):
            role.take_in(self.other_voters)
        elif isinstance(role, Follower):
            role.votes(now + settings.fetch_timeout_s if self.is_voter else None)
        elif isinstance(role, Unattached | Voted):
            role.votes(self.election_time(now, settings.election_timeout_s) if self.is_voter else None)

    # --- roles

    def election_state(self, role: Role) -> ElectionState:
        """The election state that must be on disk for a role."""
        return ElectionState(role.epoch, role.elected_id, role.voted_id, self.settings.voters)

    def transition_durably(self, role: Role) -> None:
        """Replace the role. Raises `IllegalTransitionError` for a transition that is not in the table.

        Invariant: a role becomes visible only after its election state is on disk. This method adds the write to the
        list of effects before any message that the new role sends, and the runner publishes a role only after it has
        executed the whole list.
        """
        old = self.role
        check_transition(old, role, is_voter=self.is_voter)
        if self.election_state(role) != self.election_state(old):
            self.emit(Persist(self.election_state(role)))
        self.role = role
        if isinstance(old, Leader):
            # Answer parked fetches now: no later event would complete them (H24).
            self.emit(LeadershipLost(old.epoch))
            for _, parked in old.parked():
                self.emit(Reply(parked.ticket, self.fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)))

    def fetch_error(self, error: ErrorCode) -> FetchResponse:
        return FetchResponse(error, self.role.leader_id, self.role.epoch)

    def become_unattached(self, now: float, epoch: int, *, soon: bool = False) -> None:
        """Adopt an epoch with an unknown leader. A voter stands after a time; `soon` skips the wait for a leader."""
        wait = 0.0 if soon else self.settings.election_timeout_s
        self.transition_durably(
            Unattached(epoch, self.new_fetch_loop(None), self.election_time(now, wait) if self.is_voter else None)
        )

    def become_voted(self, now: float, epoch: int, candidate_id: int, *, wait: float) -> None:
        """Give this node's vote in `epoch` to a candidate, or keep it there after a lost election."""
        election_at = self.election_time(now, wait) if self.is_voter else None
        self.transition_durably(Voted(epoch, candidate_id, self.new_fetch_loop(None), election_at))

    def become_follower(self, now: float, epoch: int, leader_id: int) -> None:
        """Follow the elected leader of `epoch`. A vote that this node gave in this epoch is kept (H20)."""
        vote = self.role.voted_id if epoch == self.role.epoch else None
        deadline = now + self.settings.fetch_timeout_s if self.is_voter else None
        self.transition_durably(Follower(epoch, leader_id, vote, self.new_fetch_loop(leader_id), deadline))

    def note_leader(self, now: float, leader_id: int) -> None:
        """The leader, possibly this node itself, acts: its records have reached this node."""
        self.last_leader = Predecessor(leader_id, now)

    def observe(self, now: float, leader_id: int | None, epoch: int) -> None:
        """Adopt the leader and epoch of an answer if they are newer (K595-26, K595-32, K595-39)."""
        leader = leader_id if self.may_be_led_by(leader_id) else None
        if epoch > self.role.epoch:
            if leader is None:
                self.become_unattached(now, epoch)
            else:
                self.become_follower(now, epoch, leader)
        elif epoch == self.role.epoch and leader is not None and self.role.elected_id is None:
            self.become_follower(now, epoch, leader)

    def may_be_led_by(self, leader_id: int | None) -> bool:
        """Whether this node can follow `leader_id`: another voter. An answer that names this node as leader is ignored
        (H18)."""
        return leader_id is not None and leader_id in self.settings.other_voters

    def new_fetch_loop(self, leader_id: int | None) -> FetchLoop:
        return FetchLoop(leader_id, self.settings, self.rng)

    def election_time(self, now: float, wait: float) -> float:
        """When to stand: after `wait` and a random delay (K595-15); at once when this node is the only voter."""
        if self.voters.majority == 1:
            return now
        return now + wait + self.settings.election_delay(self.rng)


def initial_role(
    now: float,
    stored: ElectionState,
    settings: QuorumSettings,
    log: MetadataLogView,
    voters: VoterSet,
    rng: random.Random,
    *,
    resumes: bool = False,
) -> Role:
    """The role after a start, from the quorum-state file and the log.

    A node never starts as leader or candidate of an epoch that it may have led before. Its unflushed records are lost,
    and it would assign their offsets to other records of the same epoch (H18, KAFKA-10527).
    `resumes`: the mutant resume_as_leader.
    """
    epoch = max(stored.epoch, log.last_epoch)
    voter = voters.has(settings.node_id, settings.directory_id)
    wait = 0.0 if voters.majority == 1 else settings.election_timeout_s + settings.election_delay(rng)
    if epoch > stored.epoch:
        return Unattached(epoch, FetchLoop(None, settings, rng), now + wait if voter else None)
    if stored.leader_id == settings.node_id and voter:
        other_voters = voters.others(settings.node_id)
        if resumes:
            replicas, outreach = {voter: ReplicaProgress() for voter in other_voters}, Outreach(other_voters, settings)
            until = now + settings.check_quorum_timeout_s if voters.majority > 1 else None
            return Leader(epoch, settings.node_id, log.log_end_offset - 1, replicas, outreach, until, now)
        return Resigned(epoch, settings.node_id, other_voters, Outreach(other_voters, settings), now + wait)
    if stored.leader_id is not None and stored.leader_id in settings.other_voters:
        deadline = now + settings.fetch_timeout_s if voter else None
        return Follower(epoch, stored.leader_id, stored.voted_id, FetchLoop(stored.leader_id, settings, rng), deadline)
    if stored.voted_id is not None:
        return Voted(epoch, stored.voted_id, FetchLoop(None, settings, rng), now + wait if voter else None)
    return Unattached(epoch, FetchLoop(None, settings, rng), now + wait if voter else None)
