"""The rules for all replicas of one log, a partition's or the metadata log: log matching, and what is committed."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from broker.log.log import PartitionLog
from broker.replica.follower import PartitionFollower
from simulator.disk import SimulatedDisk
from simulator.oracles.findings import (
    EPOCHS_DIFFER,
    INCOMPLETE,
    LOGS_DIFFER,
    NOT_VALID,
    PREFIX_CHANGED,
    SEQUENCE_GAP,
    TWO_LEADERS,
    OracleFindings,
)
from simulator.oracles.log_copy import CopiedBatch, CopiedLog
from simulator.oracles.machine_view import MachineView
from simulator.oracles.sequence_rules import forgets, look_at_sequences

EPOCH_FILE = "leader-epoch-checkpoint"
HEADER_LINES = 2


class Committed:
    """What leaders have committed of a log. `lost_in`: the epoch of the last election that truncated it, as an unclean
    one may; -1 without one. What replicas consider committed in older epochs cannot be checked."""

    def __init__(self) -> None:
        self.batches: list[CopiedBatch] = []
        self.end = 0
        self.start = 0
        self.lost_in = -1
        self._by: list[tuple[int, int]] = []  # (offset, epoch of the leaders that have committed from it on)

    def add(self, batches: Sequence[CopiedBatch], end: int, epoch: int) -> None:
        """A leader of this epoch has committed these batches, up to `end`."""
        if batches and (not self._by or self._by[-1][1] != epoch):
            self._by.append((self.end, epoch))
        self.batches += batches
        self.end = end

    def end_in(self, epoch: int) -> int:
        """The end of what leaders of epochs up to this one have committed. A leader of this epoch must have it, even
        one that does not know of later epochs."""
        return next((start for start, by in self._by if by > epoch), self.end)

    def holds(self, batch: CopiedBatch) -> bool:
        at = bisect_left(self.batches, batch)
        return at < len(self.batches) and self.batches[at] == batch

    def last_below(self, offset: int) -> CopiedBatch | None:
        """The committed batch that ends at `offset`; None without one."""
        at = bisect_left(self.batches, (offset,))
        return self.batches[at - 1] if at and self.batches[at - 1].next == offset else None

    def cut(self, end: int, epoch: int) -> None:
        """From this leader epoch on, the committed part ends at `end`."""
        while self.batches and self.batches[-1].next > end:
            self.batches.pop()
        self._by = [entry for entry in self._by if entry[0] < end]
        self.end, self.lost_in = min(self.end, end), epoch


class LogRules:
    """One log and all its replicas; `topic` and `index` name it."""

    def __init__(self, topic: str, index: int, findings: OracleFindings) -> None:
        self.topic = topic
        self.index = index
        self.committed = Committed()
        self._findings = findings
        self._predecessors: dict[CopiedBatch, CopiedBatch] = {}
        self._known: dict[tuple[int, int], tuple[CopiedBatch, str]] = {}
        self._leaders: dict[int, tuple[str, int]] = {}
        self.local_start = 0
        """The highest offset at which any replica's own segments have started."""
        self.electable: frozenset[int] = frozenset()
        """The brokers in the ISR and the ELR, according to the newest metadata of all brokers."""

    @property
    def where(self) -> str:
        return f"{self.topic}-{self.index}"

    def report(self, oracle: str, sentence: str, *witness: Mapping[str, object]) -> None:
        self._findings.report(oracle, self.topic, self.index, f"{self.where}: {sentence}", *witness)

    def checked(self, oracle: str) -> None:
        self._findings.compared(oracle, self.topic)

    # --- a log changes

    def follow(self, machine: MachineView, copy: CopiedLog, log: PartitionLog) -> None:
        """A replica's log has changed, or is checked for the first time."""
        name = machine.name
        with machine.disk.as_written():
            removed, added = copy.follow(log)
        if removed:
            self._cut(machine, copy, log, removed)
        if added:
            self._whole(machine, copy, len(added))
            front = len(copy.batches) - len(added)  # earlier batches may be gone: a log that restarted
            predecessor = copy.batches[front - 1] if front else None
            self._match(name, predecessor, added)
            if not machine.excused(EPOCHS_DIFFER, copy.path):
                self._epochs_of(name, log, copy.path, machine.disk, predecessor, added)
                self._remote_epochs(name, log)
            if not forgets(machine) and not machine.excused(SEQUENCE_GAP, copy.path):
                look_at_sequences(self._findings, self.topic, self.index, name, copy, len(added))

    def _whole(self, machine: MachineView, copy: CopiedLog, count: int) -> None:
        """No log holds a batch that contradicts itself (K101-1), whether it was accepted or torn."""
        self._findings.compared(NOT_VALID, self.topic, count)
        if copy.flaws and not machine.excused(NOT_VALID, copy.path):
            batch, flaw = copy.flaws[0]
            sentence = (
                f"{machine.name} holds a batch at offset {batch.base} of epoch {batch.epoch} that is not whole: {flaw}"
            )
            self.report(NOT_VALID, sentence, {"node": machine.name, **batch.to_json()})

    def _match(self, name: str, predecessor: CopiedBatch | None, added: Sequence[CopiedBatch]) -> None:
        """Two logs that have a batch of one offset and epoch are the same up to there, so both have the one before.
        This does not apply before a log's start: a leader cannot compare a follower's records there with removed
        ones."""
        self._findings.compared(LOGS_DIFFER, self.topic, len(added))
        for batch in added:
            entry = self._known.setdefault((batch.base, batch.epoch), (batch, name))
            if entry[0] != batch:
                sentence = f"{name} and {entry[1]} hold different records at offset {batch.base} of epoch {batch.epoch}"
                self._differ(sentence, name, batch, entry[1], entry[0])
            elif predecessor is not None and batch.base > self.committed.start:
                known_predecessor = self._predecessors.setdefault(batch, predecessor)
                if known_predecessor != predecessor:
                    sentence = (
                        f"{name} and {entry[1]} have the same records at offset {batch.base} of epoch {batch.epoch}, "
                        "and different ones in front of them"
                    )
                    self._differ(sentence, name, predecessor, entry[1], known_predecessor)
            predecessor = batch

    def _differ(self, sentence: str, name: str, batch: CopiedBatch, peer: str, peer_batch: CopiedBatch) -> None:
        self.report(LOGS_DIFFER, sentence, {"node": name, **batch.to_json()}, {"node": peer, **peer_batch.to_json()})

    def _cut(self, machine: MachineView, copy: CopiedLog, log: PartitionLog, removed: Sequence[CopiedBatch]) -> None:
        name = machine.name
        if not machine.excused(PREFIX_CHANGED, copy.path) and not self._starts_above(machine, log, removed):
            self._cut_committed(name, log, removed)
        self.checked(EPOCHS_DIFFER)
        end = log.log_end_offset
        for epoch, start in durable_epochs(machine.disk, copy.path) or ():
            if start >= end:
                sentence = f"{name} has cut its log to {end}, and its epoch file has epoch {epoch} from {start} on"
                self.report(EPOCHS_DIFFER, sentence, {"node": name, "epoch": epoch, "offset": start, "end": end})
                return

    def _starts_above(self, machine: MachineView, log: PartitionLog, removed: Sequence[CopiedBatch]) -> bool:
        """Whether this follower has dropped its log to start it again above records in remote storage (KIP-1023). Its
        log is empty in between, with the lock held. It may do this only while it cannot be elected, and only where
        another replica has its local start at or above everything that is dropped. The follower's own metadata may be
        older than its removal from the ISR."""
        if machine.node is None or log.log_end_offset:
            return False
        partition = machine.node.replicas.partition(self.topic, self.index)
        if partition is None or not partition.settings.remote_storage:
            return False
        if not isinstance(partition.role, PartitionFollower) or not partition.lock.locked():
            return False
        return machine.node_id not in self.electable and removed[0].next <= self.local_start

    def _cut_committed(self, name: str, log: PartitionLog, removed: Sequence[CopiedBatch]) -> None:
        """Committed records stay in every log that has them."""
        self.checked(PREFIX_CHANGED)
        start = max(self.committed.start, log.log_start_offset)
        for batch in reversed(removed):
            if batch.next > start and self.committed.holds(batch):
                sentence = f"{name} has cut off offset {batch.base} of epoch {batch.epoch}, which was committed"
                self.report(PREFIX_CHANGED, sentence, {"node": name, **batch.to_json()})
                return

    # --- epochs

    def _epochs_of(
        self,
        name: str,
        log: PartitionLog,
        path: str,
        disk: SimulatedDisk,
        predecessor: CopiedBatch | None,
        added: Sequence[CopiedBatch],
    ) -> None:
        """Each batch has the epoch that the cache has for it, and the epoch file had it before the log (K101-8).

        Records below the log's start do not belong to it, though its segment may still hold them."""
        self._findings.compared(EPOCHS_DIFFER, self.topic, len(added))
        epoch = -1 if predecessor is None else predecessor.epoch
        for batch in added:
            if batch.epoch == epoch or batch.next <= log.log_start_offset:
                continue
            epoch, start = batch.epoch, max(batch.base, log.log_start_offset)
            cached = log.epochs.epoch_at(start)
            if cached != epoch:
                sentence = f"{name} holds offset {batch.base} of epoch {epoch}, and its cache has epoch {cached} there"
                self.report(EPOCHS_DIFFER, sentence, {"node": name, "cached": cached, **batch.to_json()})
                return
            written = durable_epochs(disk, path)
            if not any(entry[0] == epoch and entry[1] <= start for entry in written or ()):
                sentence = f"{name} holds offset {batch.base} of epoch {epoch}, which its epoch file does not know"
                self.report(EPOCHS_DIFFER, sentence, {"node": name, "written": str(written), **batch.to_json()})
                return

    def no_epoch_past_end(self, name: str, log: PartitionLog, event: str) -> None:
        """No epoch starts beyond the log's end (H8, K101-12), but that of the last record of a log whose records were
        all deleted (H27): its start is above 0, as that of a log that never had a record is not. `why`: the operation
        just before."""
        self.checked(EPOCHS_DIFFER)
        entries, end = log.epochs.entries, log.log_end_offset
        all_deleted = len(entries) == 1 and end == log.log_start_offset > 0
        if entries and entries[-1].start_offset >= end and not all_deleted:
            epoch, start = entries[-1]
            sentence = f"{name} {event}, its log ends at {end}, and it has epoch {epoch} from {start} on"
            self.report(EPOCHS_DIFFER, sentence, {"node": name, "epoch": epoch, "offset": start, "end": end})

    def start_moved(self, name: str, copy: CopiedLog, log: PartitionLog) -> None:
        """The log's start has moved: the epoch that contains it is still known (K101-11, H27)."""
        self.committed.start = max(self.committed.start, log.log_start_offset)
        self.local_start = max(self.local_start, log.local_start_offset)
        live = copy.between(log.log_start_offset, log.log_end_offset)
        if not live:
            return
        self.checked(EPOCHS_DIFFER)
        cached = log.epochs.epoch_at(max(live[0].base, log.log_start_offset))
        if cached != live[0].epoch:
            sentence = (
                f"{name} starts at {log.log_start_offset} now, with offset {live[0].base} of epoch {live[0].epoch}, "
                f"where its cache has epoch {cached}"
            )
            self.report(EPOCHS_DIFFER, sentence, {"node": name, "cached": cached, **live[0].to_json()})

    def _remote_epochs(self, name: str, log: PartitionLog) -> None:
        """A log whose first records are in remote storage has an epoch for them, too (K1023-11)."""
        start, entries = log.log_start_offset, log.epochs.entries
        if start < log.local_start_offset and log.epochs.epoch_at(start) < 0:
            epoch, first = entries[0] if entries else (-1, -1)
            oldest = f"its oldest epoch, {epoch}, is from {first} on" if entries else "it has no epoch"
            sentence = f"{name} has a log from {start} on, and {oldest}"
            self.report(EPOCHS_DIFFER, sentence, {"node": name, "epoch": epoch, "offset": first, "start": start})

    def began_anew(self, name: str, end: int, copy: CopiedLog, log: PartitionLog) -> None:
        """A log restarts beyond its own `end` only where another log starts: the records in between were committed, and
        removed there. Its own retention stays within the log."""
        start = log.log_start_offset
        if start <= end or (copy.batches and copy.start < start):
            return
        self.checked(INCOMPLETE)
        if start > self.committed.start:
            sentence = f"{name}, whose log ended at {end}, restarts at {start}, but no log has started there or later"
            self.report(INCOMPLETE, sentence, {"node": name, "end": end, "start": start})

    # --- leaders and their commits

    def leads(self, name: str, life: int, epoch: int) -> None:
        """A process leads an epoch, or a disk says so (`life` 0: an unknown process). No other process may ever lead
        it."""
        self.checked(TWO_LEADERS)
        leader, its_life = self._leaders.setdefault(epoch, (name, life))
        if life and not its_life:
            self._leaders[epoch] = (leader, life)
        if leader != name or (life and its_life and life != its_life):
            sentence = f"epoch {epoch} is led by {_process(name, life)} and by {_process(leader, its_life)}"
            self.report(TWO_LEADERS, sentence, {"node": name, "epoch": epoch}, {"node": leader, "epoch": epoch})

    def missing_in(self, copy: CopiedLog, start: int, epoch: int | None = None) -> CopiedBatch | None:
        """The first committed batch after `start` that a log lacks. `epoch`: limits it to what leaders of epochs up to
        that one have committed."""
        batches = self.committed.batches
        end = self.committed.end if epoch is None else self.committed.end_in(epoch)
        mine = copy.between(start, end)
        theirs = batches[bisect_left(batches, (start,)) : bisect_left(batches, (end,))]
        if mine == theirs:
            return None
        return next((batch for batch in theirs if batch.next > start and not copy.holds(batch)), None)

    def complete(self, name: str, copy: CopiedLog, start: int, epoch: int, situation: str) -> bool:
        """Whether a leader has all that was committed before its epoch and in it; reports a finding if not."""
        self.checked(INCOMPLETE)
        missing = self.missing_in(copy, start, epoch)
        if missing is None:
            return True
        sentence = (
            f"{name} {situation} in epoch {epoch} without offset {missing.base} of epoch {missing.epoch}, which is "
            f"committed (up to {self.committed.end}; its log ends at {copy.end})"
        )
        self.report(INCOMPLETE, sentence, {"node": name, "leads": epoch, **missing.to_json()})
        return False

    def commit(self, copy: CopiedLog, high_watermark: int, epoch: int) -> None:
        """A leader of this epoch has committed everything below `high_watermark`, with its own log's content."""
        self.committed.add(copy.between(self.committed.end, high_watermark), high_watermark, epoch)


def durable_epochs(disk: SimulatedDisk, path: str) -> list[tuple[int, int]] | None:
    """The entries of an epoch file after a power cut; None without a file, empty for a torn one."""
    content = disk.durable(f"{path}/{EPOCH_FILE}")
    if content is None:
        return None
    try:
        lines = content.decode().splitlines()[HEADER_LINES:]
        return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
    except ValueError:
        return []


def written_start(disk: SimulatedDisk, path: str, topic: str, index: int) -> int:
    """The start offset of a log in the checkpoint file of log starts, which may not be applied yet."""
    if not disk.exists(path):
        return 0
    file = disk.open(path)
    lines = file.read(0, file.size()).decode().splitlines()[HEADER_LINES:]
    starts = {(name, int(partition)): int(offset) for name, partition, offset in map(str.split, lines)}
    return starts.get((topic, index), 0)


def _process(name: str, life: int) -> str:
    return f"process {life} of {name}" if life else name
