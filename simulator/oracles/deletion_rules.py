"""The oracle of deletions: a log start that DeleteRecords has answered never falls (KIP-107).

The reference: the answers of brokers to clients. Each later leader of the partition must start its log at the answered
offset or above; a leader of an earlier epoch is deposed, so its start does not matter. Otherwise consumers would read
deleted records again. An unclean election may undo a deletion.
"""

from collections.abc import Mapping
from typing import NamedTuple, cast

from broker.replica.leader import PartitionLeader
from broker.replica.partition import Partition
from broker.trace import Value
from simulator.oracles.findings import START_FELL, OracleFindings
from simulator.oracles.machine_view import MachineView

DELETED = "records_deleted"
"""The event of a broker that answers DeleteRecords."""
Key = tuple[bytes, int]


class _Answer(NamedTuple):
    """The start of a partition that was answered, and the epoch of the leader that did."""

    start: int
    epoch: int


class DeletionRules:
    """The answered starts of a cluster's partitions."""

    def __init__(self, findings: OracleFindings) -> None:
        self._findings = findings
        self._answered: dict[Key, _Answer] = {}
        self._seen: dict[tuple[str, Key], tuple[PartitionLeader, int, _Answer]] = {}

    def answered(self, partition: Partition, event: Mapping[str, Value]) -> None:
        """A broker has answered a deletion in a partition."""
        key = (partition.topic_id, partition.index)
        answer = _Answer(cast(int, event["low_watermark"]), cast(int, event["leader_epoch"]))
        self._answered[key] = max(self._answered.get(key, answer), answer)

    def look(self, machine: MachineView, partition: Partition) -> None:
        """Check a leader whose role or start has changed, and after each answer."""
        key, role = (partition.topic_id, partition.index), partition.role
        answered = self._answered.get(key)
        if answered is None or not isinstance(role, PartitionLeader) or role.leader_epoch < answered.epoch:
            return
        start = partition.log.log_start_offset
        state = (role, start, answered)
        if self._seen.get((machine.name, key)) == state or partition.lock.locked():
            return
        self._seen[machine.name, key] = state
        if role.recovering:
            self._answered[key] = min(answered, _Answer(start, role.leader_epoch))
            return
        if machine.excused(START_FELL, machine.path_of(partition.log.directory)):
            return
        self._findings.compared(START_FELL, partition.topic)
        if start < answered.start:
            sentence = (
                f"{partition.topic}-{partition.index}: {machine.name} leads epoch {role.leader_epoch} with a log that "
                f"starts at {start}, and DeleteRecords was answered with {answered.start}"
            )
            witness = {"node": machine.name, "epoch": role.leader_epoch, "start": start, "answered": answered.start}
            self._findings.report(START_FELL, partition.topic, partition.index, sentence, witness)
