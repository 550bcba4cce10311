"""The oracle of compacted topics, where each replica removes records independently: which records must remain.

The reference is what leaders have committed of such a log, as it was then: each record's epoch and key, and for each
key the latest record.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.log.log import PartitionLog
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from history.kafka.record_batches import Header, batches_in, records_in
from simulator.oracles.findings import EPOCHS_DIFFER, LOGS_DIFFER, PREFIX_CHANGED, OracleFindings
from simulator.oracles.machine_view import MachineView

Seen = tuple[Any, ...]


class WrittenRecord(NamedTuple):
    """A record's properties. `key` None: it is not a client's record, and the first pass removes it."""

    epoch: int
    key: bytes | None
    is_tombstone: bool


@dataclass
class CommittedKeys:
    """What leaders have committed of a log. `latest`: for each key the offset of its last record."""

    end: int = 0
    records: dict[int, WrittenRecord] = field(default_factory=dict)
    latest: dict[bytes, int] = field(default_factory=dict)

    def take(self, records: dict[int, WrittenRecord], end: int) -> None:
        for offset, record in records.items():
            if self.end <= offset < end:
                self.records[offset] = record
                if record.key is not None:
                    self.latest[record.key] = offset
        self.end = max(self.end, end)

    def forget(self, end: int) -> None:
        """Discard what is known from `end` on: an unclean election may have lost it."""
        self.records.clear()
        self.latest.clear()
        self.end = end


class CompactedRules:
    """All replicas of the partitions of compacted topics."""

    def __init__(self, findings: OracleFindings) -> None:
        self._findings = findings
        self._committed: dict[tuple[bytes, int], CommittedKeys] = {}
        self._seen: dict[tuple[str, bytes, int], Seen] = {}

    def look(self, machine: MachineView, partition: Partition) -> None:
        """Check a replica whose broker's code has run."""
        log, role = partition.log, partition.role
        mark = role.high_watermark if isinstance(role, PartitionLeader) else -1
        key = (machine.name, partition.topic_id, partition.index)
        now = (log, log.cleaned_to, mark)
        before = self._seen.get(key, (None, 0, -1))
        if now == before:
            return
        self._seen[key] = now
        committed = self._committed.setdefault((partition.topic_id, partition.index), CommittedKeys())
        with machine.disk.as_written():
            if isinstance(role, PartitionLeader):
                if role.recovering:
                    committed.forget(log.log_end_offset)
                elif mark > committed.end:
                    committed.take(_records(log, committed.end), mark)
            if log.cleaned_to and (log, log.cleaned_to) != before[:2]:
                self._compacted(machine.name, partition, committed)

    def _compacted(self, name: str, partition: Partition, committed: CommittedKeys) -> None:
        log, place = partition.log, f"{partition.topic}-{partition.index}"
        records = {offset: record for offset, record in _records(log, 0).items() if offset >= log.log_start_offset}
        self._epochs(name, place, partition)
        self._same(name, place, partition, committed, records)
        self._latest(name, place, partition, committed, records)

    def _epochs(self, name: str, place: str, partition: Partition) -> None:
        """A reader of the whole log finds each epoch where it started: the batch that started it is there (K101-11)."""
        log, firsts = partition.log, dict[int, int]()
        for segment in log.segments:
            for header, _ in batches_in(segment.file.read(0, segment.size)):
                firsts.setdefault(header.epoch, header.base)
        for epoch, start in log.epochs.entries:
            if not log.log_start_offset < start < log.log_end_offset:
                continue
            self._findings.checks[EPOCHS_DIFFER] += 1
            if firsts.get(epoch) != start:
                content = "no batch of it" if epoch not in firsts else f"its first batch at {firsts[epoch]}"
                sentence = (
                    f"{place}: {name} has compacted its log up to {log.cleaned_to}, in which epoch {epoch} started at "
                    f"{start}, and has {content}"
                )
                self._report(EPOCHS_DIFFER, partition, sentence, {"node": name, "epoch": epoch, "offset": start})
                return

    def _same(
        self, name: str, place: str, partition: Partition, committed: CommittedKeys, records: dict[int, WrittenRecord]
    ) -> None:
        """Compacted records were committed: the remaining ones equal what was written there."""
        self._findings.checks[LOGS_DIFFER] += len(records)
        for offset, record in records.items():
            if offset >= partition.log.cleaned_to:
                return
            committed_record = committed.records.get(offset)
            if committed_record is not None and committed_record != record:
                sentence = (
                    f"{place}: {name} has a record of epoch {record.epoch} at offset {offset} of its compacted log, "
                    f"and one of epoch {committed_record.epoch} was committed there"
                )
                self._report(LOGS_DIFFER, partition, sentence, {"node": name, "offset": offset, "epoch": record.epoch})
                return

    def _latest(
        self, name: str, place: str, partition: Partition, committed: CommittedKeys, records: dict[int, WrittenRecord]
    ) -> None:
        """Compaction removes only records that a later one of their key replaces, and old tombstones."""
        log = partition.log
        self._findings.checks[PREFIX_CHANGED] += len(committed.latest)
        for offset in committed.latest.values():
            if not log.log_start_offset <= offset < log.cleaned_to or committed.records[offset].is_tombstone:
                continue
            if offset not in records:
                sentence = (
                    f"{place}: {name} has compacted its log up to {log.cleaned_to}, without offset {offset}, the last "
                    "committed record of its key"
                )
                self._report(PREFIX_CHANGED, partition, sentence, {"node": name, "offset": offset})
                return

    def _report(self, oracle: str, partition: Partition, sentence: str, witness: dict[str, object]) -> None:
        self._findings.report(oracle, partition.topic, partition.index, sentence, witness)


def _records(log: PartitionLog, start: int) -> dict[int, WrittenRecord]:
    """The records of a log from an offset on, by offset."""
    records: dict[int, WrittenRecord] = {}
    for segment in log.segments:
        if segment.next_offset <= start and segment is not log.segments[-1]:
            continue
        for header, batch in batches_in(segment.file.read(0, segment.size)):
            if header.next > start and not header.is_control:
                records |= _written(header, batch)
    return records


def _written(header: Header, batch: bytes) -> dict[int, WrittenRecord]:
    return {
        record.offset: WrittenRecord(header.epoch, record.key, record.value is None)
        for record in records_in(header, batch)
    }
