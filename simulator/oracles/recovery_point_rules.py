"""The oracle of recovery points: a log's recovery point on the disk is not past the part of the log on that disk.

Everything below a recovery point counts as written, and recovery does not read it (LOG-2, LOG-3). A point that is
ahead of the disk shows only after a power cut: the log then lacks records that it must have, and does not open.
"""

from __future__ import annotations

from broker.log.log import PartitionLog
from simulator.oracles.findings import POINT_AHEAD
from simulator.oracles.log_rules import HEADER_LINES, LogRules
from simulator.oracles.machine_view import MachineView
from simulator.oracles.replica import ObservedReplica

POINTS_FILE = "recovery-point-offset-checkpoint"

Points = dict[tuple[str, int], int]


class DurablePoints:
    """The recovery points that each machine's disk has after a power cut. A file is parsed once for each content, since
    the oracle looks far more often than it changes."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[bytes, Points]] = {}

    def of(self, machine: MachineView) -> Points:
        """By topic and partition; a torn file has none."""
        content = machine.disk.durable(machine.path_of(POINTS_FILE)) or b""
        parsed = self._parsed.get(machine.name)
        if parsed is None or parsed[0] != content:
            parsed = self._parsed[machine.name] = (content, _points_in(content))
        return parsed[1]


def _points_in(content: bytes) -> Points:
    try:
        lines = [line.split() for line in content.decode().splitlines()[HEADER_LINES:]]
        return {(topic, int(partition)): int(offset) for topic, partition, offset in lines}
    except ValueError:
        return {}


def look_at_recovery_point(rules: LogRules, replica: ObservedReplica, log: PartitionLog, points: Points) -> None:
    """Check a replica when its point on the disk has changed, or its log was truncated. `replica.copy` is the content
    of its log. Removed segments are not needed: the point may be at the start of a log that has none."""
    point = points.get((rules.topic, rules.index), 0)
    now = (point, log.truncations)
    if now == replica.point_seen:
        return
    replica.point_seen = now
    if not point or replica.machine.excused(POINT_AHEAD, replica.copy.path):
        return
    rules.checked(POINT_AHEAD)
    durable = max(replica.copy.durable_end(replica.machine.disk), log.local_start_offset)
    if point > durable:
        sentence = f"the recovery point of {replica.name} is {point}, and its disk has the log up to {durable}"
        rules.report(POINT_AHEAD, sentence, {"node": replica.name, "point": point, "durable_end": durable})
