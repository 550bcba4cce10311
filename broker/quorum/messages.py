"""The messages between members of the quorum (KIP-595), as values. `wire.py` converts them to Kafka's messages.

Ids are broker ids. `None` means "no leader" or "no cluster id". Offsets count records, epochs are leader epochs.
Directories are ids of disks; `NO_ID` means that none is given.
"""

from dataclasses import dataclass
from typing import Final

from broker.errors import ErrorCode
from broker.protocol.schema import NO_ID

NO_EPOCH_FOLLOWS: Final = (1 << 31) - 1
"""The largest epoch accepted in a request. A node that adopted a larger one could not start an election above it, nor
could any other node."""


@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """The end of a log: the epoch of its last record (-1 when empty) and the offset after it.

    Ordered as votes compare logs (K595-18): first by epoch, then by offset.
    """

    epoch: int
    offset: int

    def up_to_date_with(self, other: "OffsetAndEpoch") -> bool:
        """Whether a log that ends here is at least as complete as the other (K595-18)."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Asks for a vote in `epoch`; with `pre_vote`, asks whether the voter would grant one in the next epoch (KIP-996).

    `voter_directory`: the disk whose vote is asked for (KIP-853)."""

    cluster_id: str | None
    candidate_id: int
    epoch: int
    log_end: OffsetAndEpoch
    pre_vote: bool = False
    voter_directory: bytes = NO_ID


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """A leader announces its election to a voter."""

    cluster_id: str | None
    leader_id: int
    epoch: int
    voter_directory: bytes = NO_ID


@dataclass(frozen=True, slots=True)
class EndRequest:
    """A leader, or a candidate (`leader_id` None), announces to the voters that it resigns from its epoch."""

    cluster_id: str | None
    leader_id: int | None
    epoch: int
    preferred_successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A replica asks for the records that follow `fetch_from`, the end of its own log. `max_wait` is in seconds."""

    cluster_id: str | None
    replica_id: int
    epoch: int
    fetch_from: OffsetAndEpoch
    max_wait: float
    max_bytes: int
    directory: bytes = NO_ID


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A replica asks for the bytes of a snapshot from `position` on (FetchSnapshot, KIP-630)."""

    cluster_id: str | None
    replica_id: int
    epoch: int
    snapshot: OffsetAndEpoch
    position: int
    max_bytes: int
    directory: bytes = NO_ID


Request = VoteRequest | BeginRequest | EndRequest | FetchRequest | SnapshotRequest


@dataclass(frozen=True, slots=True)
class Response:
    """The fields of every answer (K595-9): an error, and the leader and epoch that the answering node knows. The
    answers to `BeginRequest` and `EndRequest` have no others."""

    error: ErrorCode
    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class VoteResponse(Response):
    """`silence_s`: for how long, at least, the voter has received nothing from a leader, in seconds of its clock."""

    granted: bool
    silence_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The leader before a leader, as far as known (`leader_id` None: unknown).

    `heard_at`: nothing that any earlier leader sent after this time has reached the majority that elected this one, so
    no earlier leader has committed anything that it started to write later. In seconds of this node's loop."""

    leader_id: int | None
    heard_at: float


@dataclass(frozen=True, slots=True)
class FetchResponse(Response):
    """`high_watermark` is -1 while the leader does not know it. At most one of `records`, `diverging` and `snapshot` is
    set. `snapshot` is a snapshot that the replica must fetch first, because the leader's log no longer has the
    records."""

    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    records: bytes = b""
    snapshot: OffsetAndEpoch | None = None


@dataclass(frozen=True, slots=True)
class SnapshotResponse(Response):
    """Bytes of a snapshot of `size` bytes, from `position` on."""

    snapshot: OffsetAndEpoch = OffsetAndEpoch(-1, -1)
    position: int = 0
    size: int = 0
    data: bytes = b""
