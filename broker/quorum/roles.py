"""The roles of a quorum member, one class each: the state of the role, and the answers that follow from it alone.

A role is replaced, never converted; `transitions.py` has the table of legal transitions. An *observer* is a node that
is not in the voter set. It never stands, and is only ever `Unattached`, `Voted` or `Follower` (K595-42).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from broker.protocol.schema import NO_ID
from broker.quorum.messages import FetchRequest, OffsetAndEpoch, Predecessor
from broker.quorum.request_pacing import FetchLoop, Outreach


class Role(ABC):
    """The state that every role has: the newest epoch, its leader if known, and this node's vote in it."""

    name: ClassVar[str]
    epoch: int

    @property
    def leader_id(self) -> int | None:
        """The leader that other nodes and clients are directed to."""
        return None

    @property
    def elected_id(self) -> int | None:
        """The leader of this epoch as stored on disk, even if it has resigned."""
        return self.leader_id

    @property
    def voted_id(self) -> int | None:
        return None

    @property
    def has_live_leader(self) -> bool:
        """Whether this node leads, or hears from its leader. If so, it does not help to depose that leader (KIP-996,
        H20)."""
        return False

    def may_vote_for(self, candidate_id: int, up_to_date: bool) -> bool:
        """Whether to grant a vote in this role's own epoch (K595-14, K595-16, K595-18)."""
        if self.elected_id is not None:
            return False
        return up_to_date if self.voted_id is None else candidate_id == self.voted_id

    def may_pre_vote(self, up_to_date: bool) -> bool:
        """Whether to grant a pre-vote in this role's own epoch. A pre-vote commits the voter to nothing."""
        return up_to_date and not self.has_live_leader

    @abstractmethod
    def deadline(self) -> float | None:
        """When this role acts next without an event."""


def earliest(*times: float | None) -> float | None:
    """The earliest of some deadlines; None stands for no deadline."""
    return min((time for time in times if time is not None), default=None)


@dataclass(slots=True)
class Unattached(Role):
    """Knows an epoch but no leader in it, and has not voted in it."""

    name: ClassVar[str] = "unattached"
    epoch: int
    fetching: FetchLoop
    election_at: float | None
    leaderless: dict[int, None] = field(default_factory=dict)
    """The voters that answered that they know no leader."""
    hurried: bool = False
    """Whether a majority has answered so, and the election was moved forward."""

    def stand_at(self, time: float) -> None:
        self.election_at = time

    def votes(self, election_at: float | None) -> None:
        """This node's voter status changed: a voter stands at that time, an observer (None) never."""
        self.election_at = election_at

    def missed_leader(self, voter: int) -> None:
        """A voter answered that it knows no leader."""
        self.leaderless[voter] = None

    def hurry(self, time: float) -> None:
        """Move the election forward."""
        self.hurried = True
        self.stand_at(time if self.election_at is None else min(self.election_at, time))

    def deadline(self) -> float | None:
        return self.election_at


@dataclass(slots=True)
class Voted(Role):
    """Has voted in this epoch and waits for the outcome."""

    name: ClassVar[str] = "voted"
    epoch: int
    vote: int
    fetching: FetchLoop
    election_at: float | None

    @property
    def voted_id(self) -> int | None:
        return self.vote

    def stand_at(self, time: float) -> None:
        self.election_at = time

    def votes(self, election_at: float | None) -> None:
        """As `Unattached.votes`."""
        self.election_at = election_at

    def deadline(self) -> float | None:
        return self.election_at


@dataclass(slots=True)
class Ballot:
    """The answers to a vote request. In memory only: a restarted candidate starts a new ballot (K595-21)."""

    voters: tuple[int, ...]
    granted: dict[int, float] = field(default_factory=dict)
    """By voter when it last heard a leader, at the latest, in seconds of this node's loop."""
    rejected: dict[int, None] = field(default_factory=dict)
    minority_wins: bool = False
    """The mutant."""

    def record(self, voter: int, granted: bool, heard_at: float) -> None:
        """Count the first answer of each voter; a duplicate changes nothing."""
        if voter not in self.voters or voter in self.granted or voter in self.rejected:
            return
        if granted:
            self.granted[voter] = heard_at
        else:
            self.rejected[voter] = None

    @property
    def won(self) -> bool:
        return len(self.granted) > len(self.voters) // 2 - self.minority_wins

    @property
    def lost(self) -> bool:
        """Whether a majority has become impossible (K595-22)."""
        return len(self.voters) - len(self.rejected) <= len(self.voters) // 2


