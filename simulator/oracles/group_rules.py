"""The oracle of consumer groups: what a coordinator would take of a member whose generation is over.

A commit of an earlier generation that comes late overwrites one of a later, and what is recorded of a group explains
it: who commits less than another did has committed last. So a coordinator is asked, on each generation that a log has.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from broker.coordinator.offsets_topic import OFFSETS_TOPIC
from broker.groups.group_settings import GroupSettings
from broker.groups.outbox import Append
from broker.groups.shard import Shard
from broker.log.log import PartitionLog
from broker.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue, read_record
from broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.protocol.records import Record, read_records
from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from simulator.oracles.findings import WOULD_TAKE, Findings
from simulator.oracles.machine_view import MachineView


class GroupRules:
    """All groups of a cluster."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._read: dict[int, int] = {}
        """By partition, up to where records have been looked at."""

    def look(self, machine: MachineView, partition: Partition) -> None:
        """Look at a partition of the log of groups where it is led: what was committed there since the last look."""
        role, begin = partition.role, self._read.get(partition.index, 0)
        if not isinstance(role, PartitionLeader) or role.high_watermark <= begin:
            return
        end = self._read[partition.index] = min(role.high_watermark, partition.log.log_end_offset)
        with machine.disk.as_written():
            records = list(_records(partition.log, begin, end))
        for record in records:
            self._asked(machine, partition, record)

    def _asked(self, machine: MachineView, partition: Partition, record: Record) -> None:
        read = read_record(record.key or b"", record.value)
        if read is None or not isinstance(read[0], GroupMetadataKey) or not isinstance(read[1], GroupMetadataValue):
            return
        group, said = read[0].group, read[1]
        for generation in (said.generation - 1, said.generation + 1) if said.members else ():
            self._findings.compared(WOULD_TAKE, OFFSETS_TOPIC)
            shard = Shard(GroupSettings(), Random(0), lambda: -1, lambda *_: True)
            shard.replay(record.key or b"", record.value)
            place = OffsetCommitRequestTopic("any", [OffsetCommitRequestPartition(0, 0, -1, "")])
            member = said.members[0]
            request = OffsetCommitRequest(group, generation, member.member_id, member.group_instance_id, topics=[place])
            if any(isinstance(effect, Append) for effect in shard.commit(0.0, 0, request)):
                sentence = (
                    f"group {group} is in generation {said.generation}, and {machine.name} would take a commit of "
                    f"generation {generation} from its member {member.member_id}"
                )
                of = {"node": machine.name, "group": group, "generation": said.generation, "asked": generation}
                self._findings.report(WOULD_TAKE, OFFSETS_TOPIC, partition.index, sentence, of)


def _records(log: PartitionLog, begin: int, end: int) -> Iterator[Record]:
    """What a log has from one offset on, in front of another. Not read by the log itself, which would take it for
    verified: here no bit is turned over."""
    begin = max(begin, log.log_start_offset)
    for segment in log.segments:
        if segment.next_offset <= begin:
            continue
        for position, header in segment.walk(segment.position_of(max(begin, segment.base_offset))):
            if header.next_offset > end:
                return
            if not header.is_control:
                yield from read_records(segment.file.read(position, header.size))
