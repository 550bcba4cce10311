"""The oracle of supposed events at a member of the quorum: answers to its requests, its restart, and its end.

Theory of operation: a member is a state machine without I/O. A copy of it gets events that the run does not have, in
each state that the run reaches: what a leader may answer to a fetch, votes for and against a candidate, fetches that
commit, a restart from the disk, a shutdown. The copy returns the effects that the member would execute. The original
is not changed, and nothing is written.

The references are the quorum-state file of the machine, the records of its log, its configuration, and the rules
(KIP-595, KIP-996, KIP-853).
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from broker.errors import ErrorCode
from broker.log.log import PartitionLog
from broker.protocol.schema import NO_ID
from broker.quorum.effects import (
    AppendAsFollower,
    AppendVoters,
    CommitEffect,
    Effect,
    Fail,
    Flush,
    Persist,
    Reply,
    Send,
    TruncateEffect,
)
from broker.quorum.election_state import ElectionState
from broker.quorum.messages import (
    BeginRequest,
    EndRequest,
    FetchRequest,
    FetchResponse,
    OffsetAndEpoch,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from broker.quorum.raft_node import RaftNode
from broker.quorum.roles import Candidate, Follower, Leader, Prospective, Resigned
from broker.quorum.settings import QuorumSettings
from simulator.oracles.log_copy import CopiedLog
from simulator.oracles.machine_view import MachineView
from simulator.oracles.settings import ELECTION, FETCH_TIMEOUT

MOST_STEPS: Final = 200
"""How often the clock of a copy is moved to its next deadline: a defect may set one that never passes."""
STANDING_ROUNDS: Final = 4
"""How long a member without a leader may wait before it stands, in times that the loss of a leader takes."""
FETCH_TIMEOUTS: Final = 1.5
"""How long a leader may lead without the fetches of a majority, in fetch timeouts."""
FAR: Final = 1_000
"""How many records a supposed log has more than the member's."""
OTHER_DISK: Final = bytes(15) + b"\xff"
"""The directory id of no disk."""
PARKED: Final = -2
"""The ticket of a supposed fetch that waits."""
ROUNDING_S: Final = 0.001
SUCCESSORS: Final = 5
"""With five successors, exponential delays differ from linear ones."""

R = TypeVar("R", bound=Request)


@dataclass(frozen=True)
class SupposedMetadataLog:
    """The log of a member as it reads it, with another end."""

    log: PartitionLog
    log_end_offset: int
    durable_end_offset: int
    last_epoch: int

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def epochs(self) -> Any:
        return self.log.epochs


@dataclass
class SupposedMember:
    """A copy of a member, at a time of its clock in seconds. `effects`: those of its last event."""

    node: RaftNode
    now: float
    effects: Sequence[Effect] = field(default_factory=tuple)

    @classmethod
    def of(cls, member: RaftNode, now: float, log: SupposedMetadataLog) -> "SupposedMember":
        """A copy that reads `log`, after what is due, and after the flush of all of it."""
        copy = cls(member.twin(log), now)
        copy.node.tick(now)
        copy.effects = copy.node.flushed(now)
        return copy

    def copy(self) -> "SupposedMember":
        """A copy that has sent the same requests: members compare an answered request by its identity."""
        requests = [effect.request for effect in self.effects if isinstance(effect, Send)]
        return SupposedMember(self.node.twin(shared=requests), self.now, self.effects)

    def sent(self, kind: type[R]) -> dict[int, R]:
        """The requests of a kind that the last event has sent, by the voter that they are sent to."""
        return {
            effect.to: effect.request
            for effect in self.effects
            if isinstance(effect, Send) and isinstance(effect.request, kind)
        }

    def has(self, kind: type[Effect]) -> bool:
        return any(isinstance(effect, kind) for effect in self.effects)

    def is_durable_before_sends(self) -> bool:
        """Whether the last event writes the new state before it sends anything."""
        kinds = [type(effect) for effect in self.effects]
        return Persist in kinds and (Send not in kinds or kinds.index(Persist) < kinds.index(Send))

    def wait(self, until: float, is_over: Callable[[], bool]) -> bool:
        """Let time pass until something has happened; false if it has not by `until`. What is sent meanwhile is lost:
        `is_over` looks at the effects of each step."""
        for _ in range(MOST_STEPS):
            if is_over():
                return True
            due = self.node.deadline()
            if due is None or due > until:
                return False
            self.now = max(self.now, due)
            self.effects = self.node.tick(self.now)
        return is_over()

    def answered(self, voter: int, request: Request, response: Response) -> None:
        self.effects = self.node.answered(self.now, voter, request, response)

    def unanswered(self, voter: int, request: Request) -> None:
        self.effects = self.node.unanswered(self.now, voter, request)

    def received(self, request: Request, ticket: int = PARKED) -> None:
        self.effects = self.node.receive(self.now, ticket, request)


