"""A cluster of replicas in memory with the protocol's requests: only pure leaders and followers."""

from dataclasses import dataclass, field

from broker.mutants import Mutants
from broker.replica.follower import AskEpochEnd, PartitionFollower, Phase, Truncate
from broker.replica.leader import PartitionLeader
from broker.replica.log_view import divergence

LAG_TIME_MAX = 10.0


@dataclass
class MemoryEpochs:
    """A leader epoch cache in memory: (epoch, start offset), both rising."""

    entries: list[tuple[int, int]] = field(default_factory=list)

    @property
    def latest_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        if not self.entries or epoch > self.latest_epoch:
            return (-1, -1)
        if epoch < self.entries[0][0]:
            return (epoch, self.entries[0][1])
        known = [index for index, (candidate, _) in enumerate(self.entries) if candidate <= epoch]
        index = known[-1]
        end = self.entries[index + 1][1] if index + 1 < len(self.entries) else log_end_offset
        return (self.entries[index][0], end)

    def assign(self, epoch: int, start_offset: int) -> None:
        if epoch > self.latest_epoch:
            self.truncate(start_offset)  # an epoch without records is replaced
            self.entries.append((epoch, start_offset))

    def truncate(self, offset: int) -> None:
        self.entries = [entry for entry in self.entries if entry[1] < offset]


@dataclass
class MemoryLog:
    """Records as (epoch, value); the epoch cache is cut with the log, as the real one does."""

    records: list[tuple[int, str]] = field(default_factory=list)
    epochs: MemoryEpochs = field(default_factory=MemoryEpochs)
    log_start_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    def append(self, epoch: int, value: str) -> None:
        self.epochs.assign(epoch, self.log_end_offset)
        self.records.append((epoch, value))

    def read(self, offset: int) -> list[tuple[int, str]]:
        return self.records[offset - self.log_start_offset :]

    def truncate(self, offset: int) -> None:
        if offset < self.log_start_offset:
            self.restart_at(offset)
            return
        del self.records[offset - self.log_start_offset :]
        self.epochs.truncate(offset)

    def advance_start(self, offset: int) -> None:
        """Remove the records below `offset`; the epoch that covers it starts there."""
        del self.records[: offset - self.log_start_offset]
        below = [entry for entry in self.epochs.entries if entry[1] <= offset]
        above = [entry for entry in self.epochs.entries if entry[1] > offset]
        self.epochs.entries = [(epoch, offset) for epoch, _ in below[-1:]] + above
        self.log_start_offset = offset

    def restart_at(self, offset: int) -> None:
        self.records.clear()
        self.epochs.entries.clear()
        self.log_start_offset = offset


@dataclass
class Replica:
    """One broker's copy. `checkpoint` is the high watermark that a crash leaves behind."""

    node: int
    log: MemoryLog = field(default_factory=MemoryLog)
    role: PartitionLeader | PartitionFollower | None = None
    high_watermark: int = 0
    checkpoint: int = 0
    truncations: list[Truncate] = field(default_factory=list)

    def leave_role(self) -> None:
        if self.role is not None:
            self.high_watermark = self.role.high_watermark
            self.role = None

    def values(self) -> list[str]:
        return [value for _, value in self.log.records]


