"""The roles of a member of the quorum, one class each: what a role knows, and which answers follow from that alone.

A role is replaced, never converted: `transitions.py` is the only place that allows it. An *observer* is a node that is
not in the voter set; it never stands, and is only ever `Unattached`, `Voted` or `Follower` (K595-42).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from broker.protocol.schema import NO_ID
from broker.quorum.messages import FetchRequest, OffsetAndEpoch
from broker.quorum.request_pacing import FetchLoop, Outreach


class Role(ABC):
    """What every role tells: the newest epoch, its leader as far as known, and this node's vote in it."""

    name: ClassVar[str]
    epoch: int

    @property
    def leader_id(self) -> int | None:
        """The leader that other nodes and clients are pointed at."""
        return None

    @property
    def elected_id(self) -> int | None:
        """The leader of this epoch that is remembered on disk, even if it has resigned."""
        return self.leader_id

    @property
    def voted_id(self) -> int | None:
        return None

    @property
    def has_live_leader(self) -> bool:
        """Whether this node leads, or hears from its leader: then it does not help to depose it (KIP-996, H20)."""
        return False

    def may_vote_for(self, candidate_id: int, up_to_date: bool) -> bool:
        """Whether to grant a vote in this role's own epoch (K595-14, K595-16, K595-18)."""
        if self.elected_id is not None:
            return False
        return up_to_date if self.voted_id is None else candidate_id == self.voted_id

    def may_pre_vote(self, up_to_date: bool) -> bool:
        """Whether to grant a pre-vote in this role's own epoch. It binds nobody."""
        return up_to_date and not self.has_live_leader

    @abstractmethod
    def deadline(self) -> float | None:
        """When this role wants to act next without being asked."""


def earliest(*times: float | None) -> float | None:
    """The first of some deadlines, of which any may be absent."""
    return min((time for time in times if time is not None), default=None)


@dataclass(slots=True)
class Unattached(Role):
    """Knows an epoch but no leader of it, and has not voted in it."""

    name: ClassVar[str] = "unattached"
    epoch: int
    fetching: FetchLoop
    election_at: float | None
    leaderless: dict[int, None] = field(default_factory=dict)
    """The voters that said that they know of no leader either."""
    hurried: bool = False
    """Whether a majority has said so, and the election was brought forward."""

    def stand_at(self, time: float) -> None:
        self.election_at = time

    def votes(self, election_at: float | None) -> None:
        """This node has become a voter, which stands at that time, or, with None, an observer."""
        self.election_at = election_at

    def missed_leader(self, voter: int) -> None:
        """A voter said that it knows of no leader either."""
        self.leaderless[voter] = None

    def hurry(self, time: float) -> None:
        """Bring the election forward."""
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
    """The answers to a vote request. In memory only: a restarted candidate starts afresh (K595-21)."""

    voters: tuple[int, ...]
    granted: dict[int, None] = field(default_factory=dict)
    rejected: dict[int, None] = field(default_factory=dict)
    minority_wins: bool = False
    """The mutant."""

    def record(self, voter: int, granted: bool) -> None:
        """Count the first answer of each voter; a duplicated one changes nothing."""
        if voter in self.voters and voter not in self.granted and voter not in self.rejected:
            (self.granted if granted else self.rejected)[voter] = None

    @property
    def won(self) -> bool:
        return len(self.granted) > len(self.voters) // 2 - self.minority_wins

    @property
    def lost(self) -> bool:
        """Whether a majority has become impossible (K595-22)."""
        return len(self.voters) - len(self.rejected) <= len(self.voters) // 2


@dataclass(slots=True)
class Prospective(Role):
    """Asks whether it would win before it disturbs anyone with a new epoch (KIP-996, H20).

    It may still know the leader it lost sight of and the vote it gave in this epoch, and keeps both.
    """

    name: ClassVar[str] = "prospective"
    epoch: int
    ballot: Ballot
    outreach: Outreach
    give_up_at: float
    last_leader_id: int | None
    vote: int | None
    leader_heard_at: float | None = None
    """When the leader itself answered that it still leads; None: it has not."""
    fetching: FetchLoop | None = None
    """Of the leader it lost sight of: what is under way may still come, and shows that it lives."""
    download: Download | None = None

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
    """Stands in an epoch of its own making and has voted for itself."""

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
    """A snapshot that is being fetched: its first `position` bytes are here."""

    snapshot: OffsetAndEpoch
    position: int = 0

    def took(self, size: int) -> None:
        self.position += size