@dataclass(frozen=True)
class MemberState:
    """A member at the moment of the questions. `log`: what it has, all of it flushed; `copy`: the oracle's own copy of
    it; `other_voters`: those that are configured, too."""

    machine: MachineView
    member: RaftNode
    original: PartitionLog
    copy: CopiedLog
    other_voters: Sequence[int]
    own_disk: bytes
    now: float

    @property
    def log_end(self) -> OffsetAndEpoch:
        """A leader has its epoch before it has a record of it."""
        return OffsetAndEpoch(max(self.copy.batches[-1].epoch, self.original.epochs.latest_epoch), self.copy.end)

    @property
    def patience_s(self) -> float:
        return STANDING_ROUNDS * self.machine.settings.patience_s

    @property
    def cluster_id(self) -> str | None:
        return self.machine.image.cluster_id

    def log(self, records: int = 0, *, durable: int = 0) -> SupposedMetadataLog:
        """The member's log with `records` more records of its last epoch, `durable` of them on its disk."""
        end = self.log_end
        return SupposedMetadataLog(self.original, end.offset + records, end.offset + durable, end.epoch)

    def twin(self, log: SupposedMetadataLog | None = None) -> SupposedMember:
        return SupposedMember.of(self.member, self.now, log or self.log())


def event_flaws(state: MemberState, twin: SupposedMember) -> Iterator[str]:
    """What is wrong with how a member would react, each as the end of a sentence about it. `twin`: a copy of it."""
    role = twin.node.role
    if twin.node.deadline() is None and not isinstance(role, Leader):
        return  # it shuts down
    yield from _newer_epoch_flaws(state, twin)
    if isinstance(role, Leader):
        yield from _commit_flaws(state)
        yield from _voter_change_flaws(state)
        yield from _endorsement_flaws(state, twin)
        yield from _end_flaws(state, twin)
    if isinstance(role, Follower) and role.leader in state.other_voters:
        yield from _resignation_flaws(state, twin, role)
        yield from _follower_flaws(state, twin, role)
    yield from _candidate_flaws(state, twin)


