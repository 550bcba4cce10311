"""Effects: the actions that the state machine requests from the runner.

The runner executes a list of effects in order, before the next event. The order is the safety argument: the runner
awaits `Persist` and `TruncateEffect` before it executes later effects, so the state that a message depends on is on
disk
before the message leaves (K595-13, K595-19, K595-31).
"""

from dataclasses import dataclass

from broker.quorum.election_state import ElectionState
from broker.quorum.messages import OffsetAndEpoch, Request, Response
from broker.quorum.voters import VoterSet


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the quorum-state file and return once it is durable."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to a voter. Its answer is delivered to `answered`, a failure or timeout to `unanswered`."""

    to: int
    request: Request


@dataclass(frozen=True, slots=True)
class Read:
    """Fill a fetch response with whole batches from `offset` on."""

    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """Fill a snapshot response with bytes from `position` on."""

    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request with this `ticket`."""

    ticket: int
    response: Response
    read: Read | ReadSnapshot | None = None


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Become leader of the log: register the epoch durably, then append the control record (H32)."""

    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """Append the control record that names the voters; they are in force from this offset on (KIP-853)."""

    epoch: int
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class AppendAsLeader:
    """Append records as one batch of the leader's epoch; the call of `ticket` ends when it is committed, or
    uncertain."""

    epoch: int
    records: tuple[bytes, ...]
    ticket: int


@dataclass(frozen=True, slots=True)
class RefuseAppend:
    """Fail the append of `ticket`: this node does not lead, and it wrote nothing."""

    ticket: int


@dataclass(frozen=True, slots=True)
class AppendAsFollower:
    """Append batches that were fetched from the leader of `epoch`."""

    epoch: int
    records: bytes


@dataclass(frozen=True, slots=True)
class TruncateEffect:
    """Remove all records at or past `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class KeepPiece:
    """Write a part of a snapshot that is being fetched."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """A snapshot is fetched completely: make it durable, restart the log at its end, and give it to the state
    machine."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Flush:
    """Start an fsync of the log. `flushed` follows once everything appended so far is durable."""


@dataclass(frozen=True, slots=True)
class CommitEffect:
    """Everything below `high_watermark` is committed, as this node learned in `epoch`: deliver it to the state machine
    that reads the log."""

    high_watermark: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LeadershipEstablished:
    """This node leads `epoch` and its LeaderChange record is committed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """This node no longer leads `epoch`: the outcome of uncommitted appends is uncertain."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Fail:
    """This node must stop, because continuing would break a promise. `reason` is a message for operators."""

    reason: str


Effect = (
    Persist
    | Send
    | Reply
    | AppendLeaderChange
    | AppendVoters
    | AppendAsLeader
    | RefuseAppend
    | AppendAsFollower
    | TruncateEffect
    | KeepPiece
    | InstallSnapshot
    | Flush
    | CommitEffect
    | LeadershipEstablished
    | LeadershipLost
    | Fail
)
