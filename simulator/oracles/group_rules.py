"""The oracles of consumer groups: a coordinator rejects commits of past generations, and shows exactly the committed
offsets.

A late commit of an earlier generation overwrites a later one, but a group's history looks valid: the member that
commits the lower offset seems to be the last one. So supposed clients go on from generations of the log
(`group_events`).

An offset that is shown before it is committed, or is not shown though it is, harms a group only if a member asks just
then, or when the coordinator is replaced. So the offsets that each coordinator would show are compared with its log at
every step.

The log of groups has one assignment for each generation, which gives each partition to one member, and generations only
rise. A coordinator that has loaded the log shows no assignment before it is committed: the next coordinator would
not know it, and could give the same partitions to others.
"""

from collections.abc import Iterator

from broker.coordinator.led_partition import LedPartition
from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.groups.shard import Shard
from broker.log.log import PartitionLog
from broker.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    read_record,
)
from broker.protocol.messages.offset_apis import (
    OffsetFetchRequestGroup,
)
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from history.kafka.record_batches import ReadRecord, batches_in, records_in
from simulator.client import BY_TURNS
from simulator.oracles.findings import ASSIGNMENT_DIFFERS, OFFSETS_DIFFER, WOULD_TAKE, OracleFindings, first_flaw
from simulator.oracles.group_events import generation_flaws
from simulator.oracles.machine_view import MachineView

Offsets = dict[tuple[str, int], int]
"""A group's offsets, by topic and partition."""
_STABLE = "Stable"  # as Kafka names the state of a group whose members all have their assignment
Shown = tuple[LedPartition, int, int]
"""A coordinator, its high watermark and the end of its log."""


class GroupRules:
    """Checks all groups of a cluster."""

    def __init__(self, findings: OracleFindings) -> None:
        self._findings = findings
        self._read: dict[int, int] = {}
        """By partition, the offset up to which records have been checked."""
        self._committed: dict[int, dict[str, Offsets]] = {}
        """By partition and group, the offsets that result from those records."""
        self._generations: dict[int, dict[str, GroupMetadataValue]] = {}
        """By partition and group, the last generation in those records."""
        self._shown: dict[tuple[str, int], Shown] = {}
        """By machine and partition, the state in which its coordinator was asked last."""
        self._asked_forms: set[tuple[tuple[bool, bool], ...]] = set()

    def look(self, machine: MachineView, partition: Partition) -> None:
        """Check a led partition of the groups' log: what was committed there since the last check."""
        role, begin = partition.role, self._read.get(partition.index, 0)
        if not isinstance(role, PartitionLeader):
            return
        if role.high_watermark > begin:
            end = self._read[partition.index] = min(role.high_watermark, partition.log.log_end_offset)
            with machine.disk.as_written():
                records = list(_records(partition.log, begin, end))
            committed = self._committed.setdefault(partition.index, {})
            for record in records:
                _take(committed, record)
                self._follows(partition.index, record)
                self._asked(machine, partition, record)
        self._show(machine, partition, role)

    def _show(self, machine: MachineView, partition: Partition, role: PartitionLeader) -> None:
        """A coordinator that has loaded its log shows exactly the offsets that are committed in it (CG-3, CG-4).

        One with an old high watermark, such as a deposed one, need not know all of them.
        """
        led = None if machine.node is None else machine.node.groups.led(partition.index)
        if led is None or not led.loaded or led.role is not role:
            return
        shown_state: Shown = (led, role.high_watermark, partition.log.log_end_offset)
        if role.high_watermark != self._read.get(partition.index, 0):
            return
        if self._shown.get((machine.name, partition.index)) == shown_state:
            return
        self._shown[machine.name, partition.index] = shown_state
        self._findings.compared(OFFSETS_DIFFER, OFFSETS_TOPIC)
        committed = self._committed.get(partition.index, {})
        for group in sorted(committed.keys() | {entry.group_id for entry in led.shard.listed()}):
            shown, due = _shown_by(led.shard, group), committed.get(group, {})
            if shown != due:
                sentence = (
                    f"{machine.name} coordinates group {group} and would show its offsets {_told(shown)}, and "
                    f"below {role.high_watermark} {_told(due)} are committed"
                )
                witness = {"node": machine.name, "group": group, "high_watermark": role.high_watermark}
                self._findings.report(OFFSETS_DIFFER, OFFSETS_TOPIC, partition.index, sentence, witness)
                return
        generations = self._generations.get(partition.index, {})
        for group in sorted(entry.group_id for entry in led.shard.listed()):
            described, last = led.shard.describe(group, 0), generations.get(group)
            if described.group_state != _STABLE:
                continue
            shares, due_shares = sorted(member.member_assignment for member in described.members), _shares(last)
            self._findings.compared(ASSIGNMENT_DIFFERS, OFFSETS_TOPIC)
            if shares != due_shares:
                sentence = (
                    f"{machine.name} coordinates group {group} and shows its members {shares}, and below "
                    f"{role.high_watermark} {due_shares} are committed"
                )
                witness = {"node": machine.name, "group": group, "high_watermark": role.high_watermark}
                self._findings.report(ASSIGNMENT_DIFFERS, OFFSETS_TOPIC, partition.index, sentence, witness)

    def _follows(self, index: int, record: ReadRecord) -> None:
        """A committed generation is newer than the last one of its group, or has the same assignment, as when a static
        member returns; each partition has one owner."""
        generations = self._generations.setdefault(index, {})
        match read_record(record.key or b"", record.value):
            case (GroupMetadataKey() as its, None):
                generations.pop(its.group, None)
            case (GroupMetadataKey() as its, GroupMetadataValue() as now):
                generation = generations.get(its.group, now)
                generations[its.group] = now
                self._findings.compared(ASSIGNMENT_DIFFERS, OFFSETS_TOPIC)
                owned = (
                    [number for share in _shares(now) for number in share.split()] if now.protocol == BY_TURNS else []
                )
                problems = {
                    f"comes after generation {generation.generation}": now.generation < generation.generation,
                    f"has the shares {_shares(generation)} and {_shares(now)}": now.generation == generation.generation
                    and bool(now.members and generation.members)
                    and _shares(now) != _shares(generation),
                    f"gives a partition to two members: {_shares(now)}": len(owned) != len(set(owned)),
                }
                for problem in [text for text, is_there in problems.items() if is_there]:
                    sentence = f"generation {now.generation} of group {its.group} {problem}"
                    witness = {"group": its.group, "generation": now.generation}
                    self._findings.report(ASSIGNMENT_DIFFERS, OFFSETS_TOPIC, index, sentence, witness)

    def _asked(self, machine: MachineView, partition: Partition, record: ReadRecord) -> None:
        """Ask how the group would go on, once for each form: which of its members are static, and which one leads."""
        match read_record(record.key or b"", record.value):
            case (GroupMetadataKey() as its, GroupMetadataValue() as generation):
                form = tuple(
                    (member.group_instance_id is not None, member.member_id == generation.leader)
                    for member in generation.members
                )
                if form in self._asked_forms:
                    return
                self._asked_forms.add(form)
                self._findings.compared(WOULD_TAKE, OFFSETS_TOPIC)
                if flaw := first_flaw(generation_flaws(its.group, generation)):
                    sentence = f"group {its.group} is in generation {generation.generation}, and {machine.name} {flaw}"
                    witness = {"node": machine.name, "group": its.group, "generation": generation.generation}
                    self._findings.report(WOULD_TAKE, OFFSETS_TOPIC, partition.index, sentence, witness)