def election_flaws(state: MemberState, rested: SupposedMember) -> Iterator[str]:
    """What is wrong with how a member stands, in a supposed time without a leader in which all others answer.

    It asks for pre-votes in its epoch first (KIP-996), and for votes in the next one only after a majority would give
    them and its own vote is on its disk (K595-12, K595-13, K595-21). A majority makes it the leader, not less. The
    leader announces itself until it is answered (K595-23).
    """
    twin, voters = rested.copy(), rested.node.voters.current
    other_voters = voters.others(state.machine.node_id)
    if twin.node.deadline() is None:
        return  # it shuts down
    if not twin.wait(twin.now + state.patience_s, lambda: bool(twin.sent(VoteRequest))):
        yield f"does not stand within {state.patience_s:.1f} s without a leader (K595-12)"
        return
    epoch = twin.node.role.epoch
    for is_binding in (False, True):
        requests = twin.sent(VoteRequest)
        if not requests or any(
            request.pre_vote is is_binding or request.epoch != epoch for request in requests.values()
        ):
            kind = "votes" if is_binding else "pre-votes"
            yield f"must ask for {kind} in epoch {epoch}, and sends {list(requests.values())} (KIP-996, K595-13)"
            return
        if is_binding and not twin.is_durable_before_sends():
            yield "asks for votes before its own vote is on its disk (K595-13)"
            return
        for number, voter in enumerate(other_voters[: voters.majority - 1], 2):
            if isinstance(twin.node.role, Leader) or twin.node.role.epoch > epoch:
                yield f"wins epoch {epoch} with {number - 1} of {len(other_voters) + 1} votes (K595-21)"
                return
            request = requests.get(voter) or next(iter(requests.values()))
            twin.answered(voter, request, VoteResponse(ErrorCode.NONE, None, epoch, True))
        epoch += not is_binding
    if not isinstance(twin.node.role, Leader):
        yield f"does not lead with {voters.majority} votes (K595-21)"
    elif not _announces_again(state, twin):
        yield "announces its election only once (K595-23)"


def _announces_again(state: MemberState, twin: SupposedMember) -> bool:
    """Whether a new leader repeats an announcement that was not answered, before it resigns."""
    voter, request = next(iter(twin.sent(BeginRequest).items()))
    for lost_voter, lost in twin.sent(BeginRequest).items():
        twin.unanswered(lost_voter, lost)
    return twin.wait(twin.now + state.patience_s, lambda: twin.sent(BeginRequest).get(voter) == request)


# --- every role


def _newer_epoch_flaws(state: MemberState, rested: SupposedMember) -> Iterator[str]:
    """An answer that names a newer epoch ends any role (K595-26, K595-39); the member fetches from its leader
    (K595-32). An answer that names the member itself as the leader makes no leader of it (H18)."""
    node_id, epoch = state.machine.node_id, rested.node.role.epoch
    leader = state.other_voters[-1]
    request = BeginRequest(state.cluster_id, node_id, epoch)
    for named in (leader, node_id, None):
        twin = rested.copy()
        waits = _park(state, twin)
        twin.answered(leader, request, Response(ErrorCode.FENCED_LEADER_EPOCH, named, epoch + 1))
        role, expected = twin.node.role, leader if named == leader else None
        answer = f"an answer that names epoch {epoch + 1} of leader {named}"
        if (role.epoch, role.leader_id) != (epoch + 1, expected) or isinstance(role, Candidate | Leader):
            yield f"is {role.name} of leader {role.leader_id} in epoch {role.epoch} after {answer} (K595-26, K595-39)"
        elif not twin.is_durable_before_sends():
            yield f"acts in a new epoch before it is on its disk, after {answer} (K595-13)"
        elif named == leader:
            flushed = twin.copy()  # what it has appended as leader is flushed before it fetches
            flushed.effects = [*twin.effects, *flushed.node.flushed(flushed.now)]
            fetch = flushed.sent(FetchRequest).get(leader)
            if fetch is None:
                yield f"does not fetch from the leader after {answer} (K595-32)"
            else:
                yield from _fetch_flaws(state, fetch, epoch + 1)
        if waits and not any(
            isinstance(effect, Reply)
            and effect.ticket == PARKED
            and effect.response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            for effect in twin.effects
        ):
            yield f"leaves a waiting fetch without the error NOT_LEADER_OR_FOLLOWER after {answer} (H24, K595-38)"


def _park(state: MemberState, twin: SupposedMember) -> bool:
    """Let a voter that has the whole log fetch from a leader; whether its fetch waits for records."""
    role = twin.node.role
    if not isinstance(role, Leader):
        return False
    for _ in range(2):  # the first may be answered with the high watermark
        twin.received(_fetch(state, role, state.other_voters[0], state.log_end))
        if not twin.has(Reply):
            return True
    return False


