"""A whole cluster in one object: pure leaders and followers, a controller, delays and crashes drawn from a seed.

Records must be on disk before they count, so no schedule may lose a committed record. `check` tests this after every
step.
"""

import random
from dataclasses import dataclass, field

from broker.mutants import Mutants
from broker.replica.follower import AskEpochEnd, PartitionFollower, Phase, Truncate
from broker.replica.leader import IsrProposal, PartitionLeader
from broker.replica.log_view import divergence
from tests.broker.replica.story import MemoryLog

LAG_TIME_MAX = 5.0


class ViolationError(AssertionError):
    """An invariant of replication does not hold."""


@dataclass
class State:
    """One version of the partition's committed metadata."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@dataclass
class InFlight:
    """An answer to a fetch that has not arrived yet."""

    role: PartitionFollower
    offset: int
    records: list[tuple[int, str]]
    high_watermark: int
    diverges: bool


@dataclass
class Broker:
    """A process and its disk. `heard` counts the versions of the metadata that it has applied."""

    node: int
    log: MemoryLog = field(default_factory=MemoryLog)
    durable: int = 0
    checkpoint: int = 0
    high_watermark: int = 0
    role: PartitionLeader | PartitionFollower | None = None
    alive: bool = True
    epoch: int = 0
    heard: int = 0
    answer: InFlight | None = None

    @property
    def current_high_watermark(self) -> int:
        return self.high_watermark if self.role is None else self.role.high_watermark


class Model:
    """Call `step` as often as wanted; it raises `ViolationError` when a promise is broken."""

    def __init__(self, seed: int, *, nodes: int = 3, min_insync: int = 1, truncate_to_hw: bool = False) -> None:
        self.rng = random.Random(seed)
        self.min_insync = min_insync
        self.truncate_to_hw = truncate_to_hw
        self.brokers = {node: Broker(node) for node in range(1, nodes + 1)}
        self.versions = [State(1, 0, 0, tuple(self.brokers))]
        self.fenced: set[int] = set()
        self.proposals: list[tuple[int, IsrProposal]] = []
        self.committed: list[tuple[int, str]] = []
        self.registrations = 0
        self.written = 0
        self.now = 0.0

    @property
    def state(self) -> State:
        return self.versions[-1]

    def step(self) -> None:
        """Something happens somewhere."""
        self.now += self.rng.random()
        broker = self.rng.choice(list(self.brokers.values()))
        actions = {
            self.write: 4,
            self.send_fetch: 8,
            self.receive: 8,
            self.hear: 3,
            self.flush: 3,
            self.shrink: 1,
            self.decide: 3,
            self.crash: 0.6,
            self.notice: 6,
            self.come_back: 3,
        }
        action = self.rng.choices(list(actions), list(actions.values()))[0]
        action(broker)
        self.check()

    # -- what brokers do ----------------------------------------------------------------------------------------

    def write(self, broker: Broker) -> None:
        if broker.alive and isinstance(broker.role, PartitionLeader):
            self.written += 1
            broker.log.append(broker.role.leader_epoch, f"w{self.written}")

    def flush(self, broker: Broker) -> None:
        if broker.alive:
            broker.durable = broker.log.log_end_offset
            broker.checkpoint = broker.current_high_watermark
            if isinstance(broker.role, PartitionLeader):
                broker.role.log_grew(broker.durable)

    def hear(self, broker: Broker) -> None:
        """Apply the metadata, up to somewhere."""
        if not broker.alive or broker.heard == len(self.versions):
            return
        broker.heard = self.rng.randint(broker.heard + 1, len(self.versions))
        self.apply(broker, self.versions[broker.heard - 1])

    def apply(self, broker: Broker, state: State) -> None:
        role = broker.role
        if role is not None and role.leader_epoch == state.leader_epoch:
            if isinstance(role, PartitionLeader):
                role.isr_committed(state.isr, state.partition_epoch, self.now)
            return
        broker.high_watermark = broker.current_high_watermark
        broker.answer = None
        if state.leader != broker.node:
            broker.role = PartitionFollower(
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                high_watermark=broker.high_watermark,
                in_sync=broker.node in state.isr,
                mutants=Mutants(["truncate_to_hw"] if self.truncate_to_hw else ()),
            )
            return
        if state is self.state:
            self.check_completeness(broker)
        broker.log.epochs.assign(state.leader_epoch, broker.log.log_end_offset)
        broker.durable = broker.log.log_end_offset
        broker.role = PartitionLeader(
            node_id=broker.node,
            replicas=self.brokers,
            isr=state.isr,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            epoch_start_offset=broker.log.log_end_offset,
            log_start_offset=broker.log.log_start_offset,
            committable_end=broker.durable,
            high_watermark=broker.high_watermark,
            min_insync_replicas=self.min_insync,
            lag_time_max=LAG_TIME_MAX,
            now=self.now,
        )

    def leader_of(self, follower: Broker) -> Broker | None:
        """The broker that answers a follower: one that is up and leads in the epoch which the follower knows."""
        role = follower.role
        if not follower.alive or not isinstance(role, PartitionFollower) or role.leader_id < 0:
            return None
        leader = self.brokers[role.leader_id]
        leads = leader.alive and isinstance(leader.role, PartitionLeader)
        return leader if leads and leader.role.leader_epoch == role.leader_epoch else None  # type: ignore[union-attr]

    def send_fetch(self, broker: Broker) -> None:
        """A request reaches the leader: a step of the dialogue, or a fetch whose answer is on its way."""
        leader = self.leader_of(broker)
        if leader is None or broker.answer is not None:
            return
        follower, log, source = broker.role, broker.log, leader.log
        assert isinstance(follower, PartitionFollower)
        assert isinstance(leader.role, PartitionLeader)
        if follower.phase is Phase.TRUNCATING:
            self.dialogue(broker, follower, source)
            return
        broker.durable = offset = log.log_end_offset
        if offset > source.log_end_offset:
            follower.out_of_range(log, source.log_start_offset)
            return
        diverges = divergence(source, offset, follower.last_fetched_epoch(log)) is not None
        if not diverges:
            leader.role.follower_fetched(
                broker.node,
                broker_epoch=broker.epoch,
                fetch_offset=offset,
                log_start_offset=log.log_start_offset,
                leader_end=source.log_end_offset,
                now=self.now,
            )
            self.expand(leader, broker.node)
        records = source.read(offset)[: self.rng.randint(0, 3)]
        broker.answer = InFlight(follower, offset, records, leader.role.high_watermark, diverges)

    def dialogue(self, broker: Broker, follower: PartitionFollower, source: MemoryLog) -> None:
        step = follower.next_step(broker.log)
        if isinstance(step, AskEpochEnd):
            answer = source.epochs.end_offset_for(step.epoch, source.log_end_offset)
            step = follower.epoch_end_answered(broker.log, *answer)
        assert isinstance(step, Truncate)
        if step.lossy:
            raise ViolationError(f"broker {broker.node} would cut below its high watermark, to {step.to_offset}")
        broker.log.truncate(step.to_offset)
        broker.durable = min(broker.durable, broker.log.log_end_offset)
        follower.truncated(step, broker.log)

    def receive(self, broker: Broker) -> None:
        """The answer to a fetch arrives."""
        answer, broker.answer = broker.answer, None
        if answer is None or not broker.alive or broker.role is not answer.role:
            return
        if answer.diverges:
            answer.role.diverged()
            return
        if answer.offset != broker.log.log_end_offset:
            return
        for epoch, value in answer.records:
            broker.log.append(epoch, value)
        answer.role.high_watermark_reported(answer.high_watermark, broker.log.log_end_offset)

    def expand(self, leader: Broker, replica: int) -> None:
        if isinstance(leader.role, PartitionLeader):
            proposal = leader.role.propose_expansion(replica, leader.epoch)
            if proposal is not None:
                self.proposals.append((leader.node, proposal))

    def shrink(self, broker: Broker) -> None:
        if broker.alive and isinstance(broker.role, PartitionLeader):
            proposal = broker.role.propose_shrink(broker.log.log_end_offset, self.now, broker.epoch)
            if proposal is not None:
                self.proposals.append((broker.node, proposal))

    # -- the controller -----------------------------------------------------------------------------------------

    def decide(self, _: Broker) -> None:
        """A proposal reaches the controller; the answer may be lost."""
        if not self.proposals:
            return
        sender, proposal = self.proposals.pop(self.rng.randrange(len(self.proposals)))
        state = self.state
        if (proposal.leader_epoch, proposal.partition_epoch) != (state.leader_epoch, state.partition_epoch):
            return
        broker = self.brokers[sender]
        role = broker.role
        eligible = all(
            member not in self.fenced and epoch in (-1, self.brokers[member].epoch)
            for member, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
        )
        if not eligible:
            if isinstance(role, PartitionLeader):
                role.proposal_refused(proposal)
            return
        self.change(state.leader, proposal.isr, bump=False)
        if self.rng.random() < 0.6 and isinstance(role, PartitionLeader):
            role.isr_committed(self.state.isr, self.state.partition_epoch, self.now)

    def change(self, leader: int, isr: tuple[int, ...], *, bump: bool) -> None:
        state = self.state
        self.versions.append(State(leader, state.leader_epoch + bump, state.partition_epoch + 1, isr))

    def crash(self, broker: Broker) -> None:
        """The power fails, most often at the leader: what was not flushed may be gone."""
        if self.rng.random() < 0.6 and self.state.leader > 0:
            broker = self.brokers[self.state.leader]
        if not broker.alive:
            return
        broker.alive = False
        broker.role = None
        broker.answer = None
        kept = self.rng.randint(broker.durable, broker.log.log_end_offset)
        broker.log.truncate(kept)
        broker.durable = kept
        broker.high_watermark = min(broker.checkpoint, kept)

    def notice(self, broker: Broker) -> None:
        """The controller fences a broker whose session ended."""
        if not broker.alive and broker.node not in self.fenced:
            self.leave(broker.node)

    def come_back(self, broker: Broker) -> None:
        if not broker.alive:
            self.register(broker)

    def leave(self, node: int) -> None:
        self.fenced.add(node)
        isr = tuple(member for member in self.state.isr if member != node) or self.state.isr
        leader = self.state.leader
        if leader == node:
            leader = next((member for member in isr if member not in self.fenced), -1)
        if (leader, isr) != (self.state.leader, self.state.isr):
            self.change(leader, isr, bump=leader != self.state.leader)

    def register(self, broker: Broker) -> None:
        """A new incarnation: out of the ISR, unless it is the last member; what it led gets a new epoch (K101-10)."""
        self.leave(broker.node)
        self.fenced.discard(broker.node)
        self.registrations += 1
        broker.epoch = self.registrations
        broker.alive = True
        if self.state.leader == -1 and broker.node in self.state.isr:
            self.change(broker.node, self.state.isr, bump=True)
        broker.heard = len(self.versions)
        self.apply(broker, self.state)

    # -- the promises -------------------------------------------------------------------------------------------

    def check(self) -> None:
        for broker in self.brokers.values():
            if not broker.alive:
                continue
            high_watermark = broker.current_high_watermark
            if high_watermark > broker.log.log_end_offset:
                raise ViolationError(f"broker {broker.node}: high watermark {high_watermark} past the end")
            shown = broker.log.records[:high_watermark]
            common = min(len(shown), len(self.committed))
            if shown[:common] != self.committed[:common]:
                raise ViolationError(f"broker {broker.node} shows {shown}, committed is {self.committed}")
            if len(shown) > len(self.committed):
                self.committed = shown

    def check_completeness(self, broker: Broker) -> None:
        """The current leader has every record that was ever committed."""
        if broker.log.records[: len(self.committed)] != self.committed:
            raise ViolationError(f"broker {broker.node} leads with {broker.log.records}, committed is {self.committed}")

    def come_to_rest(self) -> None:
        """Everybody is back and nothing is lost any more: all logs become equal."""
        for broker in self.brokers.values():
            if not broker.alive:
                self.register(broker)
        for _ in range(60):
            for broker in self.brokers.values():
                for action in (self.hear, self.flush, self.send_fetch, self.receive, self.decide):
                    action(broker)
                    self.check()
        logs = [broker.log.records for broker in self.brokers.values()]
        if any(log != logs[0] for log in logs) or len(self.committed) != len(logs[0]):
            raise ViolationError(f"not converged: {logs}, committed {self.committed}")
