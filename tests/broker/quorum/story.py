"""One member of a quorum and the words to describe its stories. The test plays the other members.

Effects happen immediately on a disk and a log in memory; `journal` keeps them in their order. fsyncs of the log return
immediately, unless `slow_disk` is set: then `disk_catches_up` completes them.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from broker.errors import ErrorCode
from broker.mutants import Mutants
from broker.protocol.schema import NO_ID
from broker.quorum import effects as do
from broker.quorum.election_state import ElectionState
from broker.quorum.messages import (
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
from broker.quorum.raft_node import RaftNode
from broker.quorum.roles import Candidate, Follower, Leader, Role
from broker.quorum.settings import QuorumSettings
from broker.quorum.voters import VoterHistory, VoterSet
from tests.broker.quorum.memory import LEADER_CHANGE, VOTERS, Entry, MemoryDisk, MemoryLog, pack, unpack

CLUSTER = "cluster"
NEW_DISK = b"a disk that is new"[:16]
A = TypeVar("A", bound=Response)
R = TypeVar("R", bound=Role)
Q = TypeVar("Q", bound=Request)


def disk_of(node: int) -> bytes:
    """The directory id of a node that still has its first disk."""
    return node.to_bytes(16, "big", signed=True)


class Story:
    """Node 1 of voters 1, 2, 3 unless stated otherwise. `log`: the epochs of its first records. Every node has the
    directory ids of the voters, as if from a snapshot; with `keyed=False` no node has them, as in a new cluster.
    `disk`: a disk that this node has instead of its own."""

    def __init__(
        self,
        *,
        node: int = 1,
        voters: Sequence[int] = (1, 2, 3),
        remembers: ElectionState | None = None,
        log: Sequence[int] = (),
        slow_disk: bool = False,
        keyed: bool = True,
        disk: bytes | None = None,
        mutants: Sequence[str] = (),
        **settings: float | str | None,
    ) -> None:
        plain = QuorumSettings(node, CLUSTER, tuple(voters), disk or disk_of(node))
        self.settings = replace(plain, **settings)  # type: ignore[arg-type]
        self.history = VoterHistory(self.settings.voters)
        if keyed:
            self.history.begins_at(0, VoterSet(tuple((voter, disk_of(voter)) for voter in sorted(voters))))
        self.disk = MemoryDisk(remembers or ElectionState(voters=tuple(voters)))
        self.log = MemoryLog([(epoch, number) for number, epoch in enumerate(log)])
        self.log.flush()
        self.slow_disk = slow_disk
        self._mutants = Mutants(mutants)
        self.now = 100.0
        self._seed = 0
        self.start()

    def start(self) -> None:
        """Start, or start again after `lose_power` or `die`."""
        self._seed += 1
        self.journal: list[do.Effect] = []
        self.replies: dict[int, Response] = {}
        self.requests: list[tuple[int, Request]] = []
        self.unflushed = False
        self._ticket = self._last_fetch = 0
        rng = random.Random(self._seed)
        self.node = RaftNode(self.now, self.settings, self.disk.election, self.log, self.history, rng, self._mutants)
        self._do(self.node.start(self.now))

    def lose_power(self) -> None:
        """What was not flushed is gone; the node starts again."""
        self.log = self.log.power_loss()
        self.start()

    # --- time and disk

    def wait(self, seconds: float) -> None:
        """Time passes; the node's timers fire as they come due."""
        end = self.now + seconds
        while (deadline := self.node.deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self._do(self.node.tick(self.now))
        self.now = end
        self._do(self.node.tick(self.now))

    def disk_catches_up(self) -> None:
        """The fsync that was asked for returns."""
        self.unflushed = False
        self.log.flush()
        self._do(self.node.flushed(self.now))

    # --- the others speak

    def vote_request(
        self,
        candidate: int,
        epoch: int,
        *,
        log: tuple[int, int] = (-1, 0),
        pre_vote: bool = False,
        cluster: str | None = CLUSTER,
        disk: bytes = NO_ID,
    ) -> VoteResponse:
        """`log` is (last epoch, end offset) of the candidate; `disk` the one whose vote it wants, if it knows."""
        return self._ask(VoteRequest(cluster, candidate, epoch, OffsetAndEpoch(*log), pre_vote, disk), VoteResponse)

    def begin(self, leader: int, epoch: int, *, cluster: str | None = CLUSTER, disk: bytes = NO_ID) -> Response:
        return self._ask(BeginRequest(cluster, leader, epoch, disk), Response)

    def end(self, leader: int | None, epoch: int, successors: Sequence[int] = (1,)) -> Response:
        return self._ask(EndRequest(CLUSTER, leader, epoch, tuple(successors)), Response)

    def fetch_snapshot(
        self, replica: int, epoch: int, snapshot: OffsetAndEpoch, position: int = 0, *, disk: bytes | None = None
    ) -> SnapshotResponse:
        on = disk_of(replica) if disk is None else disk
        return self._ask(SnapshotRequest(CLUSTER, replica, epoch, snapshot, position, 1 << 20, on), SnapshotResponse)

    def fetch(
        self,
        replica: int,
        epoch: int,
        offset: int,
        last_epoch: int,
        *,
        cluster: str | None = CLUSTER,
        disk: bytes | None = None,
    ) -> FetchResponse | None:
        """The answer; None while the fetch is parked. `answer_to` returns it later. `disk`: the replica's own, unless
        stated otherwise."""
        on = disk_of(replica) if disk is None else disk
        self._deliver(FetchRequest(cluster, replica, epoch, OffsetAndEpoch(last_epoch, offset), 0.25, 1 << 20, on))
        self._last_fetch = self._ticket
        return self.answer_to_last_fetch()

    def answer_to_last_fetch(self) -> FetchResponse | None:
        """What `fetch` was answered since; None while it is parked."""
        reply = self.replies.get(self._last_fetch)
        assert reply is None or isinstance(reply, FetchResponse)
        return reply

    # --- the others answer

    def sent(self, kind: type[Q]) -> list[tuple[int, Q]]:
        """The requests of a kind that wait for an answer."""
        return [(to, request) for to, request in self.requests if isinstance(request, kind)]

    def answer(self, voter: int, kind: type[Q], response: Response) -> None:
        """Answer the newest request of a kind to a voter."""
        request = self._take(voter, kind)
        self._do(self.node.answered(self.now, voter, request, response))

    def no_answer(self, voter: int, kind: type[Q], *, refused: bool = False) -> None:
        request = self._take(voter, kind)
        self._do(self.node.unanswered(self.now, voter, request, refused=refused))

    def vote(self, voter: int, *, granted: bool = True, epoch: int | None = None, leader: int | None = None) -> None:
        """Answer a vote or pre-vote request."""
        answer_epoch = self.role.epoch if epoch is None else epoch
        self.answer(voter, VoteRequest, VoteResponse(ErrorCode.NONE, leader, answer_epoch, granted))

    def fetched(
        self,
        epochs: Sequence[int] = (),
        *,
        high_watermark: int = -1,
        diverging: tuple[int, int] | None = None,
        leader: int | None = None,
        snapshot: OffsetAndEpoch | None = None,
    ) -> None:
        """The leader answers the fetch under way, with records of these epochs, the (epoch, end) of a divergence, or
        the snapshot that is to be fetched first."""
        source = self.role.leader_id if leader is None else leader
        assert source is not None
        parted = None if diverging is None else OffsetAndEpoch(*diverging)
        base = self.log.log_end_offset
        records = pack([(epoch, base + number) for number, epoch in enumerate(epochs)])
        response = FetchResponse(ErrorCode.NONE, source, self.role.epoch, high_watermark, parted, records, snapshot)
        self.answer(source, FetchRequest, response)

    def piece(self, data: bytes, size: int, *, position: int | None = None, error: ErrorCode = ErrorCode.NONE) -> None:
        """The leader sends bytes of the snapshot that it is asked for, at the position that it is asked for."""
        source = self.role.leader_id
        assert source is not None
        asked = self.sent(SnapshotRequest)[-1][1]
        at = asked.position if position is None else position
        response = SnapshotResponse(error, source, self.role.epoch, asked.snapshot, at, size, data)
        self.answer(source, SnapshotRequest, response)

    def fetch_refused(self, voter: int, error: ErrorCode, *, leader: int | None, epoch: int) -> None:
        self.answer(voter, FetchRequest, FetchResponse(error, leader, epoch))

    # --- the node itself

    @property
    def role(self) -> Role:
        return self.node.role

    def is_a(self, role: type[R], epoch: int | None = None) -> R:
        """The role, which must be this one."""
        assert isinstance(self.role, role), f"is {self.role}"
        assert epoch is None or self.role.epoch == epoch, f"is {self.role}"
        return self.role

    def append(self, *values: int) -> int:
        """Append records; the ticket."""
        self._ticket += 1
        self._do(self.node.append(self.now, self._ticket, tuple(value.to_bytes(8, "big") for value in values)))
        return self._ticket

    def stop(self) -> None:
        self._do(self.node.shut_down(self.now))

    def resign(self, epoch: int) -> None:
        """The controller of this epoch gives up."""
        self._do(self.node.resign(self.now, epoch))

    def become_candidate(self) -> int:
        """Stand and get the pre-votes; the epoch."""
        for _ in range(300):
            if isinstance(self.role, Candidate):
                return self.role.epoch
            pre_votes = [to for to, request in self.sent(VoteRequest) if request.pre_vote]
            if pre_votes:
                self.vote(pre_votes[0])
            else:
                self.wait(0.05)
        raise AssertionError(f"never stood: {self.role}")

    def become_leader(self) -> int:
        """Win an election; the epoch."""
        epoch = self.become_candidate()
        for voter in self.settings.other_voters:
            if isinstance(self.role, Candidate):
                self.vote(voter)
        self.is_a(Leader, epoch)
        return epoch

    def follow(self, leader: int, epoch: int) -> Follower:
        assert self.begin(leader, epoch).error is ErrorCode.NONE
        return self.is_a(Follower, epoch)

    def done(self, *kinds: type) -> list[do.Effect]:
        """The effects of these kinds since the start, in order."""
        return [effect for effect in self.journal if isinstance(effect, kinds)]

    @property
    def epochs_in_log(self) -> list[int]:
        return [epoch for epoch, _ in self.log.entries]

    # --- inside

    def _ask(self, request: Request, kind: type[A]) -> A:
        self._deliver(request)
        reply = self.replies[self._ticket]
        assert isinstance(reply, kind)
        return reply

    def _deliver(self, request: Request) -> None:
        self._ticket += 1
        self._do(self.node.receive(self.now, self._ticket, request))

    def _take(self, voter: int, kind: type[Q]) -> Q:
        for index in range(len(self.requests) - 1, -1, -1):
            to, request = self.requests[index]
            if to == voter and isinstance(request, kind):
                del self.requests[index]
                return request
        raise AssertionError(f"no {kind.__name__} to {voter} is under way: {self.requests}")

    def _do(self, effects: list[do.Effect]) -> None:
        self.journal += effects
        for effect in effects:
            self._perform(effect)
        if self.unflushed and not self.slow_disk:
            self.disk_catches_up()

    def _perform(self, effect: do.Effect) -> None:
        match effect:
            case do.Persist(state):
                self.disk.persist(state)
            case do.Send(to, request):
                self.requests.append((to, request))
            case do.Reply(ticket, response, read):
                if isinstance(read, do.Read):
                    assert isinstance(response, FetchResponse)
                    response = replace(response, records=self.log.read(read.offset, 1 << 20))
                self.replies[ticket] = response
            case do.AppendLeaderChange(epoch):
                self.log.append([(epoch, LEADER_CHANGE)])
            case do.AppendVoters(epoch, voters):
                self.history.appended(self.log.log_end_offset, voters)
                self.log.append([(epoch, VOTERS)])
            case do.AppendAsLeader(epoch, records):
                self.log.append([(epoch, int.from_bytes(record, "big")) for record in records])
            case do.AppendAsFollower(_, records):
                self.log.append(unpack(records))
            case do.TruncateEffect(offset):
                self.log.truncate_to(offset)
                self.history.truncated(offset)
            case do.InstallSnapshot(snapshot):
                self.log.begin_at(snapshot.offset, snapshot.epoch)
            case do.Flush():
                self.unflushed = True


def entries(response: FetchResponse | None) -> list[Entry]:
    """The records of an answer to a fetch, which must be there."""
    assert response is not None
    return unpack(response.records)