def _fetch(state: MemberState, role: Leader, voter: int, log_end: OffsetAndEpoch) -> FetchRequest:
    """A voter's fetch from this leader, with the disk that the log names."""
    directory = state.member.voters.current.directory_of(voter)
    if directory == NO_ID:
        directory = role.voters[voter].directory
    return FetchRequest(state.cluster_id, voter, role.epoch, log_end, 0.5, 1, directory)


def _fetch_flaws(state: MemberState, fetch: FetchRequest, epoch: int) -> Iterator[str]:
    """A fetch has the epoch of its sender, and the end of its log with its last epoch (K595-33, K595-48)."""
    if (fetch.epoch, fetch.fetch_from) != (epoch, state.log_end):
        yield f"fetches in epoch {fetch.epoch} from {fetch.fetch_from}, and its log ends at {state.log_end} (K595-33)"
    if state.cluster_id is not None and fetch.cluster_id is None:
        yield "fetches without the id of its cluster (K595-49)"


# --- leaders


def _commit_flaws(state: MemberState) -> Iterator[str]:
    """A record is committed once it is on the disks of a majority of the voters, itself included, and not before
    (K595-7, K595-36). Observers do not count."""
    role = state.twin().node.role
    assert isinstance(role, Leader)
    majority = (len(role.voters) + 1) // 2 + 1
    if role.high_watermark is None or len(role.voters) != len(state.other_voters):
        return  # a leader whose epoch has no committed record waits for that first
    for is_flushed in (True, False):
        twin = state.twin(state.log(1, durable=int(is_flushed)))
        twin.node.flushed(state.now)
        leader = twin.node.role
        assert isinstance(leader, Leader)
        mark, end = leader.high_watermark, OffsetAndEpoch(role.epoch, state.log_end.offset + 1)
        observer = max(*state.machine.settings.voters, state.machine.node_id) + 1
        twin.received(replace(_fetch(state, leader, state.other_voters[0], end), replica_id=observer))
        counted = int(is_flushed)
        for voter in (None, *state.other_voters):
            if voter is not None:
                twin.received(_fetch(state, leader, voter, end))
                counted += 1
            is_committed = leader.high_watermark == end.offset
            is_reported = twin.has(CommitEffect) or counted != majority
            if is_committed is not (counted >= majority) or not is_reported:
                has = f"with it on {counted} of {len(role.voters) + 1} disks"
                yield f"{'commits' if is_committed else 'does not commit'} a record {has} (K595-36), after {mark}"
                return


def _voter_change_flaws(state: MemberState) -> Iterator[str]:
    """A leader changes the voters again only after the last change is committed: two majorities then have a voter in
    common (H22, KIP-853). A voter is lost here, and its new disk has the whole log."""
    twin = state.twin(state.log(1, durable=1))
    role = twin.node.role
    assert isinstance(role, Leader)
    replaced, *live_voters = state.other_voters
    if role.high_watermark is None or not live_voters or not state.member.voters.current.keyed:
        return
    twin.node.voters.appended(state.log_end.offset, state.member.voters.current)
    for _ in range(STANDING_ROUNDS):
        twin.now += state.machine.settings.seconds(FETCH_TIMEOUT)
        for voter in live_voters:
            twin.received(_fetch(state, role, voter, state.log_end))
    end = OffsetAndEpoch(role.epoch, state.log_end.offset + 1)
    twin.received(replace(_fetch(state, role, replaced, end), directory=OTHER_DISK))
    if twin.has(AppendVoters):
        yield "changes the voters while the last change of them is not committed (H22)"


def _endorsement_flaws(state: MemberState, rested: SupposedMember) -> Iterator[str]:
    """A voter that fetches in the epoch of a leader knows it: the leader announces itself to others only (K595-23)."""
    twin = rested.copy()
    role = twin.node.role
    assert isinstance(role, Leader)
    for voter in state.other_voters:
        if voter in role.voters:
            twin.received(_fetch(state, role, voter, state.log_end))
    voters = [voter for voter in state.other_voters if role.outreach.pending(voter) and voter in role.voters]
    if voters:
        yield f"goes on to announce itself to {voters}, which fetch from it (K595-23)"