class Story:
    """Brokers 1..n with one partition. A broker acts only when the story calls it."""

    def __init__(self, nodes: int = 2, *, min_insync: int = 1, truncate_to_hw: bool = False) -> None:
        self.replicas = {node: Replica(node) for node in range(1, nodes + 1)}
        self.min_insync = min_insync
        self.truncate_to_hw = truncate_to_hw
        self.epoch = -1
        self.leader_id = -1
        self.isr: list[int] = []
        self.now = 0.0

    def __getitem__(self, node: int) -> Replica:
        return self.replicas[node]

    @property
    def leader(self) -> PartitionLeader:
        role = self[self.leader_id].role
        assert isinstance(role, PartitionLeader)
        return role

    def follower(self, node: int) -> PartitionFollower:
        role = self[node].role
        assert isinstance(role, PartitionFollower)
        return role

    def elect(self, node: int, *, isr: list[int] | None = None, hear: list[int] | None = None) -> None:
        """A new leader epoch; `hear` lists the followers that learn of it (all, unless said otherwise)."""
        self.epoch += 1
        self.leader_id = node
        self.isr = isr or list(self.replicas)
        chosen = self[node]
        chosen.leave_role()
        chosen.log.epochs.assign(self.epoch, chosen.log.log_end_offset)
        chosen.role = PartitionLeader(
            node_id=node,
            replicas=self.replicas,
            isr=self.isr,
            leader_epoch=self.epoch,
            partition_epoch=self.epoch,
            epoch_start_offset=chosen.log.log_end_offset,
            log_start_offset=chosen.log.log_start_offset,
            committable_end=chosen.log.log_end_offset,
            high_watermark=chosen.high_watermark,
            min_insync_replicas=self.min_insync,
            lag_time_max=LAG_TIME_MAX,
            now=self.now,
        )
        for other in self.replicas if hear is None else hear:
            if other != node:
                self.hear(other)

    def hear(self, node: int) -> None:
        """A follower learns of the current leader epoch."""
        replica = self[node]
        replica.leave_role()
        replica.role = PartitionFollower(
            leader_id=self.leader_id,
            leader_epoch=self.epoch,
            partition_epoch=self.epoch,
            high_watermark=replica.high_watermark,
            in_sync=node in self.isr,
            mutants=Mutants(["truncate_to_hw"] if self.truncate_to_hw else ()),
        )

    def write(self, *values: str, to: int | None = None) -> None:
        """A producer's records reach the leader (or one that still believes to lead)."""
        replica = self[to or self.leader_id]
        role = replica.role
        assert isinstance(role, PartitionLeader)
        for value in values:
            replica.log.append(role.leader_epoch, value)
        role.log_grew(replica.log.log_end_offset)

    def reconcile(self, node: int) -> list[Truncate]:
        """Hold the truncation dialogue until the follower may fetch; the cuts that it made."""
        follower, log = self.follower(node), self[node].log
        answers_from = self[follower.leader_id].log
        cuts = []
        while follower.phase is Phase.TRUNCATING:
            step = follower.next_step(log)
            if isinstance(step, AskEpochEnd):
                answer = answers_from.epochs.end_offset_for(step.epoch, answers_from.log_end_offset)
                step = follower.epoch_end_answered(log, *answer)
            self._cut(log, step)
            follower.truncated(step, log)
            cuts.append(step)
        self[node].truncations += cuts
        return cuts

    def fetch(self, node: int) -> None:
        """One fetch and its answer, after the dialogue if that is still due."""
        self.reconcile(node)
        follower, log = self.follower(node), self[node].log
        source, leader = self[follower.leader_id].log, self.leader
        assert leader.leader_epoch == follower.leader_epoch
        offset = log.log_end_offset
        if not source.log_start_offset <= offset <= source.log_end_offset:
            step = follower.out_of_range(log, source.log_start_offset)
            if step is not None:
                self._cut(log, step)
                follower.truncated(step, log)
            return
        if divergence(source, offset, follower.last_fetched_epoch(log)) is not None:
            follower.diverged()
            return
        step = follower.in_range(log, source.log_start_offset)
        if step is not None:
            self._cut(log, step)
            follower.truncated(step, log)
            self[node].truncations.append(step)
        leader.follower_fetched(
            node,
            broker_epoch=1,
            fetch_offset=offset,
            log_start_offset=log.log_start_offset,
            leader_end=source.log_end_offset,
            now=self.now,
        )
        for epoch, value in source.read(offset):
            log.append(epoch, value)
        follower.high_watermark_reported(leader.high_watermark, log.log_end_offset)
        start = min(source.log_start_offset, follower.high_watermark)
        if start > log.log_start_offset:
            log.advance_start(start)

    def catch_up(self, *nodes: int) -> None:
        """Fetch until the records and the news of their commit have arrived: two rounds."""
        for _ in range(2):
            for node in nodes:
                self.fetch(node)

    def checkpoint(self, node: int) -> None:
        role = self[node].role
        self[node].checkpoint = role.high_watermark if role else self[node].high_watermark

    def restart(self, node: int, *, keep: int | None = None) -> None:
        """The process ends and starts again. `keep`: the number of records that a power loss leaves."""
        replica = self[node]
        replica.role = None
        if keep is not None:
            replica.log.truncate(keep)  # K101-12: recovery drops the epochs past the end too
        replica.high_watermark = min(replica.checkpoint, replica.log.log_end_offset)

    @staticmethod
    def _cut(log: MemoryLog, step: Truncate) -> None:
        if step.restart:
            log.restart_at(step.to_offset)
        else:
            log.truncate(step.to_offset)
