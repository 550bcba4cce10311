"""A quorum of state machines in virtual time, on a network and disks that a seed controls, checked after every step.

It drives the pure state machine only: messages are delayed, dropped, duplicated and reordered, nodes crash between any
two effects, with and without losing what they had not flushed. Every claim of the protocol is an assertion in `Oracle`.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from broker.quorum import effects as do
from broker.quorum.election_state import ElectionState
from broker.quorum.messages import FetchResponse, Request, Response
from broker.quorum.raft_node import RaftNode
from broker.quorum.roles import Leader
from broker.quorum.settings import QuorumSettings
from broker.quorum.voters import VoterHistory, VoterSet
from tests.broker.quorum.memory import LEADER_CHANGE, Entry, MemoryDisk, MemoryLog, unpack

FETCH_ENTRIES = 8
"""The maximum number of records in a fetch, so that catching up takes several rounds."""


@dataclass
class Chaos:
    """How bad it gets. Probabilities are per message or per effect."""

    delay: tuple[float, float] = (0.001, 0.08)
    drop: float = 0.05
    duplicate: float = 0.05
    crash: float = 0.002
    flush: tuple[float, float] = (0.001, 0.02)


CALM = Chaos(delay=(0.001, 0.003), drop=0.0, duplicate=0.0, crash=0.0, flush=(0.0005, 0.001))


class BrokenPromiseError(AssertionError):
    """What the protocol says can never happen has happened; the message names the invariant."""


def promise(kept: bool, invariant: str) -> None:
    if not kept:
        raise BrokenPromiseError(invariant)


class Oracle:
    """What must hold whatever happens. Persisted state counts as well as running nodes: the dead may come back."""

    def __init__(self, voters: tuple[int, ...]) -> None:
        self.voters = voters
        self.leaders: dict[int, int] = {}
        self.led: dict[int, None] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.prefixes: dict[tuple[int, int], int] = {}
        self.committed: list[Entry] = []

    def persisted(self, node: int, state: ElectionState) -> None:
        """A vote never changes within an epoch, restarts included, and an epoch has one leader (K595-14)."""
        if state.voted_id is not None:
            voted = self.votes.setdefault((node, state.epoch), state.voted_id)
            promise(voted == state.voted_id, "OneVotePerEpoch")
        if state.leader_id is not None:
            promise(self.leaders.setdefault(state.epoch, state.leader_id) == state.leader_id, "SingleLeaderPerEpoch")

    def leads(self, node: int, epoch: int, log: MemoryLog) -> None:
        """A leader is the only one of its epoch, and starts with every committed record."""
        promise(self.leaders.setdefault(epoch, node) == node, "SingleLeaderPerEpoch")
        if epoch not in self.led:
            self.led[epoch] = None
            promise(log.entries[: len(self.committed)] == self.committed, "LeaderCompleteness")

    def logged(self, log: MemoryLog, start: int) -> None:
        """The same (offset, epoch) means the same prefix, for ever; no offset is reused in an epoch."""
        before = self.prefixes[start - 1, log.entries[start - 1][0]] if start else 0
        for offset in range(start, len(log.entries)):
            before = hash((before, log.entries[offset]))
            promise(self.prefixes.setdefault((offset, log.entries[offset][0]), before) == before, "LogMatching")

    def commits(self, log: MemoryLog, high_watermark: int, disks: list[MemoryLog]) -> None:
        """What is committed never changes, and is on the disks of a majority."""
        promise(high_watermark <= len(log.entries), "ValidHighWatermark")
        known = min(len(self.committed), high_watermark)
        promise(log.entries[:known] == self.committed[:known], "NoCommittedRecordLost")
        if high_watermark > len(self.committed):
            self.committed = log.entries[:high_watermark]
            holders = sum(disk.durable[:high_watermark] == self.committed for disk in disks)
            promise(holders > len(self.voters) // 2, "MajorityReachedHighWatermark")

    def high_watermark(self, before: int, after: int) -> None:
        promise(after > before, "MonotonicHighWatermark")


@dataclass
class Member:
    """One node: its disk, and its process while it runs."""

    settings: QuorumSettings
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    log: MemoryLog = field(default_factory=MemoryLog)
    voters: VoterHistory = field(default_factory=partial(VoterHistory, ()))
    process: RaftNode | None = None
    incarnation: int = 0
    tickets: dict[int, tuple[int, Callable[[Response], None]]] = field(default_factory=dict)
    """Requests to be answered: the sender, and the callback for the answer."""
    ticket: int = 0
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Appends that wait for their commit: ticket -> (epoch, last offset)."""
    high_watermark: int = 0
    flushed_until: float = 0.0
    tick_at: float | None = None