def _shares(generation: GroupMetadataValue | None) -> list[bytes]:
    """The assignments of a generation, sorted, because a static member may return with another id."""
    return [] if generation is None else sorted(member.assignment for member in generation.members)


def _told(offsets: Offsets) -> str:
    """The offsets by partition, for people."""
    return ", ".join(f"{topic}-{number}: {offset}" for (topic, number), offset in sorted(offsets.items())) or "nothing"


def _take(committed: dict[str, Offsets], record: ReadRecord) -> None:
    """Apply a record's changes to the offsets of groups."""
    match read_record(record.key or b"", record.value):
        case (OffsetCommitKey() as its, OffsetCommitValue() as said):
            committed.setdefault(its.group, {})[its.topic, its.partition] = said.offset
        case (OffsetCommitKey() as its, None):
            committed.get(its.group, {}).pop((its.topic, its.partition), None)


def _shown_by(shard: Shard, group: str) -> Offsets:
    """A coordinator's answer to a request for all offsets of a group."""
    answer = shard.fetch(OffsetFetchRequestGroup(group, topics=None))
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }


def _records(log: PartitionLog, begin: int, end: int) -> Iterator[ReadRecord]:
    """The records of a log between two offsets. The log itself does not read them, because it would mark them as
    verified; during this read no bit is flipped."""
    begin = max(begin, log.log_start_offset)
    for segment in log.segments:
        if segment.next_offset <= begin:
            continue
        start = segment.position_of(max(begin, segment.base_offset))
        for header, batch in batches_in(segment.file.read(start, segment.size - start)):
            if header.next > end:
                return
            if not header.is_control:
                yield from records_in(header, batch)