@dataclass(slots=True)
class Follower(Role):
    """Follows the leader of this epoch. As an observer it never stands, whatever its timers say."""

    name: ClassVar[str] = "follower"
    epoch: int
    leader: int
    vote: int | None
    fetching: FetchLoop
    fetch_deadline: float | None
    """When the leader counts as gone; None for observers, who look for another leader for ever."""
    election_at: float | None = None
    """When to stand, once the leader is gone: after a random delay (K595-15), or as a successor in turn (K595-29)."""
    has_fetched: bool = False
    leader_high_watermark: int = -1
    download: Download | None = None
    """The snapshot that is being fetched; what is fetched meanwhile is that."""

    @property
    def leader_id(self) -> int | None:
        return self.leader

    @property
    def voted_id(self) -> int | None:
        return self.vote

    def stand_at(self, time: float) -> None:
        self.election_at = time

    def resume(self, before: Prospective) -> None:
        """Go on with what was under way from this leader when it was lost sight of."""
        if before.fetching is not None:
            self.fetching, self.download = before.fetching, before.download

    def votes(self, fetch_deadline: float | None) -> None:
        """This node has become a voter, for which the leader is gone at that time, or, with None, an observer."""
        self.fetch_deadline = fetch_deadline
        self.election_at = None

    def heard_leader(self, next_by: float) -> None:
        """The leader lives; it counts as gone when it is not heard of again by then."""
        self.has_fetched = True
        self.election_at = None
        if self.fetch_deadline is not None:
            self.fetch_deadline = next_by

    def told(self, high_watermark: int) -> None:
        """The leader said what is committed."""
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

    It remembers its election on disk, so that it cannot vote for another in this epoch, and tells the voters to go on.
    """

    name: ClassVar[str] = "resigned"
    epoch: int
    node_id: int
    preferred_successors: tuple[int, ...]
    outreach: Outreach
    give_up_at: float | None
    """When to move on to the next epoch; None while shutting down."""

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
    """What the leader knows of another replica. Times are the loop's seconds; None before the first fetch."""

    directory: bytes = NO_ID
    """The disk that it fetched for last."""
    fetch_offset: int | None = None
    last_fetch_at: float | None = None
    last_caught_up_at: float | None = None
    leader_end_at_last_fetch: int = 0
    high_watermark_sent: int = -1
    parked: ParkedQuorumFetch | None = None

    def comes_with(self, directory: bytes) -> None:
        """It fetches for this disk. What was known of another one is not true of this."""
        if directory != self.directory:
            self.directory = directory
            self.fetch_offset = self.last_caught_up_at = None

    def fetched(self, now: float, offset: int, leader_end: int) -> None:
        """A valid fetch from `offset`: everything below it is on this replica's disk (K595-7)."""
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
        """Its parked fetch was completed, with this."""
        self.parked = None
        self.high_watermark_sent = high_watermark


@dataclass(slots=True)
class Leader(Role):
    """Leads its epoch. `epoch_start_offset` is where its LeaderChange record is."""

    name: ClassVar[str] = "leader"
    epoch: int
    node_id: int
    epoch_start_offset: int
    voters: dict[int, ReplicaProgress]
    """The other voters."""
    outreach: Outreach
    """BeginQuorumEpoch, until each voter has endorsed this leader (K595-23)."""
    check_quorum_at: float | None
    """When to resign unless a majority has fetched (K595-43, H19); None when this node alone is the majority."""
    began_at: float = 0.0
    observers: dict[int, ReplicaProgress] = field(default_factory=dict)
    heard_from: dict[int, None] = field(default_factory=dict)
    """The voters that fetched since the check-quorum timer was last set."""
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
        """These are the other voters from here on: who was an observer keeps what is known of it."""
        known = self.voters
        self.voters = {voter: known.get(voter) or self.observers.pop(voter, ReplicaProgress()) for voter in voters}
        for gone in known.keys() - self.voters.keys():
            self.outreach.answered(gone)
            self.heard_from.pop(gone, None)

    def endorsed(self, voter: int, majority: int, resign_at: float) -> None:
        """A voter has fetched; once a majority has, this leader resigns only at `resign_at` (K595-43, H19)."""
        self.outreach.answered(voter)
        self.heard_from[voter] = None
        if len(self.heard_from) + 1 >= majority:
            self.heard_from.clear()
            self.check_quorum_at = resign_at

    def commit(self, offset: int) -> None:
        self.high_watermark = offset

    def replicas(self) -> Iterable[ReplicaProgress]:
        """All replicas but the leader itself, voters first."""
        yield from self.voters.values()
        yield from self.observers.values()

    def parked(self) -> list[tuple[ReplicaProgress, ParkedQuorumFetch]]:
        return [(replica, replica.parked) for replica in self.replicas() if replica.parked is not None]

    def everywhere(self, own_durable_end: int) -> int:
        """The offset below which everything is on the disks of all voters."""
        return min(own_durable_end, *(progress.fetch_offset or 0 for progress in self.voters.values()), 1 << 62)

    def majority_offset(self, own_durable_end: int, *, observers_count: bool = False) -> int:
        """The largest offset below which everything is on the disks of a majority of the voters, observers apart.

        `observers_count`: the mutant observer_counts."""
        counted = self.replicas() if observers_count else self.voters.values()
        offsets = [own_durable_end, *(progress.fetch_offset or 0 for progress in counted)]
        offsets.sort(reverse=True)
        return offsets[(len(self.voters) + 1) // 2]

    def preferred_successors(self) -> tuple[int, ...]:
        """The other voters, the one that holds most first (K595-28)."""
        return tuple(sorted(self.voters, key=lambda voter: (-(self.voters[voter].fetch_offset or -1), voter)))

    def deadline(self) -> float | None:
        parked = (fetch.deadline for _, fetch in self.parked())
        return earliest(self.check_quorum_at, self.outreach.deadline(), *parked)