def _end_flaws(state: MemberState, rested: SupposedMember) -> Iterator[str]:
    """A leader that shuts down sends its resignation to all voters once, in the order of their logs (K595-27, K595-28,
    K595-32)."""
    twin = rested.copy()
    role = twin.node.role
    assert isinstance(role, Leader)
    longest = [voter for voter in role.voters if voter in state.other_voters][-1:]
    for voter in longest:
        twin.received(_fetch(state, role, voter, state.log_end))
    logs = {voter: progress.fetch_offset or -1 for voter, progress in role.voters.items()}
    twin.effects = twin.node.shut_down(twin.now)
    requests = twin.sent(EndRequest)
    node_id = state.machine.node_id
    if requests.keys() != role.voters.keys() or any(
        (request.leader_id, request.epoch) != (node_id, role.epoch) for request in requests.values()
    ):
        yield f"resigns from epoch {role.epoch} by {requests} to the voters {sorted(role.voters)} (K595-27)"
        return
    for request in requests.values():
        ends = [logs.get(voter, -1) for voter in request.preferred_successors]
        if sorted(request.preferred_successors) != sorted(role.voters) or ends != sorted(ends, reverse=True):
            yield f"prefers the successors {request.preferred_successors}, whose logs end at {ends} (K595-28)"
            return
    for voter, request in requests.items():
        twin.unanswered(voter, request)
    twin.effects = twin.node.tick(twin.now + state.patience_s)
    if twin.has(Send):
        yield "repeats its resignation (K595-32)"


def unheard_flaws(state: MemberState) -> Iterator[str]:
    """A leader resigns when no majority has fetched from it for too long (K595-43, H19). Observers do not count, nor
    does a fetch with a voter's id from another disk than the voter's."""
    role, voters = state.member.role, state.member.voters.current
    assert isinstance(role, Leader)
    few = state.other_voters[: voters.majority - 2]
    fetches = [_fetch(state, role, voter, state.log_end) for voter in state.other_voters]
    highest_id = max(*state.machine.settings.voters, state.machine.node_id)
    strangers = [replace(fetches[0], replica_id=highest_id + number) for number in range(1, len(fetches) + 2)]
    if voters.keyed:
        strangers += [replace(fetch, directory=OTHER_DISK) for fetch in fetches]
    longest_s = FETCH_TIMEOUTS * state.machine.settings.seconds(FETCH_TIMEOUT)
    for condition, requests in (
        ("without a fetch", []),
        (f"for the fetches of {few} alone, of {len(fetches) + 1} voters", fetches[: len(few)]),
        (f"for the fetches of {few} and of others, which are not voters", [*fetches[: len(few)], *strangers]),
    ):
        if _leads_on(state.twin(), requests, longest_s + ROUNDING_S):
            yield f"would lead on {condition}, for longer than {longest_s:.3f} s"
            return


def _leads_on(twin: SupposedMember, requests: Sequence[FetchRequest], time_s: float) -> bool:
    """Whether a leader that gets these fetches again and again leads for longer than this."""
    end = twin.now + time_s
    while isinstance(twin.node.role, Leader) and twin.now < end:
        for request in requests:
            twin.received(request)
        pause = min(end, twin.now + time_s / 4)
        twin.wait(pause, lambda: not isinstance(twin.node.role, Leader))
        twin.now = max(twin.now, pause)
    return isinstance(twin.node.role, Leader)


# --- followers