@dataclass(slots=True)
class Prospective(Role):
    """Asks the voters whether it would win, before it disturbs them with a new epoch (KIP-996, H20).

    It keeps the leader that it lost and the vote that it gave in this epoch.
    """

    name: ClassVar[str] = "prospective"
    epoch: int
    ballot: Ballot
    outreach: Outreach
    give_up_at: float
    last_leader_id: int | None
    vote: int | None
    leader_heard_at: float | None = None
    """When the leader itself answered that it still leads; None before."""
    fetching: FetchLoop | None = None
    """The fetches from the lost leader: an answer to the one in flight proves that the leader is alive."""
    download: "Download | None" = None

    @property
    def leader_id(self) -> int | None:
        return self.last_leader_id

    def heard_leader(self, now: float) -> None:
        self.leader_heard_at = now

    @property
    def voted_id(self) -> int | None:
        return self.vote

    def give_up_by(self, time: float) -> None:
        self.give_up_at = min(self.give_up_at, time)

    def deadline(self) -> float | None:
        return earliest(self.give_up_at, self.outreach.deadline())


@dataclass(slots=True)
class Candidate(Role):
    """Stands in a new epoch and has voted for itself."""

    name: ClassVar[str] = "candidate"
    epoch: int
    node_id: int
    ballot: Ballot
    outreach: Outreach
    give_up_at: float

    @property
    def voted_id(self) -> int | None:
        return self.node_id

    def give_up_by(self, time: float) -> None:
        self.give_up_at = min(self.give_up_at, time)

    def deadline(self) -> float | None:
        return earliest(self.give_up_at, self.outreach.deadline())


@dataclass(slots=True)
class Download:
    """A snapshot that is being fetched; its first `position` bytes are on this node."""

    snapshot: OffsetAndEpoch
    position: int = 0

    def took(self, size: int) -> None:
        self.position += size


@dataclass(slots=True)
class Follower(Role):
    """Follows the leader of this epoch. An observer never stands, whatever its timers say."""

    name: ClassVar[str] = "follower"
    epoch: int
    leader: int
    vote: int | None
    fetching: FetchLoop
    fetch_deadline: float | None
    """When the leader counts as gone; None for observers, which never stop looking for a leader."""
    election_at: float | None = None
    """When to stand after the leader is gone: after a random delay (K595-15), or in the order of successors
    (K595-29)."""
    has_fetched: bool = False
    leader_high_watermark: int = -1
    download: Download | None = None
    """The snapshot that is being fetched, instead of the log."""

    @property
    def leader_id(self) -> int | None:
        return self.leader

    @property
    def voted_id(self) -> int | None:
        return self.vote

    def stand_at(self, time: float) -> None:
        self.election_at = time

    def resume(self, prospective: Prospective) -> None:
        """Continue with the fetch that was in flight when this leader was lost."""
        if prospective.fetching is not None:
            self.fetching, self.download = prospective.fetching, prospective.download

    def votes(self, fetch_deadline: float | None) -> None:
        """This node's voter status changed: for a voter the leader is gone at that time, for an observer (None)
        never."""
        self.fetch_deadline = fetch_deadline
        self.election_at = None

    def heard_leader(self, next_by: float) -> None:
        """The leader is alive; it counts as gone if nothing more is heard from it by `next_by`."""
        self.has_fetched = True
        self.election_at = None
        if self.fetch_deadline is not None:
            self.fetch_deadline = next_by

    def learn_high_watermark(self, high_watermark: int) -> None:
        """The leader reported its high watermark."""
        self.leader_high_watermark = high_watermark

    def begin_download(self, snapshot: OffsetAndEpoch) -> None:
        self.download = Download(snapshot)

    def end_download(self) -> None:
        self.download = None

    @property
    def leader_is_gone(self) -> bool:
        return self.election_at is not None

    @property
    def has_live_leader(self) -> bool:
        return self.has_fetched and not self.leader_is_gone

    def deadline(self) -> float | None:
        return self.election_at if self.leader_is_gone else self.fetch_deadline


@dataclass(slots=True)
class Resigned(Role):
    """Led this epoch and never will again: after check quorum, a shutdown, or a restart (H18).

    The election stays on disk, so that this node cannot vote for another candidate in this epoch. It asks the voters to
    elect another leader.
    """

    name: ClassVar[str] = "resigned"
    epoch: int
    node_id: int
    preferred_successors: tuple[int, ...]
    outreach: Outreach
    give_up_at: float | None
    """When to continue in the next epoch; None while shutting down."""

    @property
    def elected_id(self) -> int | None:
        return self.node_id

    @property
    def voted_id(self) -> int | None:
        return self.node_id

    def deadline(self) -> float | None:
        return earliest(self.give_up_at, self.outreach.deadline())


@dataclass(frozen=True, slots=True)
class ParkedQuorumFetch:
    """A fetch that waits at the leader for records or for a newer high watermark."""

    ticket: int
    request: FetchRequest
    deadline: float