class Simulation:
    """A cluster of `voters` (ids from 1) and `observers`; everything that happens is a function of the seed."""

    def __init__(self, seed: int, voters: int = 3, observers: int = 0, chaos: Chaos = CALM) -> None:
        self.rng = random.Random(seed)
        self.chaos = chaos
        self.now = 0.0
        self.steps = 0
        self.cut: set[tuple[int, int]] = set()
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        ids = tuple(range(1, voters + 1))
        self.oracle = Oracle(ids)
        disks = {node: node.to_bytes(16, "big") for node in range(1, voters + observers + 1)}
        self.members = {node: Member(QuorumSettings(node, "cluster", ids, disk)) for node, disk in disks.items()}
        for member in self.members.values():
            member.voters.begins_at(0, VoterSet(tuple((voter, disks[voter]) for voter in ids)))
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._value = 0

    # --- what a test does

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.now + seconds
        while self._agenda and self._agenda[0][0] <= end:
            self.now, _, action = heapq.heappop(self._agenda)
            self.steps += 1
            action()
        self.now = end

    def start(self, node: int) -> None:
        member = self.members[node]
        assert member.process is None
        member.incarnation += 1
        member.log.flush()
        member.tick_at = None
        member.tickets.clear()
        member.waiting.clear()
        member.high_watermark = 0
        rng = random.Random(self.rng.getrandbits(64))
        member.process = RaftNode(self.now, member.settings, member.disk.election, member.log, member.voters, rng)
        self._execute(node, member.process.start(self.now))

    def start_all(self) -> None:
        for node, member in self.members.items():
            if member.process is None:
                self.start(node)

    def crash(self, node: int, *, power: bool) -> None:
        """End a process; with `power`, what was not flushed goes with it. Otherwise the next start flushes it."""
        member = self.members[node]
        member.process = None
        if power:
            member.log = member.log.power_loss()

    def leader(self) -> int | None:
        """The running leader of the newest epoch."""
        leading = [
            (member.process.role.epoch, node)
            for node, member in self.members.items()
            if member.process is not None and isinstance(member.process.role, Leader)
        ]
        return max(leading)[1] if leading else None

    def append(self, node: int) -> int:
        """Ask a node to append a fresh value; the value."""
        self._value += 1
        member = self.members[node]
        if member.process is not None:
            member.ticket += 1
            records = (self._value.to_bytes(8, "big"),)
            self._execute(node, member.process.append(self.now, member.ticket, records))
        return self._value

    def partition(self, group: set[int]) -> None:
        """Cut the group off from the others, in both directions."""
        rest = self.members.keys() - group
        self.cut = {pair for a in group for b in rest for pair in ((a, b), (b, a))}

    def at(self, delay: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._agenda, (self.now + delay, self._sequence, action))

    # --- effects

    def _execute(self, node: int, effects: list[do.Effect]) -> None:
        member = self.members[node]
        incarnation = member.incarnation
        for effect in effects:
            if self.rng.random() < self.chaos.crash:
                self.crash(node, power=self.rng.random() < 0.5)
            if member.process is None or member.incarnation != incarnation:
                return
            self._perform(node, member, effect)
        self._check(node, member)
        self._arm(node, member)

    def _perform(self, node: int, member: Member, effect: do.Effect) -> None:
        match effect:
            case do.Persist(state):
                member.disk.persist(state)
                self.oracle.persisted(node, state)
            case do.Send(to, request):
                self._send(node, to, request)
            case do.Reply():
                self._reply(node, member, effect)
            case do.AppendLeaderChange(epoch):
                self._append(member, [(epoch, LEADER_CHANGE)])
            case do.AppendAsLeader(epoch, records, ticket):
                self._append(member, [(epoch, int.from_bytes(record, "big")) for record in records])
                member.waiting[ticket] = (epoch, member.log.log_end_offset - 1)
            case do.AppendAsFollower(_, records):
                self._append(member, unpack(records))
            case do.TruncateEffect(offset):
                member.log.truncate_to(offset)
            case do.Flush():
                self._flush(node, member)
            case do.CommitEffect(high_watermark):
                self._commit(member, high_watermark)
            case do.LeadershipLost():
                member.waiting.clear()
            case do.Fail(reason):
                self.failures.append(reason)

    def _append(self, member: Member, entries: list[Entry]) -> None:
        start = member.log.log_end_offset
        member.log.append(entries)
        self.oracle.logged(member.log, start)

    def _flush(self, node: int, member: Member) -> None:
        snapshot = list(member.log.entries)
        member.flushed_until = max(member.flushed_until, self.now + self.rng.uniform(*self.chaos.flush))
        incarnation = member.incarnation

        def done() -> None:
            if member.process is not None and member.incarnation == incarnation:
                member.log.flush(snapshot)
                self._execute(node, member.process.flushed(self.now))

        self.at(member.flushed_until - self.now, done)

    def _commit(self, member: Member, high_watermark: int) -> None:
        self.oracle.high_watermark(member.high_watermark, high_watermark)
        member.high_watermark = high_watermark
        self.oracle.commits(member.log, high_watermark, [self.members[voter].log for voter in self.oracle.voters])
        for ticket, (_, last_offset) in list(member.waiting.items()):
            if last_offset < high_watermark:
                del member.waiting[ticket]
                self.acknowledged.append(member.log.entries[last_offset][1])

    def _check(self, node: int, member: Member) -> None:
        if member.process is not None and isinstance(member.process.role, Leader):
            self.oracle.leads(node, member.process.role.epoch, member.log)

    def _arm(self, node: int, member: Member) -> None:
        assert member.process is not None
        deadline = member.process.deadline()
        if deadline is None or (member.tick_at is not None and self.now < member.tick_at <= deadline):
            return
        member.tick_at = deadline
        incarnation = member.incarnation

        def tick() -> None:
            if member.process is not None and member.incarnation == incarnation:
                member.tick_at = None
                self._execute(node, member.process.tick(self.now))

        self.at(max(0.0, deadline - self.now), tick)

    # --- the network

    def _send(self, sender: int, receiver: int, request: Request) -> None:
        """Deliver a request and its answer; whatever goes wrong ends in `unanswered` after the request timeout."""
        incarnation = self.members[sender].incarnation
        answered, failed = [False], [False]

        def fail() -> None:
            process = self.members[sender].process
            if not answered[0] and process is not None and self.members[sender].incarnation == incarnation:
                failed[0] = True
                self._execute(sender, process.unanswered(self.now, receiver, request))

        def answer(response: Response) -> None:
            process = self.members[sender].process
            if process is not None and self.members[sender].incarnation == incarnation and not failed[0]:
                answered[0] = True
                self._execute(sender, process.answered(self.now, receiver, request, response))

        self.at(self.members[sender].settings.request_timeout_s, fail)
        for _ in range(2 if self.rng.random() < self.chaos.duplicate else 1):
            self._carry(sender, receiver, lambda: self._receive(sender, receiver, request, answer))

    def _carry(self, sender: int, receiver: int, arrive: Callable[[], None]) -> None:
        if self.rng.random() < self.chaos.drop:
            return

        def deliver() -> None:
            if (sender, receiver) not in self.cut:
                arrive()

        self.at(self.rng.uniform(*self.chaos.delay), deliver)

    def _receive(self, sender: int, node: int, request: Request, answer: Callable[[Response], None]) -> None:
        member = self.members[node]
        if member.process is None:
            return
        member.ticket += 1
        member.tickets[member.ticket] = (sender, answer)
        self._execute(node, member.process.receive(self.now, member.ticket, request))

    def _reply(self, node: int, member: Member, effect: do.Reply) -> None:
        sender, answer = member.tickets.pop(effect.ticket)
        response = effect.response
        if isinstance(effect.read, do.Read):
            assert isinstance(response, FetchResponse)
            limit = self.rng.randint(1, FETCH_ENTRIES)
            response = replace(response, records=member.log.read(effect.read.offset, limit))
        final = response
        self._carry(node, sender, lambda: answer(final))