def _resignation_flaws(state: MemberState, rested: SupposedMember, role: Follower) -> Iterator[str]:
    """The first of the successors stands at once when its leader resigns; each other one waits, twice as long as the
    one before until the longest delay (K595-3, K595-12, K595-29)."""
    waits_s = []
    strangers = tuple(range(-SUCCESSORS, 0))
    for position in range(SUCCESSORS):
        twin = rested.copy()
        successors = (*strangers[:position], state.machine.node_id, *strangers[position:])
        twin.received(EndRequest(state.cluster_id, role.leader, role.epoch, successors))
        if bool(twin.sent(VoteRequest)) is not (position == 0):
            yield f"stands at the wrong time as successor {position + 1} of its leader (K595-12, K595-29)"
            return
        waits_s.append((twin.node.role.deadline() or math.inf) - twin.now)
    _, *later_s = waits_s
    for shorter, longer, longest in zip(later_s, later_s[1:], later_s[2:], strict=False):
        if longer < shorter - ROUNDING_S or (
            longest > longer + ROUNDING_S and abs(longer - 2 * shorter) > 2 * ROUNDING_S
        ):
            yield f"waits {later_s} s as one of the later successors of its leader (K595-3, K595-29)"
            return


def _follower_flaws(state: MemberState, rested: SupposedMember, role: Follower) -> Iterator[str]:
    twin = rested.copy()
    fetch = _fetch_from_leader(twin, role.leader)
    if fetch is None or role.download is not None:
        return
    yield from _fetch_flaws(state, fetch, role.epoch)
    leader, epoch, mark, end = role.leader, role.epoch, twin.node.high_watermark, state.log_end
    fine = FetchResponse(ErrorCode.NONE, leader, epoch, end.offset + FAR)

    ahead = twin.copy()
    ahead.answered(leader, fetch, fine)
    if ahead.node.high_watermark != end.offset:
        yield f"takes {ahead.node.high_watermark} for the high watermark: its log ends at {end.offset} (K595-40, H7)"
    if leader not in ahead.sent(FetchRequest):
        yield "does not fetch again after an answer of its leader (K595-25)"

    records = twin.copy()
    records.answered(leader, fetch, replace(fine, records=b"records"))
    kinds = [type(effect) for effect in records.effects]
    if kinds[-2:] != [AppendAsFollower, Flush] or records.sent(FetchRequest):
        yield "does not write the records of its leader, and flush them, before it fetches again (K595-7)"

    foreign = twin.copy()
    foreign.answered(leader, fetch, replace(fine, error=ErrorCode.INCONSISTENT_CLUSTER_ID))
    if not foreign.has(Fail):
        yield "goes on although its leader belongs to another cluster (K595-47)"
    foreign = twin.copy()
    foreign.answered(leader, fetch, replace(fine, error=ErrorCode.UNKNOWN_SERVER_ERROR, high_watermark=-1))
    if foreign.has(Fail) or not foreign.wait(foreign.now + state.patience_s, lambda: bool(foreign.sent(FetchRequest))):
        yield "does not fetch again after an error of its leader (K595-39)"

    for diverging, cut in _divergences(state):
        parted = twin.copy()
        parted.answered(leader, fetch, replace(fine, diverging=diverging))
        cuts = [effect.offset for effect in parted.effects if isinstance(effect, TruncateEffect)]
        if cut < mark:
            if not parted.has(Fail) or cuts:
                yield f"would truncate to {cuts} committed records, below the high watermark {mark} (H7)"
        elif cuts != [cut] or parted.node.high_watermark != mark or parted.sent(FetchRequest):
            yield (
                f"would truncate to {cuts} and act on everything below {parted.node.high_watermark}, when epoch "
                f"{diverging.epoch} of its leader ends at {diverging.offset}: its own log parts at {cut}, and nothing "
                "is known to be committed of the leader's (K595-40, H7)"
            )