@dataclass(slots=True)
class ReplicaProgress:
    """The leader's knowledge of another replica. Times are seconds of the loop's clock; None before the first fetch."""

    directory: bytes = NO_ID
    """The disk of its last fetch."""
    fetch_offset: int | None = None
    last_fetch_at: float | None = None
    last_caught_up_at: float | None = None
    leader_end_at_last_fetch: int = 0
    high_watermark_sent: int = -1
    parked: ParkedQuorumFetch | None = None

    def comes_with(self, directory: bytes) -> None:
        """The replica fetches with this disk. Progress of another disk does not apply to it and is reset."""
        if directory != self.directory:
            self.directory = directory
            self.fetch_offset = self.last_caught_up_at = None

    def fetched(self, now: float, offset: int, leader_end: int) -> None:
        """Record a valid fetch from `offset`: everything below it is on this replica's disk (K595-7)."""
        if offset >= leader_end:
            self.last_caught_up_at = now
        elif self.last_fetch_at is not None and offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_at = self.last_fetch_at
        self.fetch_offset = offset
        self.last_fetch_at = now
        self.leader_end_at_last_fetch = leader_end

    def park(self, fetch: ParkedQuorumFetch) -> None:
        self.parked = fetch

    def answered(self, high_watermark: int) -> None:
        """Its parked fetch was completed with this high watermark."""
        self.parked = None
        self.high_watermark_sent = high_watermark


@dataclass(slots=True)
class Leader(Role):
    """Leads its epoch. `epoch_start_offset` is the offset of its LeaderChange record."""

    name: ClassVar[str] = "leader"
    epoch: int
    node_id: int
    epoch_start_offset: int
    voters: dict[int, ReplicaProgress]
    """The other voters."""
    outreach: Outreach
    """BeginQuorumEpoch requests, until each voter has endorsed this leader (K595-23)."""
    check_quorum_at: float | None
    """When to resign unless a majority has fetched (K595-43, H19); None when this node alone is the majority."""
    began_at: float = 0.0
    predecessor: Predecessor = field(default_factory=partial(Predecessor, None, float("inf")))
    observers: dict[int, ReplicaProgress] = field(default_factory=dict)
    heard_from: dict[int, None] = field(default_factory=dict)
    """The voters that have fetched since the check-quorum timer was last set."""
    high_watermark: int | None = None
    """None until an entry of this epoch is on a majority (K595-36)."""

    @property
    def leader_id(self) -> int | None:
        return self.node_id

    @property
    def voted_id(self) -> int | None:
        return self.node_id

    @property
    def has_live_leader(self) -> bool:
        return True

    def observer(self, replica_id: int) -> ReplicaProgress:
        return self.observers.setdefault(replica_id, ReplicaProgress())

    def forget_observer(self, replica_id: int) -> None:
        del self.observers[replica_id]

    def take_in(self, voters: tuple[int, ...]) -> None:
        """Set the other voters. An observer that becomes a voter keeps its progress."""
        old_voters = self.voters
        self.voters = {voter: old_voters.get(voter) or self.observers.pop(voter, ReplicaProgress()) for voter in voters}
        for removed in old_voters.keys() - self.voters.keys():
            self.outreach.answered(removed)
            self.heard_from.pop(removed, None)

    def endorsed(self, voter: int, majority: int, resign_at: float) -> None:
        """A voter has fetched. Once a majority has, the resignation is postponed to `resign_at` (K595-43, H19)."""
        self.outreach.answered(voter)
        self.heard_from[voter] = None
        if len(self.heard_from) + 1 >= majority:
            self.heard_from.clear()
            self.check_quorum_at = resign_at

    def commit(self, offset: int) -> None:
        self.high_watermark = offset

    def replicas(self) -> Iterable[ReplicaProgress]:
        """All replicas except the leader itself, voters first."""
        yield from self.voters.values()
        yield from self.observers.values()

    def parked(self) -> list[tuple[ReplicaProgress, ParkedQuorumFetch]]:
        return [(replica, replica.parked) for replica in self.replicas() if replica.parked is not None]

    def everywhere(self, own_durable_end: int) -> int:
        """The offset below which everything is on the disks of all voters."""
        return min(own_durable_end, *(progress.fetch_offset or 0 for progress in self.voters.values()), 1 << 62)

    def majority_offset(self, own_durable_end: int, *, observers_count: bool = False) -> int:
        """The largest offset below which everything is on the disks of a majority of the voters; observers do not
        count.

        `observers_count`: the mutant observer_counts."""
        counted = self.replicas() if observers_count else self.voters.values()
        offsets = [own_durable_end, *(progress.fetch_offset or 0 for progress in counted)]
        offsets.sort(reverse=True)
        return offsets[(len(self.voters) + 1) // 2]

    def preferred_successors(self) -> tuple[int, ...]:
        """The other voters, the one with the most complete log first (K595-28)."""
        return tuple(sorted(self.voters, key=lambda voter: (-(self.voters[voter].fetch_offset or -1), voter)))

    def deadline(self) -> float | None:
        parked = (fetch.deadline for _, fetch in self.parked())
        return earliest(self.check_quorum_at, self.outreach.deadline(), *parked)