def _divergences(state: MemberState) -> Iterator[tuple[OffsetAndEpoch, int]]:
    """Where a leader's log may part from the member's, and to where the member must truncate its own then. Below the
    start of its log the member knows no epochs: a leader sends its snapshot there."""
    batches, end = state.copy.batches, state.copy.end
    last_epoch = batches[-1].epoch
    yield OffsetAndEpoch(last_epoch, end - 1), end - 1
    earlier = [batch.epoch for batch in batches if batch.epoch < last_epoch]
    own_end = next((batch.base for batch in batches if earlier and batch.epoch > earlier[-1]), 0)
    if own_end > state.original.log_start_offset:
        yield OffsetAndEpoch(earlier[-1], own_end + FAR), own_end
        yield OffsetAndEpoch(last_epoch - 1, own_end - 1), own_end - 1


def _fetch_from_leader(twin: SupposedMember, leader: int) -> FetchRequest | None:
    """Let a follower lose the fetch that is under way until it fetches from its leader; None if it cannot."""
    role = twin.node.role
    for _ in range(MOST_STEPS):
        if not isinstance(role, Follower) or twin.node.role is not role:
            return None
        if (request := twin.sent(FetchRequest).get(leader)) is not None:
            return request
        if role.fetching.inflight is not None:
            twin.unanswered(leader, role.fetching.inflight)
        else:
            due = twin.node.deadline()
            if due is None:
                return None
            twin.now = max(twin.now, due)
            twin.effects = twin.node.tick(twin.now)
    return None


# --- candidates


def _candidate_flaws(state: MemberState, rested: SupposedMember) -> Iterator[str]:
    """An election that is lost, or that no voter answers, is given up, and another one follows (K595-22, K595-43). Only
    answers to its own requests count (K595-21), of voters, each once."""
    twin = rested.copy()
    if not _stands(state, twin):
        return  # another question finds this
    silent, voters, epoch = twin.copy(), twin.sent(VoteRequest), twin.node.role.epoch
    for voter, request in voters.items():
        silent.unanswered(voter, request)
    is_repeated = silent.wait(silent.now + state.patience_s, lambda: bool(silent.sent(VoteRequest)))
    if not is_repeated:
        yield "asks for votes only once when no voter answers (K595-43)"
    lost = twin.copy()
    for voter, request in voters.items():
        refusal = VoteResponse(ErrorCode.NONE, None, lost.node.role.epoch, False)
        if voter == min(voters):
            refusal = replace(refusal, error=ErrorCode.INCONSISTENT_CLUSTER_ID)
        lost.answered(voter, request, refusal)
        if lost.has(Fail):
            yield f"stops because {voter} is of another cluster, which does not lead (K595-47)"
            return
    if isinstance(lost.node.role, Prospective | Candidate):
        yield f"goes on with an election in epoch {epoch} that all voters refuse (K595-22)"
    elif lost.sent(VoteRequest):
        yield f"starts another election at once after the one in epoch {epoch} that all voters refuse (K595-22)"
    elif not _stands(state, lost):
        yield f"does not stand again after the election in epoch {epoch} that all voters refuse (K595-22)"
    if len(voters) < 2:
        return
    for is_binding in (False, True):
        requests = twin.sent(VoteRequest)
        if len(requests) != len(voters):
            return
        role, (first, *later_voters) = twin.node.role, requests
        grant = VoteResponse(ErrorCode.NONE, None, role.epoch, True)
        stranger = max(*state.machine.settings.voters, state.machine.node_id) + 1
        late = replace(requests[first], epoch=role.epoch - 1, pre_vote=not is_binding)
        needless = twin.copy()
        for voter in (stranger, *later_voters):
            needless.answered(voter, requests[first] if voter == stranger else late, grant)
        if needless.node.role is not None and type(needless.node.role) is not type(role):
            kind = "votes" if is_binding else "pre-votes"
            yield f"wins {kind} in epoch {role.epoch} by answers of no voter, and to earlier requests (K595-21)"
            return
        for voter, request in requests.items():
            twin.answered(voter, request, grant)
            if twin.sent(VoteRequest):
                break


def _stands(state: MemberState, twin: SupposedMember) -> bool:
    """Wait until the member asks for votes again."""
    twin.effects = ()
    if isinstance(twin.node.role, Prospective | Candidate):  # the election that is under way ends first
        twin.wait(twin.now + state.patience_s, lambda: not isinstance(twin.node.role, Prospective | Candidate))
        twin.effects = ()
    return twin.wait(twin.now + state.patience_s, lambda: len(twin.sent(VoteRequest)) > 0)


# --- restarts


def restarted(state: MemberState) -> SupposedMember | None:
    """The member as another process would start it after a power loss, after its start; None if the disk says
    nothing."""
    content, settings = state.machine.durable_state, state.machine.settings
    if content is None or state.machine.durable_vote() is None:
        return None
    quorum = QuorumSettings(
        state.machine.node_id,
        state.cluster_id,
        settings.voters,
        state.own_disk,
        settings.seconds(FETCH_TIMEOUT),
        settings.seconds(ELECTION),
    )
    stored = ElectionState.decode(content.decode(), "quorum-state")
    voters = deepcopy(state.member.voters)
    node = RaftNode(state.now, quorum, stored, state.log(), voters, random.Random(0))
    twin = SupposedMember(node, state.now)
    twin.effects = node.start(state.now)
    return twin


def restart_flaws(state: MemberState, twin: SupposedMember) -> Iterator[str]:
    """A restarted member keeps its epoch and its vote in it, writes both again before it acts, and leads no epoch
    again: it resigns from the one that it led (K595-14, K595-27, H18)."""
    vote, role = state.machine.durable_vote(), twin.node.role
    assert vote is not None
    epoch = max(vote.epoch, state.log_end.epoch)
    if role.epoch != epoch or isinstance(role, Candidate | Prospective | Leader):
        yield f"would start as {role.name} in epoch {role.epoch}; its disk says epoch {epoch} (K595-14, H18)"
    elif epoch == vote.epoch and vote.voted >= 0 and role.voted_id != vote.voted:
        yield f"would start with the vote {role.voted_id} in epoch {epoch}; it has voted for {vote.voted} (K595-14)"
    elif not isinstance(twin.effects[0] if twin.effects else None, Persist):
        yield "would act after its start before its vote is on its disk again (K595-14)"
    elif (epoch, state.machine.node_id) == (vote.epoch, vote.leader) and not (
        isinstance(role, Resigned) and twin.sent(EndRequest).keys() == set(state.other_voters)
    ):
        yield f"would start without resigning from epoch {epoch}, which it led (K595-27)"


def observer_flaws(member: RaftNode, now: float, original: PartitionLog, until: float) -> Iterator[str]:
    """An observer asks for no vote, gives none, and looks for a leader for ever (K595-42)."""
    end = OffsetAndEpoch(max(0, original.last_epoch), original.log_end_offset)
    log = SupposedMetadataLog(original, end.offset, end.offset, end.epoch)
    twin = SupposedMember.of(member, now, log)
    if twin.node.deadline() is None:
        return  # it shuts down, or a fetch is under way
    candidate = VoteRequest(
        None, min(member.voters.current.ids), member.role.epoch + 1, replace(end, epoch=end.epoch + 1)
    )
    twin.received(candidate)
    answers = [effect.response for effect in twin.effects if isinstance(effect, Reply)]
    if any(isinstance(answer, VoteResponse) and answer.granted for answer in answers):
        yield "gives a vote as an observer (K595-42)"
    fetched_at = now
    for _ in range(MOST_STEPS):
        due = twin.node.deadline()
        if due is None or due > until:
            break
        twin.now = max(twin.now, due)
        twin.effects = twin.node.tick(twin.now)
        if twin.sent(VoteRequest):
            yield "asks for votes as an observer (K595-42)"
            return
        for voter, request in twin.sent(FetchRequest).items():
            fetched_at = twin.now
            twin.unanswered(voter, request)
    else:
        return
    if fetched_at < until - 2:
        yield f"looks for no leader any more after {fetched_at - now:.1f} s (K595-42)"
